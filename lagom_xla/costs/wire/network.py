# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""The time of a lone collective between nodes that InfiniBand does not join.

NCCL's latencies are InfiniBand's, and its model takes the network for a pipe.
Elsewhere a message is an event of its own: a proxy thread posts it through a
plugin (libfabric for EFA and Slingshot, sockets for TCPX), the two sides match
it, and the receiver polls for it and flushes it to the GPU. A message of m
bytes, which LL's flags double, then takes a connection

    M = message + flush (Simple only) + m / b_message

and none starts before the one that it depends on has come. What that means for
a collective depends on its dependences, for S bytes on n ranks and N nodes with
NC channels and chunks of C bytes; L is NCCL's latency:

    rings   t = L + max(S / (e B), hops * hop + steps * M * (1 + (k - 1) / 8))
    others  t = L + hops * (hop + M) + max(S / (e B), (k - 1) * M / 8)

*Rings* hand on one part, S / (n NC), in each of n - 1 steps (twice that for an
all-reduce), and each step waits for the one before. The connection between two
nodes passes a message in every step, not only in the N - 1 that NCCL counts as
hops, so many ranks on few bytes are bound by messages and not by bytes: rings
over Slingshot take about as long for 8 MiB as for 2 on two nodes of Polaris,
and for 32 MiB as for 8 on eight.

*Trees*, and sends, chains and PAT, pass chunks down a pipeline; only the first
waits for all hops. k is the number of chunks, of which NCCL keeps NCCL_STEPS =
8 posted. An all-to-all posts a message, or several, to each peer.

*Bytes* go at NCCL's rate B times e, the lesser of what adapters reach and what
PCIe brings them; never faster than the channels copy. Between two nodes each
adapter carries a tree's bytes once in each direction, so a tree runs at the
adapters' rate times 0.92, NCCL's factor for trees; NCCL itself takes it to be
slower.

No row of the fit shows sends, broadcasts or PAT; for them this is derived.

Rates end in _gbps and mean 1e9 bytes per second.
"""

from __future__ import annotations

import math

from lagom_xla import cluster as cluster_lib
from lagom_xla.costs import nccl
from lagom_xla.costs.wire import call as call_lib
from lagom_xla.costs.wire import fabric as fabric_lib

_RING_KINDS = ("all-reduce", "all-gather", "reduce-scatter")
# NCCL_STEPS (src/include/device.h).
_POSTED_MESSAGES = 8
# Of a tree's links, in NCCL's model (src/tuning/tree.cc).
_TREE_EFFICIENCY = 0.92
_LL_WIRE_BYTES = 2  # Each 4 bytes of data go with 4 of flag.


def time_us(
  call: call_lib.Call, fabric: fabric_lib.Fabric, channel_gbps: float
) -> float:
  """Run time over a fabric; `channel_gbps` is what one channel copies."""
  bytes_us = call.num_bytes / (1e3 * _gbps(call, fabric, channel_gbps))
  message_us, num_messages = _messages(call, fabric)
  queued = (num_messages - 1) / _POSTED_MESSAGES
  hops_us = _num_hops(call) * fabric.hop_us
  steps = _num_steps(call)
  latency_us = call.nccl_latency_us
  if steps:
    paced_us = hops_us + steps * message_us * (1 + queued)
    return latency_us + max(bytes_us, paced_us)
  hops_us += _num_hops(call) * message_us
  return latency_us + hops_us + max(bytes_us, queued * message_us)


def most_tree_gbps(
  cluster: cluster_lib.Cluster, communicator: nccl.Communicator, kind: str
) -> float:
  """The most of a tree between two nodes, of bytes of the buffer over time.

  0 where trees are not taken to be faster than NCCL says.
  """
  if fabric_lib.fitted_fabric(cluster.node.fabric) is None:
    return 0.0
  return _tree_gbps(cluster, communicator, kind)


def _tree_gbps(
  cluster: cluster_lib.Cluster, communicator: nccl.Communicator, kind: str
) -> float:
  if communicator.num_nodes != 2 or kind != "all-reduce":
    return 0.0
  ring_gbps = nccl.bandwidth_gbps(cluster, communicator, kind, "ring", "simple")
  ranks = communicator.num_ranks
  return _TREE_EFFICIENCY * ring_gbps * 2 * (ranks - 1) / ranks


def _gbps(
  call: call_lib.Call, fabric: fabric_lib.Fabric, channel_gbps: float
) -> float:
  """Bytes of the buffer over time."""
  node = call.cluster.node
  counted_gbps = min(node.nic_gbps, node.pcie_effective_gbps)
  share = min(
    fabric.nic_efficiency,
    fabric.pcie_efficiency * node.pcie_effective_gbps / counted_gbps,
  )
  sent_bytes = call_lib.sent_bytes(
    call.communicator, call.kind, call.num_bytes, call.setting.algorithm
  )
  gbps = call.nccl_gbps
  if call.setting.algorithm == "tree":
    gbps = max(gbps, _tree_gbps(call.cluster, call.communicator, call.kind))
  copied_gbps = call.num_channels * channel_gbps * call.num_bytes / sent_bytes
  return min(share * gbps, copied_gbps)


def _messages(
  call: call_lib.Call, fabric: fabric_lib.Fabric
) -> tuple[float, float]:
  """What one message takes, and how many a connection passes in a row."""
  part_bytes = call.num_bytes / call.num_channels
  if _num_steps(call):
    part_bytes /= call.num_ranks
  num_peers = 1
  if call.kind == "all-to-all":
    num_peers = call.num_ranks - call.communicator.ranks_per_node
    part_bytes = call.num_bytes / call.num_ranks
  bytes_ = min(part_bytes, call.setting.chunk_bytes)
  us = fabric.message_us
  if call.setting.protocol == "simple":
    us += fabric.flush_us
  if call.setting.protocol == "ll":
    bytes_ *= _LL_WIRE_BYTES
  num_chunks = max(part_bytes / call.setting.chunk_bytes, 1.0)
  return us + bytes_ / (1e3 * fabric.message_gbps), num_peers * num_chunks


def _num_steps(call: call_lib.Call) -> int:
  """Steps that wait for each other on one connection; 0 in a pipeline."""
  if call.setting.algorithm != "ring" or call.kind not in _RING_KINDS:
    return 0
  return (call.num_ranks - 1) * (2 if call.kind == "all-reduce" else 1)


def _num_hops(call: call_lib.Call) -> int:
  """Hops between nodes that the last byte waits for."""
  nodes = call.communicator.num_nodes
  if call.setting.algorithm == "p2p":
    return 1
  both_ways = 2 if call.kind == "all-reduce" else 1
  if call.setting.algorithm == "ring":
    return both_ways * (nodes - 1)
  return both_ways * int(math.log2(nodes))
