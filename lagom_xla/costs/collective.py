# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""How long a collective runs alone, and what it takes from the kernels.

NCCL's own model (`nccl/`) is a latency plus bytes over a bandwidth that its
topology search found. It knows nothing of channels and chunks, which is what
there is to tune, so two terms are added to it, in the form of AutoCCL's
equations 2-4 (NSDI 2025):

*Channels.* One channel is one SM that copies, and moves at most b_ch bytes per
second (NCCL's own per-channel caps, perChMaxTreeBws in src/graph/tuning.cc).
NC channels move

    beta = min(beta_graph, NC * b_ch * 2 C / (2 C + b_ch * alpha))

*Chunks.* Each chunk of C bytes costs a handshake alpha between two GPUs, while
two of them are under way, hence the last factor; and a pipeline of chunks is
full only after one chunk has passed, hence C / beta_ch more latency. A channel
whose share of the bytes is less than C has one chunk of just that.

A collective takes one SM per channel, and memory bandwidth: every byte on the
wire is read once and written once, and passes through staging buffers (another
read and write) that stay in L2 as long as all channels' chunks fit there. That
is V(NC, C) of Lagom's equation 6, which the paper leaves without a form; it
grows with both, as the paper says it does.
"""

from __future__ import annotations

import dataclasses

from lagom_xla import cluster as cluster_lib
from lagom_xla.costs import nccl
from lagom_xla.passes import collectives as collectives_lib

# GB/s (1e9) that one channel moves, by major compute capability: Simple and
# LL128 on NVLink (perChMaxTreeBws and perChMaxRingLL128Bws, NCCL
# src/graph/tuning.cc, one node). Older GPUs are not in that table: NCCL counts
# 12 of SM70's 20 GB/s links as one channel each.
_CHANNEL_GBPS = {7: 20.0, 8: 24.0, 9: 38.7, 10: 70.0}
# LL sends a flag with every 4 bytes of data, LL128 with every 120 of 128.
_PROTOCOL_EFFICIENCY = {"ll": 0.5, "ll128": 120 / 128, "simple": 1.0}

# Handshake per chunk: post, fence and poll between two GPUs. NCCL's hop
# latencies over NVLink (hwLat, src/graph/tuning.cc), which are this handshake.
_HANDSHAKE_US = {"ll": 0.6, "ll128": 1.9, "simple": 3.4}

# What each protocol's staging buffers hold of a channel: NCCL_STEPS / 2 chunks
# are in flight in one direction (src/include/device.h).
_CHUNKS_IN_FLIGHT = 2

Setting = nccl.Setting


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class CollectiveCost:
  """A collective alone on the network, as it is configured.

  Attributes:
    time_us: run time.
    num_channels: SMs that it takes.
    memory_gbps: memory bandwidth that it draws, in 1e9 bytes per second (V_j).
  """

  time_us: float
  num_channels: int
  memory_gbps: float


@dataclasses.dataclass(frozen=True, order=True, slots=True)
class TuningKey:
  """What NCCL can tell collectives apart by; they share a setting.

  Attributes:
    kind: HLO opcode.
    num_ranks: size of the communicator.
    num_nodes: nodes that it spans.
    num_bytes: bytes as NCCL counts them.
  """

  kind: str
  num_ranks: int
  num_nodes: int
  num_bytes: int

  @property
  def communicator(self) -> nccl.Communicator:
    """Who takes part, as NCCL's model has it."""
    return nccl.Communicator(num_ranks=self.num_ranks, num_nodes=self.num_nodes)


def tuning_key(
  collective: collectives_lib.Collective, cluster: cluster_lib.Cluster
) -> TuningKey:
  """The tuning key of a collective on a cluster."""
  group = max(collective.groups, key=len, default=())
  is_one_sided = collective.kind in ("send", "recv")
  return TuningKey(
    # Half of a permute each.
    kind="collective-permute" if is_one_sided else collective.kind,
    num_ranks=max(len(group), 1),
    num_nodes=max(cluster.num_nccl_nodes_of(group), 1) if group else 1,
    num_bytes=collective.nccl_bytes,
  )


def default_setting(
  key: TuningKey, cluster: cluster_lib.Cluster
) -> nccl.Setting:
  """What NCCL chooses by itself."""
  return nccl.default_setting(
    cluster, key.communicator, key.kind, key.num_bytes
  )


def predict(
  key: TuningKey, setting: nccl.Setting, cluster: cluster_lib.Cluster
) -> CollectiveCost:
  """Predicts a lone collective under a setting."""
  if key.num_ranks == 1 or not key.num_bytes:
    return CollectiveCost(time_us=0.0, num_channels=0, memory_gbps=0.0)
  graph_gbps = nccl.bandwidth_gbps(
    cluster,
    key.communicator,
    key.kind,
    setting.algorithm,
    setting.protocol,
  )
  nccl_us = nccl.predicted_time_us(
    cluster,
    key.communicator,
    key.kind,
    key.num_bytes,
    setting.algorithm,
    setting.protocol,
  )
  latency_us = nccl_us - key.num_bytes / (graph_gbps * 1e3)
  wire_ratio = _wire_bytes(key, setting.algorithm) / key.num_bytes
  channel_gbps = _channel_gbps(setting, cluster.gpu)
  wire_gbps = min(graph_gbps * wire_ratio, setting.num_channels * channel_gbps)
  transfer_us = key.num_bytes * wire_ratio / (wire_gbps * 1e3)
  chunk_bytes = _largest_chunk_bytes(key, setting)
  fill_us = chunk_bytes / (channel_gbps * 1e3)
  staged_bytes = setting.num_channels * chunk_bytes * _CHUNKS_IN_FLIGHT
  return CollectiveCost(
    time_us=latency_us + transfer_us + fill_us,
    num_channels=setting.num_channels,
    memory_gbps=wire_gbps * _memory_passes(staged_bytes, cluster.gpu),
  )


def _channel_gbps(setting: nccl.Setting, gpu: cluster_lib.Gpu) -> float:
  """Rate of one channel with this chunk size. AutoCCL, equation 4."""
  fastest = _CHANNEL_GBPS[max(min(gpu.compute_capability[0], 10), 7)]
  fastest *= _PROTOCOL_EFFICIENCY[setting.protocol]
  handshake_bytes = fastest * 1e3 * _HANDSHAKE_US[setting.protocol]
  chunk_bytes = setting.chunk_bytes
  # Two chunks are under way at a time, so a handshake hides behind one.
  covered = chunk_bytes * _CHUNKS_IN_FLIGHT
  return fastest * covered / (covered + handshake_bytes)


def _largest_chunk_bytes(key: TuningKey, setting: nccl.Setting) -> float:
  """The chunk, or what a channel has to pass on at a time if that is less.

  Rings and exchanges pass on one rank's part at a time.
  """
  num_parts = setting.num_channels
  if setting.algorithm in ("ring", "pat") or key.kind == "all-to-all":
    num_parts *= key.num_ranks
  return min(setting.chunk_bytes, key.num_bytes / num_parts)


def _memory_passes(staged_bytes: float, gpu: cluster_lib.Gpu) -> float:
  """Bytes that pass the GPU's memory per byte on its wire."""
  missing = min(staged_bytes / gpu.l2_bytes, 1.0)
  return 2.0 + 2.0 * missing


def _wire_bytes(key: TuningKey, algorithm: str) -> float:
  """Bytes that each GPU sends. NCCL's bus bandwidth counts these.

  All-reduce sends everything twice but one rank's share; the others once
  (nccl-tests, doc/PERFORMANCE.md). Where the NVLink switch reduces, all-reduce
  too sends everything once.
  """
  others = (key.num_ranks - 1) / key.num_ranks
  match key.kind:
    case "all-reduce" if algorithm.startswith("nvls"):
      return key.num_bytes
    case "all-reduce":
      return 2 * others * key.num_bytes
    case "collective-permute" | "collective-broadcast":
      return key.num_bytes
  return others * key.num_bytes
