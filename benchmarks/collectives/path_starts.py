# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Start values of costs/wire/'s parameters, and those that no row shows.

Starts of rings with LL and LL128 are NCCL's own latencies of a launch
(ncclTunerConstants, in costs/nccl/latency.py).
"""

from __future__ import annotations

from collections.abc import Mapping

# Values from which a fit of the first system starts, by path.
START: Mapping[str, Mapping[str, float]] = {
  "ring.ll": {
    "start_us": 6.6,
    "hop_us": 1.4,
    "channel_gbps": 8,
    "reducing_channel_gbps": 6,
    "first_bytes": 4096,
  },
  "ring.ll128": {"start_us": 14, "hop_us": 1.2, "link_efficiency": 0.88},
  "ring.simple": {
    "start_us": 22,
    "hop_us": 0.5,
    "link_efficiency": 0.96,
    "own_gather_steps": 0.3,
    "own_reduce_steps": 0.7,
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
  "permute.ll": {"start_us": 8, "channel_gbps": 5},
  "permute.simple": {
    "start_us": 10,
    "channel_gbps": 20,
    "lone_channel_gbps": 31,
    "link_efficiency": 0.9,
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
}

# A100's channels over H100's: NCCL's perChMaxTreeBws of one node, 24 and 38.7
# GB/s (src/graph/tuning.cc). Rows of A100s are of all-reduces only, which do
# not tell a gather's channels from a reduction's.
AMPERE_CHANNEL_SHARE = 24.0 / 38.7

# Not seen in the rows, where all channels together fill the links. NCCL's own
# caps (perChMaxRingLL128Bws, src/graph/tuning.cc), and for Simple and NVLS what
# one-way permutes of four channels reach, a quarter: 116 and 130 GB/s with
# their copies, and A100's by its share. Simple chunks of a ring are too large
# to show their handshake, which is a hop's.
FIXED: Mapping[str, Mapping[str, Mapping[str, float]]] = {
  system: {
    "ring.ll128": {
      "channel_gbps": ll128_gbps,
      "reducing_channel_gbps": ll128_gbps,
    },
    "ring.simple": {
      "channel_gbps": gbps,
      "reducing_channel_gbps": gbps,
      "handshake_us": 1.5,
    },
    "nvls.simple": {"channel_gbps": gbps},
    "nvls_gather.simple": {"channel_gbps": gbps},
    "permute.simple": {"handshake_us": 1.5},
    "exchange.simple": {"handshake_us": 1.5},
    "exchange_in_host.simple": {"handshake_us": 1.5},
  }
  for system, ll128_gbps, gbps in (
    ("gb200", 40.0, 32.5),
    ("b200", 40.0, 32.5),
    ("h100", 36.7, 29.0),
    ("a100", 20.0, round(29.0 * AMPERE_CHANNEL_SHARE, 1)),
  )
}
