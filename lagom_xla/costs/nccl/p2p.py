# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Sends and receives: permutes and all-to-alls.

NCCL has no tuner and no model for them. Channels, protocol and chunk follow its
launch code (addP2pToPlan in src/enqueue.cc, ncclTopoComputeP2pChannels in
src/graph/paths.cc, both NCCL 2.31). The time is this module's own: the latency
of one hop, as a ring's, and the bytes over the slower of the links within
the node and out of it.

Rates end in _gbps and mean 1e9 bytes per second.
"""

from __future__ import annotations

import math

from lagom_xla import cluster as cluster_lib
from lagom_xla.costs.nccl import graph as graph_lib
from lagom_xla.costs.nccl import latency as latency_lib
from lagom_xla.costs.nccl import terms as terms_lib

_KIB = 1024
_CHUNK_BYTES = {"nvlink": 512 * _KIB, "pcie": 128 * _KIB, "net": 128 * _KIB}
_LL_CHUNK_BYTES = 32 * _KIB
# LL carries a message of at most this for each channel (P2P_LL_THRESHOLD).
_LL_BYTES = 16 * _KIB
# Network that one channel feeds (P2P_PER_CHANNEL_NET_BW), in GB/s.
_CHANNEL_NET_GBPS = 14
# Peers that one CTA serves at once (NCCL_MAX_DEV_WORK_P2P_PER_BATCH).
_PEERS_PER_CTA = 8


def max_channels(graphs: graph_lib.Graphs) -> int:
  """Channels that all sends and receives of a group share."""
  return _power_of_two(graphs.num_channels)


def launch(
  cluster: cluster_lib.Cluster, terms: terms_lib.Terms, num_bytes: int
) -> tuple[str, int, int]:
  """The protocol, channels and chunk in bytes that NCCL takes.

  Args:
    cluster: the cluster.
    terms: of a kind of SEND_RECV.
    num_bytes: what a rank sends in all.
  """
  ranks = terms.communicator.num_ranks
  several = terms.communicator.num_nodes > 1
  link = "pcie" if not terms.graphs.ring.over_nvlink else "nvlink"
  chunk = _CHUNK_BYTES["net" if several else link]
  num_messages = 1 if terms.kind == "collective-permute" else ranks
  message = math.ceil(num_bytes / num_messages)
  total = max_channels(terms.graphs)
  most = _channels_per_peer(cluster, terms, total)
  # All channels of a peer where every peer gets as many, else fewer.
  channels = most
  while channels * ranks > total and channels > 1:
    channels //= 2
  least_part = chunk // 2 if several else chunk // 8
  most_part = chunk if several else chunk * 32
  channels = max(1, min(channels, math.ceil(message / least_part)))
  while message > channels * most_part and channels <= most // 2:
    channels *= 2
  # LL has no buffers across the network (NCCL_ALLOC_P2P_NET_LL_BUFFERS).
  protocol = "simple"
  if not several and message <= channels * _LL_BYTES:
    protocol, chunk = "ll", _LL_CHUNK_BYTES
  elif several:
    chunk //= 4 if message < chunk else 2 if message < 8 * chunk else 1
  return protocol, min(total, channels * num_messages), chunk


def _channels_per_peer(
  cluster: cluster_lib.Cluster, terms: terms_lib.Terms, total: int
) -> int:
  node = cluster.node
  if terms.communicator.num_nodes == 1:
    links = 1
    if node.nvlink is not None and terms.graphs.ring.over_nvlink:
      links = node.nvlink.num_links
      if node.nvlink.topology == "cube_mesh":
        links = 1  # The thinnest pair decides.
    return min(total, _power_of_two(2 * links))
  gbps = min(node.nic_gbps, node.pcie_effective_gbps)
  channels = _power_of_two(math.ceil(int(gbps) / _CHANNEL_NET_GBPS))
  batches = math.ceil(terms.communicator.num_ranks / _PEERS_PER_CTA)
  while channels * batches > total and channels > 1:
    channels //= 2
  return channels


def latency_us(terms: terms_lib.Terms, protocol: str) -> float:
  """A launch and one hop, of the kind that the farthest peer needs."""
  several = terms.communicator.num_nodes > 1
  return latency_lib.hop_us(terms, protocol, net=several)


def bandwidth_gbps(
  cluster: cluster_lib.Cluster, terms: terms_lib.Terms
) -> float:
  """What a rank sends over the time that its slowest link needs for it.

  An all-to-all sends an equal part to every rank; of a permute some rank sends
  all it has over the slowest link.
  """
  node, communicator = cluster.node, terms.communicator
  ranks, per_node = communicator.num_ranks, communicator.ranks_per_node
  inside = node.pcie_effective_gbps
  if node.nvlink is not None and terms.graphs.ring.over_nvlink:
    inside = node.nvlink.num_links * node.nvlink.link_effective_gbps
  nics_per_gpu = node.num_nics / cluster.gpus_per_node
  outside = min(node.pcie_effective_gbps, node.nic_gbps * nics_per_gpu)
  if terms.kind == "collective-permute":
    return inside if communicator.num_nodes == 1 else outside
  times = [(per_node - 1) / ranks / inside]
  times.append((ranks - per_node) / ranks / outside)
  return 1 / max(times)


def _power_of_two(count: int) -> int:
  return 1 << (count - 1).bit_length()
