# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Start values of costs/wire/'s parameters, and those that no row shows.

Starts of rings with LL and LL128 are NCCL's own latencies of a launch
(ncclTunerConstants, in costs/nccl/latency.py).
"""

from __future__ import annotations

from collections.abc import Mapping

from benchmarks.collectives import channel_rows

# Values from which a fit of the first system starts, by path.
START: Mapping[str, Mapping[str, float]] = {
  "ring.ll": {
    "start_us": 6.6,
    "hop_us": 1.4,
    "channel_gbps": 8,
    "reducing_channel_gbps": 6,
    "first_bytes": 4096,
  },
  # Links, not channels, bound a start, else no step of a fit shows them.
  "ring.ll128": {"start_us": 14, "hop_us": 1.2, "link_efficiency": 0.65},
  "ring.simple": {
    "start_us": 22,
    "hop_us": 0.5,
    "link_efficiency": 0.96,
    "own_gather_steps": 0.3,
    "own_reduce_steps": 0.7,
  },
  "permute.ll": {"start_us": 8, "channel_gbps": 5},
  "permute.simple": {
    "start_us": 10,
    "channel_gbps": 20,
    "lone_channel_gbps": 31,
    "link_efficiency": 0.9,
  },
  "nvls.simple": {
    "start_us": 14,
    "hop_us": 6,
    "link_efficiency": 0.75,
    "handshake_us": 1.5,
  },
  "nvls_gather.simple": {
    "start_us": 14,
    "hop_us": 3,
    "link_efficiency": 0.75,
    "handshake_us": 1.5,
  },
  "exchange.ll": {
    "start_us": 8,
    "hop_us": 1.1,
    "channel_gbps": 5,
    "shadowed_peers": 24,
  },
  "exchange.simple": {
    "start_us": 14,
    "hop_us": 0.6,
    "channel_gbps": 22,
    "link_efficiency": 0.9,
    "own_gather_steps": 0.1,
  },
  "exchange_in_host.ll": {"start_us": 18, "channel_gbps": 8},
  "exchange_in_host.simple": {
    "start_us": 18,
    "channel_gbps": 22,
    "link_efficiency": 0.9,
    "own_gather_steps": 0.1,
  },
  # Without rows: all that they have is fixed below.
  "tree.ll": {},
  "tree.ll128": {},
  "tree.simple": {},
}

# A100's channels over H100's: NCCL's perChMaxTreeBws of one node, 24 and 38.7
# GB/s (src/graph/tuning.cc). Rows of A100s are of all-reduces only, which do
# not tell a gather's channels from a reduction's.
AMPERE_CHANNEL_SHARE = 24.0 / 38.7

# Not seen in the rows that fits take, where all channels together fill the
# links. Rings and trees have what channel_rows.py shows, a GB200 the rates of a
# B300, and A100s their share of an H200's. No row shows what bounds a tree of
# Blackwell's: those of GB200s on three racks reach 253 GB/s of the buffer with
# 16 channels (NCCL's issue 1801), with which H200s would reach half. NVLS hands
# a gather on in one direction, as one-way permutes of four channels do, which
# reach 116 and 130 GB/s with their copies. Simple chunks of a ring are too
# large to show their handshake, which is a hop's.
_SHOWN_GBPS = channel_rows.channels_gbps()
_HOPPER_GBPS = _SHOWN_GBPS["h100"]
_BLACKWELL_TREES = 2.0
_BLACKWELL_GBPS = {
  **{path: _BLACKWELL_TREES * gbps for path, gbps in _HOPPER_GBPS.items()},
  **_SHOWN_GBPS["b200"],
}
_AMPERE_GBPS = {
  path: round(gbps * AMPERE_CHANNEL_SHARE, 1)
  for path, gbps in _HOPPER_GBPS.items()
}
_HANDSHAKE_US = 1.5
FIXED: Mapping[str, Mapping[str, Mapping[str, float]]] = {
  system: {
    "ring.ll128": {
      "channel_gbps": shown_gbps["ring.ll128"],
      "reducing_channel_gbps": shown_gbps["ring.ll128"],
    },
    "ring.simple": {
      "channel_gbps": shown_gbps["ring.simple"],
      "reducing_channel_gbps": shown_gbps["ring.simple"],
      "handshake_us": _HANDSHAKE_US,
    },
    "tree.ll": {"channel_gbps": shown_gbps["tree.ll"]},
    "tree.ll128": {"channel_gbps": shown_gbps["tree.ll128"]},
    "tree.simple": {
      "channel_gbps": shown_gbps["tree.simple"],
      "handshake_us": _HANDSHAKE_US,
    },
    "nvls_gather.simple": {"channel_gbps": one_way_gbps},
    "permute.simple": {"handshake_us": _HANDSHAKE_US},
    "exchange.simple": {"handshake_us": _HANDSHAKE_US},
    "exchange_in_host.simple": {"handshake_us": _HANDSHAKE_US},
  }
  for system, shown_gbps, one_way_gbps in (
    ("gb200", _BLACKWELL_GBPS, 32.5),
    ("b200", _BLACKWELL_GBPS, 32.5),
    ("h100", _HOPPER_GBPS, 29.0),
    ("a100", _AMPERE_GBPS, round(29.0 * AMPERE_CHANNEL_SHARE, 1)),
  )
}

# A channel that takes part in an all-reduce through the NVLink switch copies in
# and out at once, like one of a permute around a ring: path -> whose rate.
AS_FITTED: Mapping[str, str] = {"nvls.simple": "permute.simple"}
