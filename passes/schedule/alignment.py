# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Alignment of two strands in a loop's body, by dynamic programming.

DHelix (arXiv 2411.15871) runs two strands in consecutive blocks. In a block, a
collective of one strand is in flight beside kernels of the other strand, or of
its own if they do not wait for it. Given each strand's order, T(i, j) is the
least time for the first i units of one strand and j of the other. The caller
provides the time of a block:

    T(i, j) = min(T(i', j') + block_us(units between (i', j') and (i, j)))

A unit is the id of an instruction that launches a kernel or starts collectives.
Each strand's order is XLA's, or the one that starts the next collective as
early as possible; the best of the four pairs is used. Blocks do not overlap, so
the real timeline of an order may be shorter or longer: replay it before use.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
import dataclasses
import functools
import itertools

from lagom_xla.passes import dependencies
from lagom_xla.passes import hlo
from lagom_xla.passes import overlap
from lagom_xla.passes.schedule import aliasing
from lagom_xla.passes.schedule import orders


def strands_in_body(body: hlo.Computation) -> dict[int, int]:
  """The strand of each instruction of a loop's body that has one, by id.

  Strands are sets of instructions that are never combined. A value that a trip
  changes, everything that depends on it, and everything combined with these are
  one strand. A value that depends on no changed value, such as weights and
  counters, belongs to the only strand that uses it, or to none if several do.
  """
  if body.root.opcode != "tuple":
    return {}
  parameters = {i.id for i in body.parameters}
  carried = {
    i.id: i.tuple_index
    for i in body.instructions
    if i.opcode == "get-tuple-element" and i.operand_ids[0] in parameters
  }
  changing = {
    id_: number
    for id_, number in carried.items()
    if body.by_id[id_].shape.dimensions
    and carried.get(body.root.operand_ids[number]) != number
  }
  strands: dependencies.DisjointSets[int] = dependencies.DisjointSets()
  of_strands = set(changing)
  for instruction in body.instructions:
    if instruction.id == body.root.id or instruction.id in carried:
      continue
    for operand in of_strands.intersection(instruction.operand_ids):
      strands.join(operand, instruction.id)
      of_strands.add(instruction.id)
  carried_on: dict[int, set[int]] = {}
  for id_, number in changing.items():
    returned = body.root.operand_ids[number]
    if returned in of_strands:
      strands.join(id_, returned)
    else:
      carried_on.setdefault(returned, set()).add(id_)
  # For example, values gathered for the next trip, from no value of this one.
  for returned, ids in carried_on.items():
    if len({strands.find(id_) for id_ in ids}) == 1:
      strands.join(returned, ids.pop())
      of_strands.add(returned)
  strand_of = {id_: strands.find(id_) for id_ in of_strands}
  _add_used_by_one(body, strand_of)
  return strand_of


def _add_used_by_one(body: hlo.Computation, strand_of: dict[int, int]) -> None:
  """Adds values to the only strand that uses them."""
  users: dict[int, set[int]] = {}
  for instruction in reversed(body.instructions):
    if instruction.id == body.root.id:
      continue
    of_users = users.get(instruction.id, set())
    if instruction.id in strand_of:
      of_users = {strand_of[instruction.id]}
    elif len(of_users) == 1:
      (strand_of[instruction.id],) = of_users
    for operand in instruction.operand_ids:
      users.setdefault(operand, set()).update(of_users)


class _Body:
  """A loop's body: its units, and their dependences."""

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
    """The units of the two strands, in XLA's order; None if there are not two.

    A collective that both need, such as that of their layer's weights, belongs
    to the first strand that needs it.
    """
    strand_of = strands_in_body(self._computation)
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
    """An order that starts each collective in turn as early as possible."""
    ordered: dict[int, None] = {}
    for unit in units:
      if self.is_collective(unit):
        ordered.update((u, None) for u in units if self.needs(unit, u))
        ordered[unit] = None
    ordered.update((unit, None) for unit in units)
    return list(ordered)

  def order(self, blocks: Iterable[_Block]) -> list[int]:
    """All instructions in the order of blocks, each after those it needs.

    A collective that begins a block is done at the block's end.
    """
    done_of = dependencies.of(self._computation).done_of
    wanted: list[int] = []
    for block in blocks:
      wanted += block.units
      if block.start in done_of:
        wanted.append(done_of[block.start])
    wanted += (i.id for i in self._computation.instructions)
    return dependencies.in_order(wanted, lambda id_: self._before[id_][::-1])


# The most kernels of each strand beside a collective; DHelix's segments hold
# three to five.
_MAX_BESIDE = 8
# Kernels that take this many times the collective's time hide it. More of them
# would only wait for it.
_ENOUGH = 2.5

# The most pairs of positions in the two strands of a body; 1,700 pairs (a layer
# of Llama 3 8B, forward beside backward) take half a second.
_MAX_PAIRS = 25_000

# (id of a start, or None; ids of the kernels beside it) -> microseconds.
BlockUs = Callable[[int | None, tuple[int, ...]], float]


@dataclasses.dataclass(frozen=True, slots=True)
class _Block:
  """A collective, if any, and the kernels that run while it is in flight."""

  start: int | None
  kernels: tuple[int, ...]

  @property
  def units(self) -> tuple[int, ...]:
    """All units of the block, the collective first."""
    return self.kernels if self.start is None else (self.start, *self.kernels)


def align(
  analysis: overlap.Analysis, computation: hlo.Computation, block_us: BlockUs
) -> hlo.Module | None:
  """Aligns the two strands of a loop's body in a copy of the module.

  `block_us` is the time from the common start of a collective and kernels until
  all are done. None if the body does not have two strands with collectives, or
  if they are too long to align in seconds.
  """
  body = _Body(analysis, computation)
  strands = body.strands()
  if strands is None:
    return None
  first, second = strands
  if len(first) * len(second) > _MAX_PAIRS:
    return None
  cached = functools.cache(block_us)
  pairs = itertools.product(
    (first, body.collectives_first(first)),
    (second, body.collectives_first(second)),
  )
  _, blocks = min(
    (_best(body, a, b, cached) for a, b in pairs), key=lambda found: found[0]
  )
  aligned = analysis.module.copy()
  sequence = aligned.proto.schedule.sequences[computation.id]
  sequence.instruction_ids[:] = body.order(blocks)
  orders.check_order(analysis.module, aligned)
  return aligned


def _best(
  body: _Body,
  first: Sequence[int],
  second: Sequence[int],
  block_us: BlockUs,
) -> tuple[float, list[_Block]]:
  """The least time of two orders side by side, and its blocks."""
  end = len(first), len(second)
  best_us = {(0, 0): 0.0}
  came_from: dict[tuple[int, int], tuple[tuple[int, int], _Block]] = {}
  for at in itertools.product(range(end[0] + 1), range(end[1] + 1)):
    if at not in best_us:
      continue
    i, j = at
    left = first[i:], second[j:]
    ways = [
      (block, (i + own, j + others))
      for block, own, others in _beginning(body, *left, block_us)
    ]
    ways += [
      (block, (i + others, j + own))
      for block, own, others in _beginning(body, *left[::-1], block_us)
    ]
    for block, to in ways:
      us = best_us[at] + block_us(block.start, block.kernels)
      if us < best_us.get(to, float("inf")):
        best_us[to], came_from[to] = us, (at, block)
  blocks = []
  at = end
  while at != (0, 0):
    at, block = came_from[at]
    blocks.append(block)
  return best_us[end], blocks[::-1]


def _beginning(
  body: _Body,
  own: Sequence[int],
  others: Sequence[int],
  block_us: BlockUs,
) -> Iterator[tuple[_Block, int, int]]:
  """Blocks that begin with a strand's next unit, and the units they use."""
  if not own:
    return
  unit = own[0]
  if not body.is_collective(unit):
    yield _Block(None, (unit,)), 1, 0
    return

  def beside(units: Sequence[int]) -> list[int]:
    independent = itertools.takewhile(
      lambda u: not (body.is_collective(u) or body.needs(u, unit)), units
    )
    return list(itertools.islice(independent, _MAX_BESIDE))

  of_own, of_others = beside(own[1:]), beside(others)
  enough_us = _ENOUGH * block_us(unit, ())
  for num_own in range(len(of_own) + 1):
    for num_others in range(len(of_others) + 1):
      kernels = (*of_own[:num_own], *of_others[:num_others])
      yield _Block(unit, kernels), 1 + num_own, num_others
      if sum(block_us(None, (kernel,)) for kernel in kernels) > enough_us:
        break
