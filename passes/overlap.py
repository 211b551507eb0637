# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Overlaps: the kernels that run between each collective's start and done.

The unit of Lagom (arXiv 2602.20656, section 3.1) is an *overlap*: M kernels in
sequence on the compute stream, beside N collectives in sequence on the
communication stream. In a schedule, the window of an async collective lasts
from its start to its done. Collectives with intersecting windows share kernels
or follow each other on the communication stream, so they are tuned together: an
overlap is a maximal chain of intersecting windows in one computation, with the
kernels inside, also those of a loop, call or branch.

Collectives whose window holds no kernel form overlaps with M = 0; they are
fully exposed.

Another schedule of the same module launches mostly the same kernels, which are
not analyzed again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
import dataclasses
import functools

from lagom_xla.passes import collectives as collectives_lib
from lagom_xla.passes import copies as copies_lib
from lagom_xla.passes import hlo
from lagom_xla.passes import kernels as kernels_lib


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Overlap:
  """M kernels beside N collectives.

  Attributes:
    computation_id: id of the computation whose schedule it is part of.
    begin: position of its first start in that schedule.
    end: position after its last done.
    collectives: in the order of their starts.
    kernels: in schedule order; kernels of nested loops are listed once.
    executions: times it runs per step.
  """

  computation_id: int
  begin: int
  end: int
  collectives: tuple[collectives_lib.Collective, ...]
  kernels: tuple[kernels_lib.Kernel, ...]
  executions: int


@dataclasses.dataclass(frozen=True)
class Analysis:
  """A module with its collectives, kernels and overlaps.

  Attributes:
    module: a scheduled module.
    collectives: all collectives that run.
    num_streams: communication streams per domain.
  """

  module: hlo.Module
  collectives: tuple[collectives_lib.Collective, ...]
  num_streams: int = 1

  @functools.cached_property
  def started_by(self) -> Mapping[int, tuple[collectives_lib.Collective, ...]]:
    """Collectives by the id of the instruction that starts them."""
    started: dict[int, tuple[collectives_lib.Collective, ...]] = {}
    for collective in self.collectives:
      others = started.get(collective.start_id, ())
      started[collective.start_id] = (*others, collective)
    return started

  @functools.cached_property
  def awaited_by(self) -> Mapping[int, tuple[collectives_lib.Collective, ...]]:
    """Async collectives by the id of the instruction that waits for them."""
    return {
      c.done_id: self.started_by[c.start_id]
      for c in self.collectives
      if c.done_id is not None and c.form == "async"
    }

  @functools.cached_property
  def kernels(self) -> Mapping[int, kernels_lib.Kernel]:
    """All kernels that run, by instruction id, in schedule order."""
    module = self.module
    return {
      instruction.id: kernels_lib.of_instruction(
        module, computation, instruction
      )
      for computation in module.sequences
      for instruction in computation.instructions
      if instruction.id not in self.copies
      and kernels_lib.launches_kernel(module, instruction)
    }

  @property
  def gemm_flops(self) -> int:
    """FLOPs of a device's matrix products in a step, over all loop trips.

    Includes convolutions, but not fused attention.
    """
    return sum(
      kernel.executions * kernel.flops
      for kernel in self.kernels.values()
      if kernel.category in ("gemm", "convolution")
    )

  @functools.cached_property
  def copies(self) -> Mapping[int, copies_lib.Copy]:
    """Copies beside kernels by the id of the instruction that starts them."""
    return copies_lib.find(self.module, apart=self.started_by)

  @functools.cached_property
  def awaited_copies(self) -> Mapping[int, copies_lib.Copy]:
    """These copies by the id of the instruction that waits for them."""
    copies = self.copies.values()
    return {c.done_id: c for c in copies if c.done_id is not None}

  @property
  def host_copies(self) -> tuple[copies_lib.Copy, ...]:
    """The copies to and from the host's memory."""
    return tuple(c for c in self.copies.values() if not c.is_bound_by_memory)

  def callees(
    self, instruction: hlo.Instruction
  ) -> Iterator[tuple[hlo.Computation, int]]:
    """Computations that it runs on the compute stream, and how often each."""
    as_one = (self.started_by, self.copies, self.kernels)
    if not any(instruction.id in found for found in as_one):
      yield from self.module.callees(instruction)

  @property
  def sequences(self) -> tuple[hlo.Computation, ...]:
    """The computations that run as sequences of kernels."""
    return self.module.sequences

  @functools.cached_property
  def kernels_beside(self) -> Mapping[int, tuple[kernels_lib.Kernel, ...]]:
    """The kernels between start and done, by the id of the start."""
    by_name = {computation.name: computation for computation in self.sequences}
    beside: dict[int, tuple[kernels_lib.Kernel, ...]] = {}
    for collective in self.collectives:
      beside[collective.start_id] = ()
      if collective.form == "async":
        computation = by_name[collective.computation]
        window = _window(computation, collective)
        beside[collective.start_id] = self._kernels_in(computation, *window)
    return beside

  @functools.cached_property
  def overlaps(self) -> tuple[Overlap, ...]:
    """The overlaps of the module, in schedule order."""
    return tuple(
      Overlap(
        computation_id=computation.id,
        begin=begin,
        end=end,
        collectives=tuple(chain),
        kernels=self._kernels_in(computation, begin, end),
        executions=self.module.executions[computation.id],
      )
      for computation in self.sequences
      for begin, end, chain in self._chains(computation)
    )

  def _chains(
    self, computation: hlo.Computation
  ) -> list[tuple[int, int, list[collectives_lib.Collective]]]:
    """Chains of collectives whose windows intersect, with begin and end."""
    chains: list[tuple[int, int, list[collectives_lib.Collective]]] = []
    for instruction in computation.instructions:  # In the order of starts.
      for collective in self.started_by.get(instruction.id, ()):
        if collective.form != "async":
          continue
        begin, end = _window(computation, collective)
        if chains and begin < chains[-1][1]:
          first, last, chain = chains[-1]
          chain.append(collective)
          chains[-1] = first, max(last, end), chain
        else:
          chains.append((begin, end, [collective]))
    return chains

  def _kernels_in(
    self, computation: hlo.Computation, begin: int, end: int
  ) -> tuple[kernels_lib.Kernel, ...]:
    found: list[kernels_lib.Kernel] = []
    for instruction in computation.instructions[begin:end]:
      if instruction.id in self.kernels:
        found.append(self.kernels[instruction.id])
      for callee, repeats in self.callees(instruction):
        if repeats:
          found += self._kernels_in(callee, 0, len(callee.instructions))
    return tuple(found)


def analyze(module: hlo.Module, *, num_streams: int = 1) -> Analysis:
  """Finds the collectives, kernels and overlaps of a scheduled module.

  `num_streams` is XLA's number of communication streams per domain, which a
  module does not contain.
  """
  found = collectives_lib.find(module)
  placed = collectives_lib.on_streams(module, found, num_streams)
  return Analysis(module, placed, num_streams)


def _window(
  computation: hlo.Computation, collective: collectives_lib.Collective
) -> tuple[int, int]:
  """The position of a start, and the position after its done.

  If another computation waits for the collective (pipelined over a loop), its
  window ends with the computation.
  """
  begin = computation.position[collective.start_id]
  if collective.done_id is None:
    return begin, len(computation.instructions)
  return begin, computation.position[collective.done_id] + 1
