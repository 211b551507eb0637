# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""A rotated loop, written from a loop and the stages of its trips."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from jaxlib.mlir import ir

from lagom_xla.passes.program import counted_loops
from lagom_xla.passes.program.strands import counting_loop
from lagom_xla.passes.program.strands import merge
from lagom_xla.passes.program.strands import prefetch
from lagom_xla.passes.program.strands import trip_copy
from lagom_xla.passes.program.strands.stages import Stages


def rotate(loop: counted_loops.CountedLoop, stages: Stages) -> int:
  """Puts a rotated loop in the place of a loop.

  The first trip's early stage comes before it, the last trip's late stage
  behind it. It carries what the loop carried, of which that of the early stage
  is a trip ahead, and what crosses from stage to stage; it counts as the late
  stage does. Loops that the stages come to share are rotated, too: their
  gathers go a trip ahead.

  Args:
    loop: what is replaced.
    stages: of its trips.

  Returns:
    How many pairs of inner loops, one of each stage, became one.
  """
  old = loop.operation
  items = stages.crossing.items
  before = list(old.operands)
  with old.location, ir.InsertionPoint(old):
    first = _early(loop, stages, before)
    operands = [first.returned.get(i, v) for i, v in enumerate(before)]
    new, body = counting_loop.create(
      loop, loop.num_trips - 1, [*operands, *map(first.value, items)]
    )
    carries, kept = _split(list(body.arguments), len(before))
    with ir.InsertionPoint(body):
      late = _late(loop, stages, carries, kept)
      ahead = list(carries)
      ahead[loop.counter] = late.returned[loop.counter]
      early = _early(loop, stages, ahead)
      counting_loop.end(body, loop, [
        *({**late.returned, **early.returned}.get(i, v)
          for i, v in enumerate(carries)),
        *map(early.value, items),
      ])  # fmt: skip
    carries, kept = _split(list(new.results), len(before))
    last = _late(loop, stages, carries, kept)
    for i, result in enumerate(old.results):
      result.replace_all_uses_with(last.returned.get(i, carries[i]))
  old.erase()
  shared = merge.share(
    body, list(late.operations.values()), list(early.operations.values())
  )
  gather_ahead(shared)
  return len(shared)


def gather_ahead(loops: Iterable[counted_loops.CountedLoop]) -> None:
  """Rotates loops that two strands share by what they gather (`prefetch.py`).

  Args:
    loops: the inner ones of nested loops first.
  """
  for loop in loops:
    prefetch.split_barriers(loop)
    if loop.num_trips > 1:
      gathers = prefetch.stages(loop)
      if gathers is not None:
        rotate(loop, gathers)


def _early(
  loop: counted_loops.CountedLoop, stages: Stages, carries: Sequence[ir.Value]
) -> trip_copy.TripCopy:
  """Writes the stage that runs ahead, at the insertion point."""
  return trip_copy.write(loop, carries, {}, stages.ahead, stages.ahead_carries)


def _late(
  loop: counted_loops.CountedLoop,
  stages: Stages,
  carries: Sequence[ir.Value],
  kept: Sequence[ir.Value],
) -> trip_copy.TripCopy:
  """Writes the other stage at the insertion point; it takes what is kept."""
  known = dict(zip(stages.crossing.items, kept, strict=True))
  num_operations = len(loop.body.operations) - 1
  positions = set(range(num_operations)) - stages.ahead | stages.crossing.again
  advanced = set(range(len(carries))) - stages.ahead_carries
  return trip_copy.write(loop, carries, known, positions, advanced)


def _split(
  values: Sequence[ir.Value], at: int
) -> tuple[Sequence[ir.Value], Sequence[ir.Value]]:
  return values[:at], values[at:]
