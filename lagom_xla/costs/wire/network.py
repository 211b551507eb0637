# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""The time of a lone collective between nodes.

NCCL's latencies are those of a good InfiniBand, and its model takes the network
for a pipe. Yet a hop of another fabric takes longer, whatever the protocol, and
a message is an event of its own: a proxy thread posts it, the two sides match
it, and the receiver polls for it and flushes it to the GPU. That takes the
thread

    M = message + flush (Simple only)

For S bytes on n ranks and N nodes with NC channels and chunks of C bytes, k of
them in a row; B is the rate of the bytes, L NCCL's latency, and `late` what a
hop of the fabric takes beyond NCCL's:

    rings      t = L + max(S / B, max(hops * late, steps * (posts * M + m / b))
                                  + S / (2 B))
    trees      t = L + hops * late + max(S / B, (k - 1) * posts * M) + fill
    exchanges  t = L + late + M + m / b + peers * peer
                 + max(S / B, (k - 1) * (M + m / b) / 8)

Each GPU has one such thread, and channels leave a node at GPUs beside adapters:
of NC channels and A such GPUs a thread serves NC / A, one message after the
other. On Slingshot a step of LL takes 8 us on one channel, 10 on one for
each adapter and 20 on two, and one of Simple, which has twice the messages, 40,
whatever the nodes. A Simple ring's chunk goes in two messages, so `posts` of a
step are NC / A * 2 k of them. Those of a tree's chunk go to up to three
neighbours. A message of m bytes, which LL's flags double, moves at b.

*Rings* hand on one part, S / (n NC), in each of n - 1 steps (twice that for an
all-reduce), and each step waits for the one before: its messages on every link,
and those that its bytes pass on their way around, which hops are late for. Half
of a ring's bytes pass the adapters meanwhile: chosen among none, a quarter, a
half and two thirds.

*Trees*, and sends, chains and PAT, pass chunks down a pipeline; only the first
waits for all hops. Simple hands nothing on before a whole chunk has come, so
every hop of a tree but one *fills* with two rounds of chunks, one filled and
one drained (`path.CHUNKS_IN_FLIGHT`), of each channel that NCCL has, and each
GPU on the way within a node with a chunk, or NVLS with a round.
Meanwhile a GPU has one neighbour to send to, of two. The heads of an NVLSTree
share a channel, a chunk each, and fill with one round.

*Exchanges* post messages to each peer on another node, which the channels
share, and pay for each peer on the host. A connection's buffer has NCCL_STEPS =
8 slots, so 8 chunks of a slot each are posted at a time.

*Bytes* go at NCCL's rate B times what the fabric reaches of it; never faster
than the channels copy (`path.handed_on`). Where NVLink joins a node's GPUs, the
rate of Simple trees follows from what the busiest node sends, and of an
NVLSTree also from NVLS within a node: NCCL halves the bytes among two trees,
and a node sends a half to each neighbour, S on two nodes, 1.5 S on three, and
2 S from four on.

No row of the fit shows sends, broadcasts or PAT, or how fewer channels fill;
for them this is derived. Rates end in _gbps and mean 1e9 bytes per second.
"""

from __future__ import annotations

import math

from lagom_xla import cluster as cluster_lib
from lagom_xla.costs import nccl
from lagom_xla.costs.wire import path as path_lib

# Of the time of a ring's bytes on the adapters, what no message's wait hides.
_BARE_SHARE = 0.5
# Messages of a Simple ring's chunk (CHUNKSTEPS / SLICESTEPS, collectives.h).
_RING_SLICES = 2
# The middle of what is measured, 0.91 to 1.0 relative to rings: GB200 on three
# racks (NCCL's issue 1801), Snellius and Alps on two nodes, NVLSTrees on ten.
_TREE_EFFICIENCY = 0.95
# A tree's on other nodes: a parent and two children.
_MOST_NEIGHBOURS = 3
_LL_WIRE_BYTES = 2  # Each 4 bytes of data go with 4 of flag.


def time_us(
  call: path_lib.Call, fabric: path_lib.Fabric, path: path_lib.Path
) -> float:
  """Run time over a fabric."""
  channel_gbps = path.channel_gbps * call.channel_scale
  bytes_us = call.num_bytes / (1e3 * _gbps(call, fabric, channel_gbps))
  latency_us, hops_us = call.nccl_latency_us, _late_us(call, fabric)
  post_us, wire_us = _message_us(call, fabric)
  num_chunks = _num_chunks(call)
  if steps := _num_steps(call):
    step_us = num_chunks * _num_posts(call) * post_us + wire_us
    paced_us = max(hops_us, steps * step_us)
    return latency_us + max(bytes_us, paced_us + _BARE_SHARE * bytes_us)
  if call.kind in nccl.SEND_RECV:
    message_us = post_us + wire_us
    queued_us = (num_chunks - 1) * message_us / nccl.BUFFER_SLOTS
    hops_us += message_us + _num_peers(call) * fabric.peer_us
  else:
    queued_us = (num_chunks - 1) * _num_posts(call) * post_us
    hops_us += _fill_us(call, bytes_us, channel_gbps)
  return latency_us + hops_us + max(bytes_us, queued_us)


def most_tree_gbps(
  cluster: cluster_lib.Cluster, communicator: nccl.Communicator, kind: str
) -> float:
  """The most of a tree between nodes, of bytes of the buffer over time.

  0 where trees are not taken to be faster than NCCL says.
  """
  nvlink = cluster.node.nvlink
  if kind != "all-reduce" or communicator.num_nodes == 1:
    return 0.0
  if nvlink is None or nvlink.topology == "pairs":
    return 0.0
  ring_gbps = nccl.bandwidth_gbps(cluster, communicator, kind, "ring", "simple")
  ranks = communicator.num_ranks
  adapters_gbps = ring_gbps * 2 * (ranks - 1) / ranks
  return adapters_gbps / _tree_passes(communicator.num_nodes)


def _tree_gbps(call: path_lib.Call) -> float:
  """What a Simple tree reaches by its adapters; 0 for what is none."""
  algorithm, protocol = call.setting.algorithm, call.setting.protocol
  if protocol != "simple" or algorithm not in ("tree", "nvlstree"):
    return 0.0
  cluster, communicator, kind = call.cluster, call.communicator, call.kind
  gbps = _TREE_EFFICIENCY * most_tree_gbps(cluster, communicator, kind)
  if algorithm == "tree":
    return gbps
  return min(gbps, _nvls_gbps(call))


def _tree_passes(num_nodes: int) -> float:
  """How often the busiest node of NCCL's two trees sends the buffer."""
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
  handed_on = path_lib.handed_on(
    call.communicator, call.kind, setting.algorithm
  )
  return min(share * gbps, call.num_channels * channel_gbps / handed_on)


def _late_us(call: path_lib.Call, fabric: path_lib.Fabric) -> float:
  """What the fabric's hops take beyond NCCL's."""
  nccl_us = nccl.net_hop_us(
    call.cluster,
    call.communicator,
    call.kind,
    call.setting.algorithm,
    call.setting.protocol,
  )
  return _num_hops(call) * max(fabric.hop_us - nccl_us, 0.0)


def _part_bytes(call: path_lib.Call) -> float:
  """What a channel hands on in a step, a head of an NVLSTree, or to a peer."""
  if _num_peers(call):
    return call.num_bytes / call.num_ranks
  part_bytes = call.num_bytes / call.num_channels
  if _num_steps(call):
    part_bytes /= call.num_ranks
  if call.setting.algorithm == "nvlstree":
    part_bytes /= call.communicator.ranks_per_node
  return part_bytes


def _num_chunks(call: path_lib.Call) -> float:
  """How many a channel passes in a row."""
  num_chunks = max(_part_bytes(call) / call.setting.chunk_bytes, 1.0)
  if num_peers := _num_peers(call):
    num_chunks *= num_peers / call.num_channels
  return max(num_chunks, 1.0)


def _message_us(
  call: path_lib.Call, fabric: path_lib.Fabric
) -> tuple[float, float]:
  """What one message takes a proxy thread, and on the wire."""
  bytes_ = min(_part_bytes(call), call.setting.chunk_bytes)
  us = fabric.message_us
  if call.setting.protocol == "simple":
    us += fabric.flush_us
    if _num_steps(call):
      bytes_ /= _RING_SLICES
  if call.setting.protocol == "ll":
    bytes_ *= _LL_WIRE_BYTES
  return us, bytes_ / (1e3 * fabric.message_gbps)


def _num_posts(call: path_lib.Call) -> float:
  """Messages that a proxy thread has for a chunk of every channel."""
  per_node, nodes = (
    call.communicator.ranks_per_node,
    call.communicator.num_nodes,
  )
  adapters = call.cluster.node.num_nics * per_node // call.cluster.gpus_per_node
  threads = max(min(per_node, adapters), 1)
  posts = math.ceil(call.num_channels / threads)
  if not _num_steps(call):
    return posts * min(nodes - 1, _MOST_NEIGHBOURS)
  return posts * (_RING_SLICES if call.setting.protocol == "simple" else 1)


def _fill_us(
  call: path_lib.Call, bytes_us: float, channel_gbps: float
) -> float:
  """What hops of a tree wait for chunks that nothing is handed on of."""
  setting, per_node = call.setting, call.communicator.ranks_per_node
  if setting.protocol != "simple" or "tree" not in setting.algorithm:
    return 0.0
  most_channels = nccl.max_channels(
    call.cluster, call.communicator, setting.algorithm
  )
  round_bytes = most_channels * setting.chunk_bytes
  if setting.algorithm == "nvlstree":
    round_bytes *= per_node
    inside_us = min(round_bytes, call.num_bytes) / (1e3 * _nvls_gbps(call))
  else:
    chunk_bytes = min(setting.chunk_bytes, call.num_bytes / call.num_channels)
    inside_us = 2 * (per_node - 1) * chunk_bytes / (2e3 * channel_gbps)
    round_bytes *= path_lib.CHUNKS_IN_FLIGHT
  sent_us = bytes_us / _tree_passes(call.communicator.num_nodes)
  share = min(round_bytes / call.num_bytes, 1.0)
  return (_num_hops(call) - 1) * sent_us * share + inside_us


def _nvls_gbps(call: path_lib.Call) -> float:
  """What NVLS reaches within each node."""
  node = nccl.Communicator(
    num_ranks=call.communicator.ranks_per_node, num_nodes=1
  )
  return nccl.bandwidth_gbps(call.cluster, node, call.kind, "nvls", "simple")


def _num_peers(call: path_lib.Call) -> int:
  """Ranks on other nodes to which each rank sends messages of their own."""
  if call.kind not in nccl.EXCHANGES:
    return 0
  return call.num_ranks - call.communicator.ranks_per_node


def _num_steps(call: path_lib.Call) -> int:
  """Steps that wait for each other on one connection; 0 in a pipeline."""
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
