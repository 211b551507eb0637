# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""The time of a lone collective between nodes.

NCCL's latencies are those of a good InfiniBand, and its model takes the network
for a pipe. Yet a message is an event of its own: a proxy thread posts it, the
two sides match it, and the receiver polls for it and flushes it to the GPU. A
message of m bytes, which LL's flags double, takes a connection

    M = message + flush (Simple only) + m / b_message

and none starts before the one that it depends on has come. For S bytes on n
ranks and N nodes with NC channels and chunks of C bytes, k of them in a row; B
is the rate of the bytes, and L NCCL's latency:

    rings      t = L + max(S / B, hops * hop + S / (2 B)
                                  + steps * M * (1 + (k - 1) * slots / 8))
    trees      t = L + hops * (hop + M) + max(S / B, (k - 1) * M / 8) + fill
    exchanges  t = L + hop + M + peers * peer + max(S / B, (k - 1) * M / 8)

A connection's buffer has NCCL_STEPS = 8 slots, so 8 chunks of a slot each are
posted at a time; of Simple rings, whose chunks take 4 `slots` and go in two
messages, two are.

*Rings* hand on one part, S / (n NC), in each of n - 1 steps (twice that for an
all-reduce), and each step waits for the one before, on every link. Half of a
ring's bytes pass the adapters meanwhile: chosen among a third, a half and two
thirds.

*Trees*, and sends, chains and PAT, pass chunks down a pipeline; only the first
waits for all hops. Simple hands nothing on before a whole chunk has come, so
every hop of a tree but one *fills* with a round of chunks, one of each channel
that NCCL has, and each GPU on the way within a node with a chunk, or NVLS with
a round. The heads of an NVLSTree share a channel, a chunk each.

*Exchanges* post messages to each peer on another node, which the channels
share, and pay for each peer on the host.

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
_LL_WIRE_BYTES = 2  # Each 4 bytes of data go with 4 of flag.


def time_us(
  call: path_lib.Call, fabric: path_lib.Fabric, path: path_lib.Path
) -> float:
  """Run time over a fabric."""
  channel_gbps = path.channel_gbps * call.channel_scale
  bytes_us = call.num_bytes / (1e3 * _gbps(call, fabric, channel_gbps))
  message_us, num_messages = _messages(call, fabric)
  queued_us = (num_messages - 1) * message_us / _posted_messages(call)
  hops_us = _num_hops(call) * fabric.hop_us
  latency_us = call.nccl_latency_us
  steps = _num_steps(call)
  if steps:
    paced_us = hops_us + steps * (message_us + queued_us)
    return latency_us + max(bytes_us, paced_us + _BARE_SHARE * bytes_us)
  hops_us += _num_hops(call) * message_us
  return (
    latency_us
    + hops_us
    + _num_peers(call) * fabric.peer_us
    + _fill_us(call, bytes_us, channel_gbps)
    + max(bytes_us, queued_us)
  )


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


def _messages(
  call: path_lib.Call, fabric: path_lib.Fabric
) -> tuple[float, float]:
  """What one message takes, and how many a channel passes in a row."""
  part_bytes = call.num_bytes / call.num_channels
  if _num_steps(call):
    part_bytes /= call.num_ranks
  if call.setting.algorithm == "nvlstree":
    part_bytes /= call.communicator.ranks_per_node
  if num_peers := _num_peers(call):
    part_bytes = call.num_bytes / call.num_ranks
  bytes_ = min(part_bytes, call.setting.chunk_bytes)
  us = fabric.message_us
  if call.setting.protocol == "simple":
    us += fabric.flush_us
    if _num_steps(call):
      bytes_ /= _RING_SLICES
  if call.setting.protocol == "ll":
    bytes_ *= _LL_WIRE_BYTES
  num_messages = max(part_bytes / call.setting.chunk_bytes, 1.0)
  if num_peers:
    num_messages *= num_peers / call.num_channels
  return us + bytes_ / (1e3 * fabric.message_gbps), max(num_messages, 1.0)


def _posted_messages(call: path_lib.Call) -> float:
  """Of one connection, at a time: what fits its buffer."""
  if not _num_steps(call):
    return nccl.BUFFER_SLOTS
  setting = call.setting
  slots = nccl.chunk_slots(setting.algorithm, setting.protocol)
  return nccl.BUFFER_SLOTS / slots


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
    inside_us = 2 * (per_node - 1) * chunk_bytes / (1e3 * channel_gbps)
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
