# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""The lower bound of a module's step time, in any order, with any settings.

Whatever settings NCCL gets and wherever XLA puts starts and dones, four things
bound the step. All kernels run one after the other, none faster than alone. All
collectives within nodes follow each other, none faster than its bytes on the
links, and so do all between nodes, whatever streams they run on. So do the host
copies of each direction, on the link to the host. And a chain of instructions,
each of which needs the one before, takes what its kernels, collectives and
copies take together. The longest of these is the bound:

    bound = max(sum of kernels, sums of collectives within nodes and between
                them, sums of copies to the host and from it, longest chain)

A loop, call or conditional holds the compute stream, so it is one more kernel
to the computation around it, as long as its own bound: each iteration's, times
the trips, and of a conditional the quickest branch's, whichever one is taken.
Collectives that another computation waits for bind no chain, only the sum.

Links are taken at their data sheet's rate, with the algorithm that makes the
most of them and no latency. The bound rests on the predicted times of kernels,
and has their errors. It is a bound of what XLA made of a program: with other
options, or in another form, XLA may make something quicker of it, with other
kernels, or with collectives of a loop one iteration ahead.
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
  """The bound of a step, in microseconds; of several, the least of theirs.

  Each config makes a module of its own: without Triton's matrix products, its
  kernels can be shorter than any setting makes the default's.
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
  # A link's data sheet rate over the rate that NCCL assumes, at least 1.
  node, nvlink = cluster.node, cluster.node.nvlink
  if key.num_nodes > 1:
    share = wire.MOST_EFFICIENCY
  elif nvlink is None:
    share = max(node.pcie_gbps / node.pcie_effective_gbps, 1.0)
  else:
    share = max(nvlink.link_gbps / nvlink.link_effective_gbps, 1.0)
    multicasts = key.multicasts and nvlink.topology == "nvswitch"
    if key.kind == "all-reduce" and multicasts:
      # By multicast each GPU sends its array once. NCCL counts in steps: on 120
      # of an H800's 200 GB/s.
      gbps = max(gbps, nvlink.num_links * nvlink.link_gbps / share)
  return key.num_bytes / (1e3 * gbps * share)


class _Bound:
  """Bounds of a step's computations, each found once."""

  def __init__(self, step: step_lib.Step):
    self._step = step
    self._links_us = {key: links_us(key, step.cluster) for key in step.keys}
    self.held_us = functools.cache(self._held_us)
    self.moving_us = functools.cache(self._moving_us)

  def copying_us(self, *, to_host: bool) -> float:
    """How long the host copies of one direction take on their link."""
    return sum(
      copy.executions * collective_lib.host_copy_us(copy, self._step.cluster)
      for copy in self._step.analysis.host_copies
      if copy.to_host == to_host
    )

  def _held_us(self, computation_id: int) -> float:
    """How long a computation holds the compute stream at least."""
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
    """How long its collectives take on the links within nodes or between."""
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
    """Collectives of one fabric that it starts; if asked, that are awaited."""
    started = self._step.analysis.started_by.get(instruction.id, ())
    return sum(
      self._links_us[self._step.key_of[c.name]]
      for c in started
      if (self._step.key_of[c.name].num_nodes == 1) == within
      and (not awaited or c.form == "sync" or c.done_id is not None)
    )
