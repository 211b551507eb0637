# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""The channels and chunks of NCCL's launch of a collective.

A channel is a CTA and takes an SM. NCCL starts from all channels of the
communicator and drops channels while each thread would have too few bytes. A
channel passes its share on in chunks that fit its buffer
(src/tuning/tuning_general.cc and calcCollChunking in src/enqueue.cc of NCCL
2.31, which agree with 2.32.3's choices).

NCCL has no tuner and no model for sends and receives: permutes and all-to-alls.
Their channels, protocol and chunk follow its launch code (addP2pToPlan in
src/enqueue.cc, ncclTopoComputeP2pChannels in src/graph/paths.cc, both NCCL
2.31). Their time is this module's own model: the latency of a ring's hop, plus
the bytes over the slower of the links within the node and out of it.

XLA runs a collective of several arrays as one ncclGroup with an NCCL call for
each array. NCCL sorts the calls by size, smallest first, and aggregates calls
of less than four times the size of the first. It asks for one setting per
aggregate, with the bytes of all its calls (ncclPrepareTasks in src/enqueue.cc,
the same from 2.22 to 2.31). It aggregates only calls of the same function,
reduction and data type. The calls of one XLA collective always agree in these:
XLA combines reductions only within a type, and NCCL counts all-gathers and
broadcasts in bytes. The sort is coarse: sizes within a quarter of a power of
two, below 1 KiB, and from 1 GiB on keep XLA's order of operands
(ncclTaskCollSorter in src/include/comm.h). Not modeled: symmetric buffers,
which NCCL handles first.

Names that end in _gbps are in 1e9 bytes per second.
"""

from __future__ import annotations

from collections.abc import Sequence
import math

from lagom_xla import cluster as cluster_lib
from lagom_xla.costs.nccl import environment
from lagom_xla.costs.nccl import graph as graph_lib
from lagom_xla.costs.nccl import model

# NCCL uses fewer channels below these bytes per thread; for LL rings, per
# thread and rank (ncclTuningSetThreadThresholds).
_BYTES_PER_THREAD = {"ll": 8, "ll128": 8, "simple": 64}

_GRAIN_BYTES = {"ll": 16, "ll128": 1920, "simple": 512}
# Bytes of each of the NCCL_STEPS slots of a channel's buffer, without the flags
# of LL and LL128. A chunk of a ring under Simple takes four slots, or one for
# broadcast and reduce (include/collectives.h).
BUFFER_SLOTS = 8
_SLOT_BYTES = {"ll": 32768, "ll128": 576000, "simple": 524288}
# The variable for the size of a whole buffer, and the share of it that is data;
# the rest is flags (init.cc).
_BUFFER = {
  "ll": ("NCCL_LL_BUFFSIZE", 1 / 2),
  "ll128": ("NCCL_LL128_BUFFSIZE", 15 / 16),
  "simple": ("NCCL_BUFFSIZE", 1),
}
_RING_SIMPLE_SLOTS = 4
_KIB = 1024


def _has_long_buffers(
  cluster: cluster_lib.Cluster, communicator: graph_lib.Communicator
) -> bool:
  """Whether scripts or plugins double NCCL's buffers (NCCL_BUFFSIZE of 8 MiB).

  aws-ofi-nccl does on p5 and later (platform_data_map in
  src/platform-aws.cpp). Since 2025 it also does on p4d, but all measurements of
  p4d are older. Google's nccl-env-profile.sh does for TCPXO
  (google/nccl-plugin-gpudirect-tcpxo).
  """
  if communicator.num_nodes == 1 or cluster.gpu.compute_capability < (9, 0):
    return False
  return cluster.node.fabric in ("efa", "tcpxo")


def _slot_bytes(protocol: str) -> int:
  name, share = _BUFFER[protocol]
  if (num_bytes := environment.size(name)) is None:
    return _SLOT_BYTES[protocol]
  grain = chunk_grain_bytes(protocol)
  return max(int(num_bytes / BUFFER_SLOTS * share), grain)


def max_channels(
  cluster: cluster_lib.Cluster,
  communicator: graph_lib.Communicator,
  algorithm: str,
) -> int:
  """The most channels of an algorithm; a tuner can ask for fewer.

  Returns:
    Channels; 0 if the communicator cannot run the algorithm.

  Raises:
    ValueError: no such algorithm.
  """
  if algorithm not in (*model.ALGORITHMS, "p2p"):
    raise ValueError(f"NCCL has no algorithm {algorithm!r}")
  graphs = graph_lib.search(cluster, communicator)
  if algorithm == "p2p":
    return _power_of_two(graphs.num_channels)
  if not algorithm.startswith("nvls"):
    return graphs.num_channels
  if graphs.nvls is None:
    return 0
  num_nvls_channels, _, _ = _nvls_tuning(cluster, communicator)
  return num_nvls_channels


def max_chunk_bytes(algorithm: str, protocol: str) -> int:
  """The largest chunk that fits in a channel's buffer."""
  _check_protocol(protocol)
  return _slot_bytes(protocol) * chunk_slots(algorithm, protocol)


def chunk_slots(algorithm: str, protocol: str) -> int:
  """The number of a connection's BUFFER_SLOTS that a chunk takes.

  A chunk that is not full takes as many. Chunks of broadcast and reduce, which
  this does not cover, always take one.
  """
  is_long = (algorithm, protocol) == ("ring", "simple")
  return _RING_SIMPLE_SLOTS if is_long else 1


def chunk_grain_bytes(protocol: str) -> int:
  """The unit to which NCCL rounds chunks down (ncclProtoGrainSize).

  A smaller chunk from a tuner becomes 0 and crashes the process.
  """
  _check_protocol(protocol)
  return _GRAIN_BYTES[protocol]


def _check_protocol(protocol: str) -> None:
  if protocol not in model.PROTOCOLS:
    raise ValueError(
      f"NCCL has no protocol {protocol!r}; known: {', '.join(model.PROTOCOLS)}"
    )


def num_channels(
  cluster: cluster_lib.Cluster,
  communicator: graph_lib.Communicator,
  num_bytes: int,
  algorithm: str,
  protocol: str,
) -> int:
  """NCCL's number of channels, fewer for few bytes (ncclTuningGetChannels)."""
  most = max_channels(cluster, communicator, algorithm)
  if algorithm in ("nvls", "nvlstree"):
    return most
  per_thread = _BYTES_PER_THREAD[protocol]
  if (algorithm, protocol) == ("ring", "ll"):
    per_thread *= communicator.num_ranks
  threads = 640 if protocol == "ll128" or algorithm == "pat" else 512
  return max(1, min(most, num_bytes // (threads * per_thread)))


def chunk_bytes(
  cluster: cluster_lib.Cluster,
  communicator: graph_lib.Communicator,
  kind: str,
  share_bytes: int,
  algorithm: str,
  protocol: str,
) -> int:
  """NCCL's chunk if a channel has `share_bytes` (calcCollChunking)."""
  chunk = max_chunk_bytes(algorithm, protocol)
  nodes, ranks = communicator.num_nodes, communicator.ranks_per_node
  if protocol == "simple":
    if algorithm == "ring" and kind in model.ROOTED:
      chunk = _slot_bytes(protocol)
    # Your own NCCL_BUFFSIZE, which `_slot_bytes` follows, overrides theirs.
    is_own = environment.size("NCCL_BUFFSIZE") is not None
    if not is_own and _has_long_buffers(cluster, communicator):
      chunk *= 2
  if algorithm in ("nvls", "nvlstree"):
    chunk = _nvls_chunk_bytes(cluster, communicator, algorithm, share_bytes)
  elif (algorithm, protocol) == ("tree", "ll128"):
    steps = 1 + int(math.log2(nodes)) + 0.1 * ranks
    for least, num_chunks in ((131072, 64), (32768, 16)):
      few = steps * num_chunks / ranks
      while share_bytes // chunk < few and chunk > least:
        chunk //= 2
  elif algorithm == "pat":
    num_chunks = 32 if kind == "all-gather" else 16
    while chunk * num_chunks > share_bytes and chunk > 65536:
      chunk //= 2
  grain = chunk_grain_bytes(protocol)
  return chunk // grain * grain


def _nvls_chunk_bytes(
  cluster: cluster_lib.Cluster,
  communicator: graph_lib.Communicator,
  algorithm: str,
  share_bytes: int,
) -> int:
  """NCCL's NVLS chunk, smaller if each head would have few chunks."""
  heads = graph_lib.search(cluster, communicator).nvls
  num_heads = heads.num_channels if heads else 0
  _, chunk, tree_chunk = _nvls_tuning(cluster, communicator)
  if algorithm == "nvlstree":
    chunk = min(chunk, tree_chunk)
    steps = ((16, 128 * _KIB), (4, 64 * _KIB), (1, 32 * _KIB))
    if share_bytes < 32 * num_heads * chunk:
      chunk = min(chunk, 256 * _KIB)
  else:
    steps = ((64, 64 * _KIB), (8, 32 * _KIB), (2, 16 * _KIB))
  for num_chunks, smaller in steps:
    if share_bytes < num_chunks * num_heads * chunk:
      chunk = min(chunk, smaller)
  return chunk


def _nvls_tuning(
  cluster: cluster_lib.Cluster, communicator: graph_lib.Communicator
) -> tuple[int, int, int]:
  """Channels, largest NVLS chunk, largest NVLSTree chunk (ncclNvlsTuning)."""
  nodes, ranks = communicator.num_nodes, communicator.ranks_per_node
  nic_gbps = cluster.node.nic_gbps
  chunk = 128 * _KIB
  tree_chunk = 64 * _KIB if nodes >= 4 else chunk
  channels = 16
  if cluster.gpu.compute_capability >= (10, 0):
    channels = 24 if nodes == 1 else 32
    if nodes == 2 and nic_gbps >= 48:
      tree_chunk = 128 * _KIB
      if ranks <= 4:
        chunk = tree_chunk = 256 * _KIB
      elif ranks >= 16 or (ranks <= 8 and nic_gbps < 96):
        tree_chunk = 64 * _KIB
    elif nodes > 2 and nic_gbps >= 96:
      if ranks <= 8:
        channels, chunk, tree_chunk = 24, 256 * _KIB, 256 * _KIB
      else:
        tree_chunk = (128 if ranks < 32 else 64) * _KIB
    elif nodes > 2 and nic_gbps >= 48:
      channels, tree_chunk = 24, 64 * _KIB
  fabric = cluster.node.fabric
  if fabric == "efa" and _has_long_buffers(cluster, communicator):
    # NCCL_NVLS_CHUNKSIZE and NCCL_NVLSTREE_MAX_CHUNKSIZE of the same table.
    chunk = tree_chunk = 512 * _KIB
  return (
    environment.size("NCCL_NVLS_NCHANNELS") or channels,
    environment.size("NCCL_NVLS_CHUNKSIZE") or chunk,
    environment.size("NCCL_NVLSTREE_MAX_CHUNKSIZE") or tree_chunk,
  )


_CHUNK_BYTES = {
  "nvlink": ("NCCL_P2P_NVL_CHUNKSIZE", 512 * _KIB),
  "pcie": ("NCCL_P2P_PCI_CHUNKSIZE", 128 * _KIB),
  "net": ("NCCL_P2P_NET_CHUNKSIZE", 128 * _KIB),
}
_LL_CHUNK_BYTES = 32 * _KIB
# Most bytes of a message under LL, per channel (P2P_LL_THRESHOLD).
_LL_BYTES = 16 * _KIB
# Network bandwidth per channel (P2P_PER_CHANNEL_NET_BW), in GB/s.
_CHANNEL_NET_GBPS = 14
# Peers that one CTA serves at once (NCCL_MAX_DEV_WORK_P2P_PER_BATCH).
_PEERS_PER_CTA = 8


def send_recv(
  cluster: cluster_lib.Cluster,
  terms: model.Terms,
  num_bytes: int,
  among: model.Terms | None = None,
) -> tuple[str, int, int]:
  """Protocol, channels and chunk bytes for a rank that sends `num_bytes`.

  `among` has the terms of the whole communicator, if only some of its ranks
  exchange data. It decides the channels per peer: as many as every pair of its
  ranks can have, also over the network, and fewer the more ranks it has.
  """
  whole = among or terms
  ranks = whole.communicator.num_ranks
  several = whole.communicator.num_nodes > 1
  over_network = terms.communicator.num_nodes > 1
  link = "pcie" if not terms.graphs.ring.over_nvlink else "nvlink"
  name, chunk = _CHUNK_BYTES["net" if several else link]
  chunk = environment.size(name) or chunk
  num_messages = 1 if terms.kind == "collective-permute" else ranks
  message = math.ceil(num_bytes / num_messages)
  # Channels that all sends and receives of a group share.
  total = _power_of_two(whole.graphs.num_channels)
  most = _channels_per_peer(cluster, whole, total)
  # Fewer channels per peer if all peers together would need more than `total`.
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
  if not over_network and message <= channels * _LL_BYTES:
    protocol, chunk = "ll", _LL_CHUNK_BYTES
  elif over_network:
    chunk //= 4 if message < chunk else 2 if message < 8 * chunk else 1
  return protocol, min(total, channels * num_messages), chunk


def _channels_per_peer(
  cluster: cluster_lib.Cluster, terms: model.Terms, total: int
) -> int:
  node = cluster.node
  if terms.communicator.num_nodes == 1:
    links = 1
    if node.nvlink is not None and terms.graphs.ring.over_nvlink:
      links = node.nvlink.num_links
      if node.nvlink.topology == "cube_mesh":
        links = 1  # The pair with the fewest links decides.
    return min(total, _power_of_two(2 * links))
  gbps = min(node.nic_gbps, node.pcie_effective_gbps)
  channels = _power_of_two(math.ceil(int(gbps) / _CHANNEL_NET_GBPS))
  batches = math.ceil(terms.communicator.num_ranks / _PEERS_PER_CTA)
  while channels * batches > total and channels > 1:
    channels //= 2
  return channels


def send_recv_gbps(cluster: cluster_lib.Cluster, terms: model.Terms) -> float:
  """A rank's bytes over the time of its slowest link, in 1e9 bytes per second.

  In an all-to-all each rank sends an equal part to every rank. In a permute at
  least one rank sends all of its bytes over the slowest link.
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


def aggregates(
  kind: str, array_bytes: Sequence[int]
) -> tuple[tuple[int, ...], ...]:
  """Groups the arrays of a collective as NCCL aggregates them.

  Args:
    kind: XLA's name of the collective.
    array_bytes: bytes of each array as NCCL counts them, in XLA's order.

  Returns:
    The bytes of each aggregate's arrays, in NCCL's order, without empty arrays.
  """
  # NCCL compares traffic: an all-reduce moves each byte twice.
  traffic = 2 if kind == "all-reduce" else 1
  ordered = sorted(filter(None, array_bytes), key=lambda b: _rank(traffic * b))
  runs: list[list[int]] = []
  for num_bytes in ordered:
    if runs and num_bytes < 4 * runs[-1][0]:
      runs[-1].append(num_bytes)
    else:
      runs.append([num_bytes])
  return tuple(map(tuple, runs))


def _rank(traffic_bytes: int) -> tuple[int, int]:
  """NCCL's sort key of a size: its highest bit and the next two."""
  units = min(traffic_bytes, 2**30) // _KIB
  shift = max(units.bit_length() - 3, 0)
  return shift, units >> shift
