# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Routes: collectives that bypass NCCL's tuner, and their costs.

With some XLA options, collectives do not run in kernels that a tuner can set.
`Asked` has the effects of these options that no schedule shows. NCCL decides
the rest (src/enqueue.cc and src/ce_coll.cc, 2.30.7):

*Copy engines* run all-gathers in communicators whose policy is to take no SM.
XLA asks for that policy if async collectives are at least as many as sync ones,
or as large (ShouldCollectiveUseMinimalResource in gpu_executable.cc). On
Blackwell they also run without it, above 8 Mi elements per rank. They write a
rank's part to each other rank, between two barriers, one array after the other:

    t = arrays * 2 * barrier + max(others' bytes / copy rate,
                                   own bytes / own rate)

*Symmetric kernels* run all other kinds in an NVLink domain (`nccl.symmetric`).

*Between nodes*, from 2.30.7 on, if the fabric has RDMA (InfiniBand, RoCE),
proxies put a rank's part to its peers on other nodes. Copy engines distribute
the arriving parts, and wait for each peer in turn:

    t = barriers + hop + message
        + max(network, hand-outs) + the last hand-out

All other collectives between nodes run in kernels that a tuner can set.

*Copies within a process* exchange data like copy engines, with one barrier.

*Puts within a process* run all-gathers that XLA marks for them
(RunOneSidedAllGather in all_gather_thunk.cc). A rank signals to and waits for
one peer after the other, puts its part to all (ncclPutSignal, by copy engines),
and then copies its own part by a plain memcpy:

    t = (ranks - 1) * signal + others' bytes / copy rate
        + 2 * own bytes / memory rate

All-gathers by copy engines within an NVLink domain and symmetric kernels were
measured (docs/comparison.md). For the other routes only rates are published, so
their gain is not certain (`scenario.SURE`).

A copy reads and writes memory once. On every GPU, the switch writes the bytes
that it multicasts, and reads those that it reduces. Names that end in _gbps are
in 1e9 bytes per second.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
import dataclasses
from typing import Literal

from lagom_xla import cluster as cluster_lib
from lagom_xla.costs import collective as collective_lib
from lagom_xla.costs import nccl
from lagom_xla.costs import wire
from lagom_xla.costs.nccl import symmetric
from lagom_xla.passes import collectives as collectives_lib

# Least NCCL versions for windows with a policy, for copies that overlap kernels
# (Megatron-Bridge#3391), and for taking no SM between nodes.
LEAST_NCCL = (2, 28)
OVERLAPPING_NCCL = (2, 30)
BETWEEN_NODES_NCCL = (2, 30, 7)

# cudaMemcpyBatchAsync without an SM copies 32 MB to a peer at 354 GiB/s, over
# NVLinks of 450 GB/s, and within a GPU at 87 GiB/s (nccl#2177, CUDA 13.2).
# Neither is published for other links, so both scale with the links.
_LINK_SHARE = 354 * 2**30 / 1e9 / 450
_OWN_SHARE = 87 * 2**30 / 1e9 / 450
# A memcpy of one byte to a peer, alone and in a batch (torchcomms#2195, H100).
# A barrier is a memcpy to a multicast address, or a batch of them, and a wait.
_BARRIER_US = 3.55
_BATCH_US = 2.30
# NCCL_SYM_CE_THRESHOLD, which NCCL compares with elements, not bytes.
_BLACKWELL_COPIES_ABOVE = 8 * 2**20
# HIER_COLL_MAX_CHUNK_SIZE.
_CHUNK_BYTES = 64 * 2**20
_RDMA_FABRICS = ("infiniband", "roce")

# Types that NCCL has the switch add up (hasLDMC in src/sym_kernels.cc).
_SWITCH_TYPES = ("bf16", "f16", "f32", "f64")
_SWITCH_TYPES_OF_BLACKWELL = (*_SWITCH_TYPES, "f8e4m3fn", "f8e5m2")
# Types that symmetric kernels reduce (ncclSymkImplemented).
_REDUCED_TYPES = ("bf16", "f16", "f32", "f8e4m3fn", "f8e5m2")

By = Literal["copy engines", "symmetric kernel"]
# What runs a collective: a kernel that NCCL tunes, or a replacement.
RunBy = Literal["NCCL", "XLA kernel", "copy engines", "symmetric kernel"]


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Asked:
  """Effects of XLA's options on a process that no schedule shows.

  Attributes:
    symmetric: (kind, most bytes) for each kind whose buffers are NCCL windows,
      up to these bytes.
    asks_for_no_sm: whether communicators may get the policy to take no SM.
    copies_locally: whether GPUs of one process exchange data by memcpys.
    permutes_apart: whether permutes have communicators of only the ranks that
      exchange data.
    nccl_version: version of the NCCL that runs the collectives.
  """

  symmetric: tuple[tuple[str, int], ...] = ()
  asks_for_no_sm: bool = False
  copies_locally: bool = False
  permutes_apart: bool = False
  nccl_version: tuple[int, ...] = BETWEEN_NODES_NCCL


NOTHING = Asked()


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Route:
  """The replacement for a kernel that NCCL tunes.

  Attributes:
    by: the kind of kernel or engine that moves the bytes.
    name: name of the kernel in NCCL's log; "" for copies.
    cost: cost of the collective alone.
    is_measured: whether anyone measured such collectives, not only the rates in
      their cost.
  """

  by: By
  name: str = ""
  cost: collective_lib.CollectiveCost
  is_measured: bool = True


def of_step(
  found: Sequence[tuple[collective_lib.TuningKey, collectives_lib.Collective]],
  cluster: cluster_lib.Cluster,
  asked: Asked,
  max_channels: int | None,
  num_devices: int,
) -> Mapping[collective_lib.TuningKey, Route]:
  """The routes of keys whose collectives all take one.

  `found` and `num_devices` are the collectives and devices of a step. If a key
  has several routes, the slowest counts.
  """
  is_marked = any(collective.memory for _, collective in found)
  if not (asked.symmetric or asked.copies_locally or is_marked):
    return {}
  takes_no_sm = asked.asks_for_no_sm and _is_mostly_async(c for _, c in found)
  by_key: dict[collective_lib.TuningKey, list[Route | None]] = {}
  is_local = (
    asked.permutes_apart or cluster.num_processes_of(range(num_devices)) == 1
  )
  for key, collective in found:
    if collective.kind == "collective-permute" and not is_local:
      route = None
    else:
      route = _of_collective(
        key, collective, cluster, asked, takes_no_sm, max_channels
      )
    by_key.setdefault(key, []).append(route)
  chosen = {}
  for key, routes in by_key.items():
    own_routes = [route for route in routes if route is not None]
    if len(own_routes) == len(routes):
      chosen[key] = max(own_routes, key=lambda route: route.cost.time_us)
  return chosen


def window_bytes(
  found: Iterable[tuple[collective_lib.TuningKey, collectives_lib.Collective]],
  asked: Asked,
) -> int:
  """Bytes of the largest collective's windows: the minimum for a step.

  Operands and results in windows are allocated outside JAX's pool. Only XLA's
  buffer assignment knows how many are live at a time.
  """
  return max(
    (
      collective.operand_bytes + collective.result_bytes
      for key, collective in found
      if collective.memory == "symmetric" or _is_symmetric(key, asked)
    ),
    default=0,
  )


def _is_mostly_async(
  collectives: Iterable[collectives_lib.Collective],
) -> bool:
  """XLA's rule for communicators that take no SM."""
  num, num_bytes = {"async": 0, "sync": 0}, {"async": 0, "sync": 0}
  for collective in collectives:
    num[collective.form] += 1
    num_bytes[collective.form] += collective.result_bytes
  return num["async"] >= num["sync"] or num_bytes["async"] >= num_bytes["sync"]


def _is_symmetric(
  key: collective_lib.TuningKey,
  asked: Asked,
) -> bool:
  return any(
    key.kind == kind and key.num_bytes <= most_bytes
    for kind, most_bytes in asked.symmetric
  )


def _of_collective(
  key: collective_lib.TuningKey,
  collective: collectives_lib.Collective,
  cluster: cluster_lib.Cluster,
  asked: Asked,
  takes_no_sm: bool,
  max_channels: int | None,
) -> Route | None:
  if key.num_ranks < 2 or not key.num_bytes:
    return None
  if not symmetric.is_available(cluster):
    return None
  spans_processes = any(
    cluster.num_processes_of(group) > 1 for group in collective.groups
  )
  is_permute = collective.kind == "collective-permute"
  is_copied = asked.copies_locally or (is_permute and collective.memory)
  if is_copied and key.kind in nccl.SEND_RECV:
    if collective.kind in ("send", "recv") or spans_processes:
      return None
    return _of_local_copies(key, collective, cluster)
  is_put = collective.memory == "symmetric" and not spans_processes
  if is_put and key.kind == "all-gather":
    return _by_puts(key, collective, cluster)
  if asked.nccl_version < LEAST_NCCL or not _is_symmetric(key, asked):
    return None
  if key.num_nodes > 1:
    is_copied = (
      takes_no_sm
      and key.kind == "all-gather"
      and asked.nccl_version >= BETWEEN_NODES_NCCL
      and cluster.node.fabric in _RDMA_FABRICS
    )
    return _between_nodes(key, collective, cluster) if is_copied else None
  gpu = cluster.gpu
  if key.kind == "all-gather":
    count = key.num_bytes / key.num_ranks / _element_bytes(collective)
    is_large = count > _BLACKWELL_COPIES_ABOVE
    if takes_no_sm or (is_large and gpu.compute_capability >= (10, 0)):
      return _by_copies(key, collective, cluster, asked)
  elif collective.element_type not in _REDUCED_TYPES:
    return None
  return _by_kernel(key, collective, cluster, max_channels)


def _copy_gbps(cluster: cluster_lib.Cluster) -> float:
  nvlink = cluster.node.nvlink
  assert nvlink is not None
  return _LINK_SHARE * nvlink.num_links * nvlink.link_gbps


def _by_copies(
  key: collective_lib.TuningKey,
  collective: collectives_lib.Collective,
  cluster: cluster_lib.Cluster,
  asked: Asked,
) -> Route:
  part_bytes = key.num_bytes / key.num_ranks
  time_us = collective.num_operands * (2 * _BARRIER_US + _BATCH_US) + max(
    (key.num_bytes - part_bytes) / (1e3 * _copy_gbps(cluster)),
    part_bytes / (1e3 * _OWN_SHARE / _LINK_SHARE * _copy_gbps(cluster)),
  )
  # Copies that do not overlap kernels count as if they took all SMs.
  overlaps = asked.nccl_version >= OVERLAPPING_NCCL
  num_channels = 0 if overlaps else cluster.gpu.num_sms
  return _copied(key, time_us, num_channels, is_measured=True)


def _by_puts(
  key: collective_lib.TuningKey,
  collective: collectives_lib.Collective,
  cluster: cluster_lib.Cluster,
) -> Route:
  part_bytes = key.num_bytes / key.num_ranks
  return _copied(
    key,
    (key.num_ranks - 1) * _BARRIER_US
    + collective.num_operands * _BATCH_US
    + (key.num_bytes - part_bytes) / (1e3 * _copy_gbps(cluster))
    + 2 * part_bytes / (1e3 * cluster.gpu.hbm_gbps),
  )


def _copied(
  key: collective_lib.TuningKey,
  time_us: float,
  num_channels: int = 0,
  *,
  is_measured: bool = False,
) -> Route:
  return Route(
    by="copy engines",
    is_measured=is_measured,
    cost=collective_lib.CollectiveCost(
      time_us=time_us,
      num_channels=num_channels,
      memory_gbps=2 * key.num_bytes / (1e3 * time_us),
    ),
  )


def _by_kernel(
  key: collective_lib.TuningKey,
  collective: collectives_lib.Collective,
  cluster: cluster_lib.Cluster,
  max_channels: int | None,
) -> Route:
  is_blackwell = cluster.gpu.compute_capability >= (10, 0)
  types = _SWITCH_TYPES_OF_BLACKWELL if is_blackwell else _SWITCH_TYPES
  chosen = symmetric.kernel(
    cluster,
    key.kind,
    key.num_ranks,
    key.num_bytes,
    reduces_in_switch=collective.element_type in types,
    num_arrays=collective.num_operands,
    max_ctas=max_channels,
  )
  # One side reads or writes a rank's part, the other the whole array; an
  # all-reduce reads and writes the whole array.
  touched_bytes = key.num_bytes * (1 + 1 / key.num_ranks)
  if key.kind == "all-reduce":
    touched_bytes = 2 * key.num_bytes
  return Route(
    by="symmetric kernel",
    name=chosen.name,
    cost=collective_lib.CollectiveCost(
      time_us=chosen.time_us,
      num_channels=chosen.num_ctas,
      memory_gbps=touched_bytes / (1e3 * chosen.time_us),
    ),
  )


def _between_nodes(
  key: collective_lib.TuningKey,
  collective: collectives_lib.Collective,
  cluster: cluster_lib.Cluster,
) -> Route:
  node = cluster.node
  fabric = wire.fabric_of(cluster, None)
  num_peers = key.num_nodes - 1
  local_ranks = key.num_ranks // key.num_nodes
  part_bytes = key.num_bytes / key.num_ranks
  adapter_gbps = fabric.nic_efficiency * min(
    node.nic_gbps * node.num_nics / cluster.gpus_per_node,
    node.pcie_effective_gbps,
  )
  handed_out_us = (local_ranks - 1) / (1e3 * _copy_gbps(cluster))
  network_us = num_peers * (part_bytes / (1e3 * adapter_gbps) + fabric.peer_us)
  hand_outs_us = key.num_nodes * (_BATCH_US + handed_out_us * part_bytes)
  last_us = _BATCH_US + handed_out_us * min(part_bytes, _CHUNK_BYTES)
  array_us = 3 * _BARRIER_US + fabric.hop_us + fabric.message_us
  time_us = (
    collective.num_operands * array_us + max(network_us, hand_outs_us) + last_us
  )
  return _copied(key, time_us)


def _of_local_copies(
  key: collective_lib.TuningKey,
  collective: collectives_lib.Collective,
  cluster: cluster_lib.Cluster,
) -> Route | None:
  sent_bytes = float(key.num_bytes)
  if key.kind == "all-to-all":
    sent_bytes *= 1 - 1 / key.num_ranks
  elif key.kind != "collective-permute":
    return None
  time_us = (
    _BARRIER_US
    + collective.num_operands * _BATCH_US
    + sent_bytes / (1e3 * _copy_gbps(cluster))
  )
  return _copied(key, time_us)


def _element_bytes(collective: collectives_lib.Collective) -> float:
  bits = "".join(
    c for c in collective.element_type.split("e")[0] if c.isdigit()
  )
  return max(int(bits or 8), 8) / 8
