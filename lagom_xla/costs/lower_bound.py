# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""The lower bound of a module's step time, for all orders and settings.

Four times bound the step under any settings of NCCL and any order of starts and
dones. Kernels run in sequence, none faster than alone. Collectives within nodes
share their links on all streams, so their bytes take at least the sum of their
times there; likewise those between nodes. The host copies of each direction
share the link to the host. A chain of dependent instructions takes the sum of
its kernels, collectives and copies. The longest of these is the bound:

    bound = max(sum of kernels, sums of collectives within nodes and between
                them, sums of copies to the host and from it, longest chain)

A loop, call or conditional blocks the compute stream, so it counts as a kernel
of the computation around it. A loop takes the bound of an iteration times its
trips, a conditional the bound of its fastest branch. Collectives awaited in
another computation count in the sums, but in no chain.

Links run at their data sheet rate, with the best algorithm and no latency. The
bound uses the predicted times of kernels, and has their errors. It holds for
one compiled module. With other options, or from another form of the program,
XLA may compile a faster one, with other kernels or with a loop's collectives
one iteration ahead.
"""

from __future__ import annotations

from collections.abc import Callable
import functools

from lagom_xla import cluster as cluster_lib
from lagom_xla.costs import collective as collective_lib
from lagom_xla.costs import nccl
from lagom_xla.costs import step as step_lib
from lagom_xla.costs import wire
from lagom_xla.passes import hlo


def us(*steps: step_lib.Step) -> float:
  """The bound of a step in microseconds; of several steps, the least.

  Each config compiles to another module, whose kernels can be faster than the
  default's, for example without Triton's matrix products.
  """
  return min(map(_us, steps))


def _us(step: step_lib.Step) -> float:
  bound = _Bound(step)
  entry_id = step.analysis.module.entry.id
  both = (True, False)
  moving_us = (bound.moving_us(entry_id, within=way) for way in both)
  copies_us = (bound.copying_us(to_host=way) for way in both)
  return max(bound.held_us(entry_id), *moving_us, *copies_us)


def links_us(
  key: collective_lib.TuningKey, cluster: cluster_lib.Cluster
) -> float:
  """Time of a collective's bytes on the links, in microseconds."""
  if key.num_ranks == 1 or not key.num_bytes:
    return 0.0
  gbps = max(
    nccl.bandwidth_gbps(
      cluster, key.communicator, key.kind, algorithm, protocol
    )
    for algorithm, protocol in nccl.candidates(
      cluster, key.communicator, key.kind
    )
  )
  gbps = max(gbps, wire.most_tree_gbps(cluster, key.communicator, key.kind))
  gbps *= wire.most_speedup(cluster, key.communicator)
  # Data sheet rate over the rate that NCCL assumes, at least 1.
  node, nvlink = cluster.node, cluster.node.nvlink
  if key.num_nodes > 1:
    share = wire.MOST_EFFICIENCY
  elif nvlink is None:
    share = max(node.pcie_gbps / node.pcie_effective_gbps, 1.0)
  else:
    share = max(nvlink.link_gbps / nvlink.link_effective_gbps, 1.0)
    multicasts = key.multicasts and nvlink.topology == "nvswitch"
    if key.kind == "all-reduce" and multicasts:
      # With multicast each GPU sends its array once. NCCL rounds down to one of
      # its speeds: it assumes 120 of an H800's 200 GB/s.
      gbps = max(gbps, nvlink.num_links * nvlink.link_gbps / share)
  return key.num_bytes / (1e3 * gbps * share)


class _Bound:
  """Bounds of a step's computations, each computed once."""

  def __init__(self, step: step_lib.Step):
    self._step = step
    self._links_us = {key: links_us(key, step.cluster) for key in step.keys}
    self.held_us = functools.cache(self._held_us)
    self.moving_us = functools.cache(self._moving_us)

  def copying_us(self, *, to_host: bool) -> float:
    """Time of the host copies of one direction on the link to the host."""
    return sum(
      copy.executions * collective_lib.host_copy_us(copy, self._step.cluster)
      for copy in self._step.analysis.host_copies
      if copy.to_host == to_host
    )

  def _held_us(self, computation_id: int) -> float:
    """Least time for which a computation blocks the compute stream."""
    computation = self._step.analysis.module.computations[computation_id]
    kernels_us = chain_us = 0.0
    collectives_us = dict.fromkeys((True, False), 0.0)
    ends_us: dict[int, float] = {}
    for instruction in computation.instructions:
      kernel_us = self._kernel_us(instruction)
      collective_us = 0.0
      for way in collectives_us:
        us = self._started_us(instruction, awaited=True, within=way)
        collectives_us[way] += us
        collective_us = max(collective_us, us)
      kernels_us += kernel_us
      needed = (*instruction.operand_ids, *instruction.control_predecessor_ids)
      begin_us = max((ends_us.get(i, 0.0) for i in needed), default=0.0)
      copy_us = self._copy_us(instruction)
      ends_us[instruction.id] = begin_us + kernel_us + collective_us + copy_us
      chain_us = max(chain_us, ends_us[instruction.id])
    return max(kernels_us, *collectives_us.values(), chain_us)

  def _moving_us(self, computation_id: int, *, within: bool) -> float:
    """Time of its collectives on the links within or between nodes."""
    called_us = functools.partial(self.moving_us, within=within)
    computation = self._step.analysis.module.computations[computation_id]
    return sum(
      self._started_us(instruction, awaited=False, within=within)
      + self._called_us(instruction, called_us)
      for instruction in computation.instructions
    )

  def _kernel_us(self, instruction: hlo.Instruction) -> float:
    analysis = self._step.analysis
    if instruction.id in analysis.kernels:
      return self._step.kernel_cost(analysis.kernels[instruction.id]).time_us
    return self._called_us(instruction, self.held_us)

  def _copy_us(self, instruction: hlo.Instruction) -> float:
    copy = self._step.analysis.copies.get(instruction.id)
    if copy is None:
      return 0.0
    if copy.is_bound_by_memory:
      return collective_lib.device_copy_us(copy, self._step.cluster)
    return collective_lib.host_copy_us(copy, self._step.cluster)

  def _called_us(
    self, instruction: hlo.Instruction, bound_us: Callable[[int], float]
  ) -> float:
    bounds_us = [
      bound_us(callee.id) * repeats
      for callee, repeats in self._step.analysis.callees(instruction)
    ]
    if instruction.opcode == "conditional":
      return min(bounds_us, default=0.0)
    return sum(bounds_us)

  def _started_us(
    self, instruction: hlo.Instruction, *, awaited: bool, within: bool
  ) -> float:
    """Time of an instruction's collectives on the links of one fabric.

    If `awaited`, only of those that its own computation awaits.
    """
    started = self._step.analysis.started_by.get(instruction.id, ())
    return sum(
      self._links_us[self._step.key_of[c.name]]
      for c in started
      if (self._step.key_of[c.name].num_nodes == 1) == within
      and (not awaited or c.form == "sync" or c.done_id is not None)
    )
