# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Alignment of two strands in a loop's body, by dynamic programming.

DHelix (arXiv 2411.15871) runs two strands in blocks, one after the other. In a
block a collective of one strand is in flight beside kernels: of the other
strand, or of its own that do not wait for it. With each strand's order given,
T(i, j) is the least time for the first i units of one and j of the other, and
what a block takes is the caller's to say:

    T(i, j) = min(T(i', j') + block_us(units between (i', j') and (i, j)))

Each strand's order is XLA's, or the one that starts its next collective first;
the best of the four pairs counts. Blocks do not overlap, so the true timeline
of an order may be shorter or longer: replay it before it is used.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
import dataclasses
import functools
import itertools

from lagom_xla.passes import hlo
from lagom_xla.passes import overlap
from lagom_xla.passes.schedule import orders
from lagom_xla.passes.schedule import units as units_lib

# Kernels of each strand that a collective may have beside it: DHelix's segments
# hold three to five.
_MAX_BESIDE = 8
# A collective that kernels of this many times its own time stand beside is
# hidden; more would only wait for it.
_ENOUGH = 2.5

# Pairs of a place in each strand, of one body, that are looked at. 1,700 take
# half a second: a layer of Llama 3 8B, forward beside backward.
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
    """All of it, the collective first."""
    return self.kernels if self.start is None else (self.start, *self.kernels)


def align(
  analysis: overlap.Analysis, computation: hlo.Computation, block_us: BlockUs
) -> hlo.Module | None:
  """The module with the two strands of a loop's body aligned.

  Args:
    analysis: of the scheduled module, which stays as it is.
    computation: the body.
    block_us: time of a collective and kernels that start together, until all
      are over.

  Returns:
    None where the body has not two strands, each with collectives, or where
    they are too long to be aligned in seconds.

  Raises:
    ScheduleError: the order found is not legal, which would be a fault here.
  """
  body = units_lib.Body(analysis, computation)
  strands = body.strands()
  if strands is None:
    return None
  cached = functools.cache(block_us)
  first, second = strands
  if len(first) * len(second) > _MAX_PAIRS:
    return None
  pairs = itertools.product(
    (first, body.collectives_first(first)),
    (second, body.collectives_first(second)),
  )
  _, blocks = min(
    (_best(body, a, b, cached) for a, b in pairs), key=lambda found: found[0]
  )
  proto = type(analysis.module.proto)()
  proto.CopyFrom(analysis.module.proto)
  proto.schedule.sequences[computation.id].instruction_ids[:] = body.order(
    block.units for block in blocks
  )
  aligned = hlo.Module(proto, analysis.module.num_partitions)
  orders.check_order(analysis.module, aligned)
  return aligned


def _best(
  body: units_lib.Body,
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
    for block, to in _blocks_from(body, first, second, at, block_us):
      us = best_us[at] + block_us(block.start, block.kernels)
      if us < best_us.get(to, float("inf")):
        best_us[to], came_from[to] = us, (at, block)
  blocks = []
  at = end
  while at != (0, 0):
    at, block = came_from[at]
    blocks.append(block)
  return best_us[end], blocks[::-1]


def _blocks_from(
  body: units_lib.Body,
  first: Sequence[int],
  second: Sequence[int],
  at: tuple[int, int],
  block_us: BlockUs,
) -> Iterator[tuple[_Block, tuple[int, int]]]:
  """The blocks that can come next, and where they lead."""
  i, j = at
  if i < len(first):
    for block, own, others in _beginning(body, first[i:], second[j:], block_us):
      yield block, (i + own, j + others)
  if j < len(second):
    for block, own, others in _beginning(body, second[j:], first[i:], block_us):
      yield block, (i + others, j + own)


def _beginning(
  body: units_lib.Body,
  own: Sequence[int],
  others: Sequence[int],
  block_us: BlockUs,
) -> Iterator[tuple[_Block, int, int]]:
  """Blocks that begin with a strand's next unit, and how many they take."""
  unit = own[0]
  if not body.is_collective(unit):
    yield _Block(None, (unit,)), 1, 0
    return
  independent = itertools.takewhile(
    lambda u: not (body.is_collective(u) or body.needs(u, unit)), own[1:]
  )
  of_own = list(itertools.islice(independent, _MAX_BESIDE))
  kernels = itertools.takewhile(
    lambda u: not (body.is_collective(u) or body.needs(u, unit)), others
  )
  of_others = list(itertools.islice(kernels, _MAX_BESIDE))
  enough_us = _ENOUGH * block_us(unit, ())
  for num_own in range(len(of_own) + 1):
    for num_others in range(len(of_others) + 1):
      beside = (*of_own[:num_own], *of_others[:num_others])
      yield _Block(unit, beside), 1 + num_own, num_others
      if sum(block_us(None, (kernel,)) for kernel in beside) > enough_us:
        break
