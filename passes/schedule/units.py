# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Units of a loop's body: its kernels and collectives, of two strands.

A unit is the id of an instruction that launches a kernel or starts collectives.
What must come before what is told by dependences and by buffers.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
import functools

from lagom_xla.passes import dependencies
from lagom_xla.passes import hlo
from lagom_xla.passes import overlap
from lagom_xla.passes.schedule import aliasing
from lagom_xla.passes.schedule import orders
from lagom_xla.passes.schedule import strands as strands_lib


class Body:
  """A loop's body: what it runs, and what must come before what."""

  def __init__(self, analysis: overlap.Analysis, computation: hlo.Computation):
    self._module = analysis.module
    self._computation = computation
    self._started_by = analysis.started_by
    self._units = [
      i.id
      for i in computation.instructions
      if i.id in analysis.kernels or i.id in analysis.started_by
    ]
    self._bit_of = {unit: 1 << at for at, unit in enumerate(self._units)}

  @functools.cached_property
  def _before(self) -> dict[int, tuple[int, ...]]:
    buffers = aliasing.of(self._module)
    return orders.predecessors(self._computation, buffers)

  @functools.cached_property
  def _needs(self) -> dict[int, int]:
    needs: dict[int, int] = {}
    for instruction in self._computation.instructions:
      needs[instruction.id] = 0
      for before in self._before[instruction.id]:
        needs[instruction.id] |= needs[before] | self._bit_of.get(before, 0)
    return needs

  def is_collective(self, unit: int) -> bool:
    """Whether a unit starts collectives."""
    return unit in self._started_by

  def needs(self, unit: int, other: int) -> bool:
    """Whether a unit must come after another."""
    return bool(self._needs[unit] & self._bit_of[other])

  def strands(self) -> tuple[list[int], list[int]] | None:
    """The units of the two strands, in XLA's order.

    A collective that both need, as of their layer's weights, counts as one of
    the strand that needs it first.
    """
    strand_of = strands_lib.in_body(self._computation)
    members: dict[int, list[int]] = {}
    for at, unit in enumerate(self._units):
      strand = strand_of.get(unit)
      if strand is None and self.is_collective(unit):
        users = (u for u in self._units[at + 1 :] if self.needs(u, unit))
        strand = next((strand_of[u] for u in users if u in strand_of), None)
      if strand is not None:
        members.setdefault(strand, []).append(unit)
    with_collectives = [
      units for units in members.values() if any(map(self.is_collective, units))
    ]
    if len(with_collectives) != 2:
      return None
    first, second = with_collectives
    return first, second

  def collectives_first(self, units: Sequence[int]) -> list[int]:
    """An order in which each next collective starts as early as it can."""
    ordered: dict[int, None] = {}
    for unit in units:
      if self.is_collective(unit):
        ordered.update((u, None) for u in units if self.needs(unit, u))
        ordered[unit] = None
    ordered.update((unit, None) for unit in units)
    return list(ordered)

  def order(self, blocks: Iterable[Sequence[int]]) -> list[int]:
    """All instructions in the order of blocks, each after what it needs.

    Args:
      blocks: of units. A collective that begins a block is over at its end.
    """
    placed: dict[int, None] = {}
    done_of = dependencies.of(self._computation).done_of

    def place(id_: int) -> None:
      stack = [id_]
      while stack:
        last = stack[-1]
        waits_for = [b for b in self._before[last] if b not in placed]
        if waits_for:
          stack += waits_for
          continue
        placed.setdefault(stack.pop())

    for block in blocks:
      for unit in block:
        place(unit)
      if self.is_collective(block[0]) and block[0] in done_of:
        place(done_of[block[0]])
    for instruction in self._computation.instructions:
      place(instruction.id)
    return list(placed)
