# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Merges two loops into one that does the work of both in each trip.

XLA schedules every loop body by itself, and moves nothing into or out of it. So
one loop's communication can hide behind another's computation only if both are
in one body, where XLA's scheduler interleaves them.

Two sequences of loops are aligned. Both keep their order, as each loop needs
the one before it, so pairs must not cross. Only loops with the same number of
trips can be merged.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo

from lagom_xla.passes.program import counted_loops
from lagom_xla.passes.program import mlir
from lagom_xla.passes.program.counted_loops import CountedLoop

# For each loop: the number of trips, and the FLOPs of all trips.
Sizes = Sequence[tuple[int, int]]
Pairs = tuple[tuple[int, int], ...]


def align(one: Sizes, other: Sizes) -> tuple[int, Pairs]:
  """The pairs of two sequences of loops with most FLOPs side by side.

  A pair counts the FLOPs of its smaller loop. Returns the FLOPs, and pairs of
  indices, in order.
  """
  # best[j]: for the loops of `one` so far and the first j of `other`.
  best: list[tuple[int, Pairs]] = [(0, ())] * (len(other) + 1)
  for i, (trips, flops) in enumerate(one):
    row: list[tuple[int, Pairs]] = [(0, ())]
    for j, (other_trips, other_flops) in enumerate(other):
      choice = max(best[j + 1], row[j], key=lambda c: c[0])
      beside = best[j][0] + min(flops, other_flops)
      if trips == other_trips and beside > choice[0]:
        choice = beside, (*best[j][1], (i, j))
      row.append(choice)
    best = row
  return best[-1]


def obstacle(
  first: CountedLoop, second: CountedLoop, within: mlir.Dataflow
) -> str | None:
  """Why two loops, in their order, cannot merge; None if they can."""
  at = within.position(first.operation)
  needed = within.needed_by([within.position(second.operation)])
  if at in needed:
    return "one needs what the other computes"
  if first.num_trips != second.num_trips:
    return f"they make {first.num_trips} and {second.num_trips} trips"
  moved = [within.operations[i] for i in needed if i > at]
  for operation in (first.operation, second.operation, *moved):
    effect = mlir.first_effect(operation)
    if effect is not None:
      return f"in or between them is {effect}"
  return None


def merge_deeply(
  first: CountedLoop, second: CountedLoop, within: mlir.Dataflow
) -> list[CountedLoop]:
  """Merges two loops that have no `obstacle`, and then the loops inside.

  The loops and `within`, the dataflow of their block, are invalid afterward.
  Returns the merged loops, inner ones first, because rewriting a loop moves its
  inner loops.
  """
  num_first = len(first.body.operations) - 1
  merged = _merge(first, second, within)
  inner = [op.operation for op in merged.body.operations][:-1]
  return [*share(merged.body, inner[:num_first], inner[num_first:]), merged]


def share(
  block: ir.Block, late: Iterable[ir.Operation], early: Iterable[ir.Operation]
) -> list[CountedLoop]:
  """Merges loops of a block that hold products, and the loops inside them.

  No early operation needs any of the late ones. Returns the merged loops, as
  `merge_deeply` does.
  """
  late_loops, early_loops = _counted(late), _counted(early)
  _, pairs = align(_sizes(late_loops), _sizes(early_loops))
  shared: list[CountedLoop] = []
  for i, j in pairs:
    first, second = late_loops[i], early_loops[j]
    within = mlir.Dataflow(block)
    if obstacle(first, second, within) is None:
      shared += merge_deeply(first, second, within)
  return shared


def _counted(operations: Iterable[ir.Operation]) -> list[CountedLoop]:
  loops = (counted_loops.read(op) for op in operations if op.name == mlir.LOOP)
  return [loop for loop in loops if isinstance(loop, CountedLoop)]


def _sizes(loops: Iterable[CountedLoop]) -> Sizes:
  return [(x.num_trips, counted_loops.flops(x.operation)) for x in loops]


def _merge(
  first: CountedLoop, second: CountedLoop, within: mlir.Dataflow
) -> CountedLoop:
  """Merges two loops.

  Operations that the second loop needs move ahead of the first, in order. Each
  body keeps the order of its operations. The loops share equal carries: the
  counter, and values that no trip changes. So XLA sees that both read the same
  layer's weights.
  """
  a, b = first.operation, second.operation
  at = within.position(a)
  for i in sorted(within.needed_by([within.position(b)])):
    if i > at:
      within.operations[i].move_before(a)
  twins = _twins(first, second)
  own = [i for i in range(len(b.operands)) if i not in twins]
  # Positions of each loop's carries in the merged loop.
  places_a = list(range(len(a.operands)))
  place_of = {i: len(places_a) + n for n, i in enumerate(own)} | twins
  places_b = [place_of[i] for i in range(len(b.operands))]
  operands = [*a.operands, *(b.operands[i] for i in own)]
  with ir.InsertionPoint(a), a.location:
    types = [operand.type for operand in operands]
    merged = stablehlo.WhileOp(types, operands).operation
  condition, body = (
    region.blocks.append(*types, arg_locs=[a.location] * len(types))
    for region in merged.regions
  )
  _return(condition, _move(first.condition, condition, places_a))
  returned_a = _move(first.body, body, places_a)
  returned_b = _move(second.body, body, places_b)
  _return(body, [*returned_a, *(returned_b[i] for i in own)])
  for loop, places in ((a, places_a), (b, places_b)):
    for result, place in zip(loop.results, places, strict=True):
      result.replace_all_uses_with(merged.results[place])
    loop.erase()
  read = counted_loops.read(merged)
  assert isinstance(read, CountedLoop), read
  return read


def _twins(first: CountedLoop, second: CountedLoop) -> dict[int, int]:
  """Carry of the second loop -> carry of the first that always equals it."""
  of_first, of_second = first.operation.operands, second.operation.operands
  twins = {
    j: i
    for j in _unchanged(second.body)
    for i in _unchanged(first.body)
    if of_first[i] == of_second[j]
  }
  counts_alike = (first.start, first.step) == (second.start, second.step)
  type_of_first = of_first[first.counter].type
  if counts_alike and type_of_first == of_second[second.counter].type:
    twins[second.counter] = first.counter
  return twins


def _unchanged(body: ir.Block) -> list[int]:
  """The carries that a trip returns unchanged."""
  pairs = zip(body.arguments, mlir.returned(body), strict=True)
  return [i for i, (taken, given) in enumerate(pairs) if taken == given]


def _move(
  source: ir.Block, to: ir.Block, places: Sequence[int]
) -> list[ir.Value]:
  """Moves a block's operations, except its return, to the end of another.

  `places` maps its arguments to those of the other block. Returns the values
  that the source returned.
  """
  for argument, place in zip(source.arguments, places, strict=True):
    argument.replace_all_uses_with(to.arguments[place])
  *operations, returned = [op.operation for op in source.operations]
  for operation in operations:
    to.append(operation)
  return list(returned.operands)


def _return(block: ir.Block, values: Sequence[ir.Value]) -> None:
  with ir.InsertionPoint(block):
    stablehlo.return_(values)
