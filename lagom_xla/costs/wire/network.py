# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""The time of a lone collective between nodes.

NCCL's latencies are those of a good InfiniBand network, and its model has no
cost per message. On other fabrics a hop takes longer under every protocol. A
proxy thread takes M us to post each message, and the message's slot in the
connection's buffer is free again only after a round trip R. S bytes move on n
ranks and N nodes, through NC channels that each pass k chunks of C bytes in a
row. B is the rate of the bytes, L NCCL's latency, l its launch, and `late` the
latency of one of the fabric's hops beyond NCCL's:

    turn       = slots / 8 * R + posts * M
    rings      t = max(L + S / B, bare * S / B + paced)
    paced        = max(L + hops * late, l + steps * (k * turn + m / b))
    trees      t = L + hops * late + fill + max((S - S') / B, (k - 1) * turn)
    exchanges  t = L + late + m / b + peers * peer
                 + max(S / B, (k - 1) * (R + m / b) / 8)

*Turns.* A connection has NCCL_STEPS = 8 slots. A chunk of a Simple ring takes
four, even if it is not full, so two are in flight at a time. Any other chunk
takes one, so eight are. On p5en, where R is 27 us, a step of an LL128 ring
takes 4.0 us and one of a Simple ring 15.8, on 4 nodes and on 16, even for few
bytes (channel_rows.py, which this was not fitted to); on Slingshot it is 8 to
10 and 39. Each GPU has one proxy thread, and channels leave a node at the A
GPUs that are beside adapters. So a thread serves NC / A channels, one message
after the other. A Simple ring sends a chunk in two messages, so `posts` is
2 NC / A. A tree sends a chunk to up to three neighbors. A message of m bytes,
which LL's flags double, moves at rate b.

*Rings* pass on one part, S / (n NC), in each of n - 1 steps (twice as many for
an all-reduce). The longest chain of steps is either that of a chunk around all
links, or all turns of one link. While one channel of a thread waits, the bytes
of its other channels move. So `bare`, the share of the bytes' time that adds to
the turns, is 1 / (NC / A), and 1/2 if the thread has one channel, which has two
chunks in flight.

*Trees*, and also sends, chains and PAT, pass chunks down a pipeline; only the
first chunk waits for all hops. Under Simple, a GPU passes a chunk on only when
it has all of it. Every GPU on the way copies each channel's first chunk, S'
bytes in all, those of a node one after the other. Each hop sends S', half of it
for each tree. During the fill, a GPU sends to only one of two neighbors. The
heads of an NVLSTree share a channel, with a chunk each. Their first chunks pass
all hops but one, and NVLS once.

*Exchanges* post messages to each peer on another node. The channels share the
peers, and the host pays for each peer.

*Bytes* move at NCCL's rate B times the fabric's efficiency, and never faster
than the channels copy (`path.handed_on`). If NVLink joins a node's GPUs, the
rate of Simple trees follows from the bytes that the busiest node sends. NCCL
splits the bytes over two trees, and a node sends a half to each neighbor: S on
two nodes, 1.5 S on three, and 2 S on four or more. NVLS within a node also
bounds the rate of an NVLSTree.

The fit has no rows of sends, broadcasts or PAT, nor of a fill with fewer
channels; their times are derived. Rates end in _gbps and mean 1e9 bytes per
second.
"""

from __future__ import annotations

import math

from lagom_xla import cluster as cluster_lib
from lagom_xla.costs import nccl
from lagom_xla.costs.wire import path as path_lib

# The buffer of a Simple ring's connection has room for two.
_CHUNKS_UNDER_WAY = 2
# Messages per chunk of a Simple ring (CHUNKSTEPS / SLICESTEPS, collectives.h).
_RING_SLICES = 2
# Relative to rings. The middle of measurements from 0.91 to 1.0: GB200 on three
# racks (NCCL's issue 1801), Snellius and Alps on two nodes, NVLSTrees on ten.
_TREE_EFFICIENCY = 0.95
# Neighbors of a tree's node on other nodes: a parent and two children.
_MOST_NEIGHBORS = 3
# NCCL splits the bytes evenly over its trees.
_NUM_TREES = 2
_LL_WIRE_BYTES = 2  # Each 4 bytes of data go with 4 of flag.


def time_us(
  call: path_lib.Call, fabric: path_lib.Fabric, path: path_lib.Path
) -> float:
  """Run time over a fabric."""
  channel_gbps = path.channel_gbps * call.channel_scale
  bytes_us = call.num_bytes / (1e3 * _gbps(call, fabric, channel_gbps))
  hops_us = call.nccl_latency_us + _late_us(call, fabric)
  moving_us = _moving_us(call, fabric)
  num_chunks = _num_chunks(call)
  if steps := _num_steps(call):
    turns_us = steps * (num_chunks * _turn_us(call, fabric) + moving_us)
    paced_us = max(hops_us, call.nccl_launch_us + turns_us)
    bare_us = bytes_us / max(_channels_of_a_thread(call), _CHUNKS_UNDER_WAY)
    return max(call.nccl_latency_us + bytes_us, paced_us + bare_us)
  if call.kind in nccl.SEND_RECV:
    queued_us = (num_chunks - 1) * (fabric.round_trip_us + moving_us)
    hops_us += moving_us + _num_peers(call) * fabric.peer_us
    return hops_us + max(bytes_us, queued_us / nccl.BUFFER_SLOTS)
  queued_us = (num_chunks - 1) * _turn_us(call, fabric)
  filled_us, share = _fill(call, bytes_us, channel_gbps)
  return hops_us + filled_us + max((1 - share) * bytes_us, queued_us)


def most_tree_gbps(
  cluster: cluster_lib.Cluster, communicator: nccl.Communicator, kind: str
) -> float:
  """The highest bytes of the buffer over time of a tree between nodes.

  0 if trees are assumed to be no faster than NCCL predicts.
  """
  nvlink = cluster.node.nvlink
  if kind != "all-reduce" or communicator.num_nodes == 1:
    return 0.0
  if nvlink is None or nvlink.topology == "pairs":
    return 0.0
  ring_gbps = _ring_gbps(cluster, communicator, kind)
  ranks = communicator.num_ranks
  adapters_gbps = ring_gbps * 2 * (ranks - 1) / ranks
  return adapters_gbps / _tree_passes(communicator.num_nodes)


def _ring_gbps(
  cluster: cluster_lib.Cluster, communicator: nccl.Communicator, kind: str
) -> float:
  """Bytes of the buffer over time that adapters carry in a Simple ring."""
  gbps = nccl.bandwidth_gbps(cluster, communicator, kind, "ring", "simple")
  if not nccl.crosses_cpus(cluster, communicator):
    return gbps
  # NCCL assumes 6 GB/s between CPUs, but Alps' rings fill its adapters.
  node, ranks = cluster.node, communicator.num_ranks
  adapters = node.num_nics * communicator.ranks_per_node / cluster.gpus_per_node
  adapters_gbps = adapters * node.nic_gbps / path_lib.MOST_EFFICIENCY
  steps = ranks
  if kind in path_lib.PARTED_KINDS:
    steps = (ranks - 1) * (2 if kind == "all-reduce" else 1)
  return max(gbps, adapters_gbps * ranks / steps)


def _tree_gbps(call: path_lib.Call) -> float:
  """Rate that adapters allow a Simple tree; 0 for other settings."""
  algorithm, protocol = call.setting.algorithm, call.setting.protocol
  if protocol != "simple" or algorithm not in ("tree", "nvlstree"):
    return 0.0
  cluster, communicator, kind = call.cluster, call.communicator, call.kind
  gbps = _TREE_EFFICIENCY * most_tree_gbps(cluster, communicator, kind)
  if algorithm == "tree":
    return gbps
  return min(gbps, _nvls_gbps(call))


def _tree_passes(num_nodes: int) -> float:
  """Times that the busiest node of NCCL's two trees sends the buffer."""
  return {2: 1.0, 3: 1.5}.get(num_nodes, 2.0)


def _gbps(
  call: path_lib.Call, fabric: path_lib.Fabric, channel_gbps: float
) -> float:
  """Bytes of the buffer over time."""
  node, setting = call.cluster.node, call.setting
  counted_gbps = min(node.nic_gbps, node.pcie_effective_gbps)
  share = min(
    fabric.nic_efficiency,
    fabric.pcie_efficiency * node.pcie_effective_gbps / counted_gbps,
  )
  if call.kind in nccl.SEND_RECV:
    share *= fabric.exchange_efficiency
  gbps = max(call.nccl_gbps, _tree_gbps(call))
  if (setting.algorithm, setting.protocol) == ("ring", "simple"):
    gbps = max(gbps, _ring_gbps(call.cluster, call.communicator, call.kind))
  handed_on = path_lib.handed_on(
    call.communicator, call.kind, setting.algorithm
  )
  return min(share * gbps, call.num_channels * channel_gbps / handed_on)


def _late_us(call: path_lib.Call, fabric: path_lib.Fabric) -> float:
  """Latency of the fabric's hops beyond NCCL's."""
  nccl_us = nccl.net_hop_us(
    call.cluster,
    call.communicator,
    call.kind,
    call.setting.algorithm,
    call.setting.protocol,
  )
  return _num_hops(call) * max(fabric.hop_us - nccl_us, 0.0)


def _turn_us(call: path_lib.Call, fabric: path_lib.Fabric) -> float:
  """Time that a chunk occupies the connection and its proxy thread."""
  setting = call.setting
  slots = nccl.chunk_slots(setting.algorithm, setting.protocol)
  return (
    fabric.round_trip_us * slots / nccl.BUFFER_SLOTS
    + _num_posts(call) * fabric.message_us
  )


def _part_bytes(call: path_lib.Call) -> float:
  """Bytes of a channel per step, of an NVLSTree's head, or to each peer."""
  if _num_peers(call):
    return call.num_bytes / call.num_ranks
  part_bytes = call.num_bytes / call.num_channels
  if _num_steps(call):
    part_bytes /= call.num_ranks
  if call.setting.algorithm == "nvlstree":
    part_bytes /= call.communicator.ranks_per_node
  return part_bytes


def _num_chunks(call: path_lib.Call) -> float:
  """Chunks that a channel passes in a row."""
  num_chunks = max(_part_bytes(call) / call.setting.chunk_bytes, 1.0)
  if num_peers := _num_peers(call):
    num_chunks *= num_peers / call.num_channels
  return max(num_chunks, 1.0)


def _moving_us(call: path_lib.Call, fabric: path_lib.Fabric) -> float:
  """Time that the bytes of one message take."""
  bytes_ = min(_part_bytes(call), call.setting.chunk_bytes)
  if call.setting.protocol == "simple" and _num_steps(call):
    bytes_ /= _RING_SLICES
  if call.setting.protocol == "ll":
    bytes_ *= _LL_WIRE_BYTES
  return bytes_ / (1e3 * fabric.message_gbps)


def _channels_of_a_thread(call: path_lib.Call) -> int:
  """The largest number of channels that leave the node at one GPU."""
  per_node = call.communicator.ranks_per_node
  adapters = call.cluster.node.num_nics * per_node // call.cluster.gpus_per_node
  return math.ceil(call.num_channels / max(min(per_node, adapters), 1))


def _num_posts(call: path_lib.Call) -> float:
  """Messages that a proxy thread posts for one chunk of each channel."""
  posts = _channels_of_a_thread(call)
  if not _num_steps(call):
    return posts * min(call.communicator.num_nodes - 1, _MOST_NEIGHBORS)
  return posts * (_RING_SLICES if call.setting.protocol == "simple" else 1)


def _fill(
  call: path_lib.Call, bytes_us: float, channel_gbps: float
) -> tuple[float, float]:
  """Time until the first chunks arrive, and their share of the bytes.

  The share is 0 if no hop waits for them.
  """
  setting, per_node = call.setting, call.communicator.ranks_per_node
  if setting.protocol != "simple" or "tree" not in setting.algorithm:
    return 0.0, 0.0
  hops, passes = _num_hops(call), _tree_passes(call.communicator.num_nodes)
  first_bytes = call.num_channels * setting.chunk_bytes
  if setting.algorithm == "nvlstree":
    share = min(per_node * first_bytes / call.num_bytes, 1.0)
    inside_us = share * call.num_bytes / (1e3 * _nvls_gbps(call))
    return (hops - 1) * share * bytes_us / passes + inside_us, 0.0
  share = min(first_bytes / call.num_bytes, 1.0)
  sent_us = share * bytes_us / passes / _NUM_TREES
  copied_us = share * call.num_bytes / (1e3 * call.num_channels * channel_gbps)
  copies = hops + 2 * (per_node - 1)
  return hops * sent_us + copies * copied_us, share


def _nvls_gbps(call: path_lib.Call) -> float:
  """Rate of NVLS within each node."""
  node = nccl.Communicator(
    num_ranks=call.communicator.ranks_per_node, num_nodes=1
  )
  return nccl.bandwidth_gbps(call.cluster, node, call.kind, "nvls", "simple")


def _num_peers(call: path_lib.Call) -> int:
  """Ranks on other nodes to which each rank sends its own messages."""
  if call.kind not in nccl.EXCHANGES:
    return 0
  return call.num_ranks - call.communicator.ranks_per_node


def _num_steps(call: path_lib.Call) -> int:
  """Consecutive steps on one connection; 0 in a pipeline."""
  if call.setting.algorithm != "ring" or call.kind not in path_lib.PARTED_KINDS:
    return 0
  return (call.num_ranks - 1) * (2 if call.kind == "all-reduce" else 1)


def _num_hops(call: path_lib.Call) -> int:
  """Hops between nodes that the last byte waits for."""
  nodes = call.communicator.num_nodes
  if call.setting.algorithm == "p2p":
    return 1
  both_ways = 2 if call.kind == "all-reduce" else 1
  if call.setting.algorithm == "ring":
    return both_ways * (nodes - 1)
  return both_ways * int(math.log2(nodes))
