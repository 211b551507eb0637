# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Merging of two loops into one that does in each trip what both did.

XLA schedules every loop body by itself, and nothing moves across a loop's
border. So what one loop communicates can only hide under what another computes
if both are in one body. XLA's scheduler then interleaves the two by itself.

Two sequences of loops are aligned. Both keep their order, as each loop needs
the one before it; so the pairs must not cross. Only loops with the same number
of trips can become one.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
import dataclasses

from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo

from lagom_xla.passes.program import counted_loops
from lagom_xla.passes.program import mlir


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Loop:
  """A loop of a block.

  Attributes:
    position: where it stands.
    num_trips: how often its body runs.
    flops: what its products work, over all trips.
  """

  position: int
  num_trips: int
  flops: int


Pairs = tuple[tuple[int, int], ...]


def align(one: Sequence[Loop], other: Sequence[Loop]) -> tuple[int, Pairs]:
  """The pairs that have most work side by side.

  A pair's is that of the smaller loop: beyond it the larger one is alone.

  Returns:
    FLOPs that run beside others, and the positions of the pairs, in order.
  """
  # best[j]: for the loops of one so far and the first j of the other.
  best: list[tuple[int, Pairs]] = [(0, ())] * (len(other) + 1)
  for a in one:
    row: list[tuple[int, Pairs]] = [(0, ())]
    for j, b in enumerate(other):
      choice = max(best[j + 1], row[j], key=lambda c: c[0])
      flops = best[j][0] + min(a.flops, b.flops)
      if a.num_trips == b.num_trips and flops > choice[0]:
        choice = flops, (*best[j][1], (a.position, b.position))
      row.append(choice)
    best = row
  return best[-1]


def obstacle(
  first: counted_loops.CountedLoop,
  second: counted_loops.CountedLoop,
  within: mlir.BlockDependence,
) -> str | None:
  """Why two loops of a block cannot become one; None where they can.

  Args:
    first: the one that stands first.
    second: the other.
    within: the dependence of their block, as it is now.
  """
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
      return f"between or in them is {effect}"
  return None


def merge(
  first: counted_loops.CountedLoop,
  second: counted_loops.CountedLoop,
  within: mlir.BlockDependence,
) -> counted_loops.CountedLoop:
  """Merges two loops of a block that have no `obstacle`.

  What the second needs moves before the first, in its order. Each body keeps
  the order of its operations. The second takes from the first what both carry
  alike: the counter, and values that no trip changes; XLA then sees that both
  read the same layer's weights.

  Args:
    first: the one that stands first; it is gone after this, as is the second.
    second: the other.
    within: the dependence of their block; it no longer holds after this.

  Returns:
    The merged loop.
  """
  a, b = first.operation, second.operation
  at = within.position(a)
  for i in sorted(within.needed_by([within.position(b)])):
    if i > at:
      within.operations[i].move_before(a)
  twins = _twins(first, second)
  own = [i for i in range(len(b.operands)) if i not in twins]
  # Where the merged loop carries what each of them carried.
  places_a = list(range(len(a.operands)))
  places_b = {i: len(places_a) + n for n, i in enumerate(own)} | twins
  operands = [*a.operands, *(b.operands[i] for i in own)]
  with ir.InsertionPoint(a), a.location:
    types = [operand.type for operand in operands]
    merged = stablehlo.WhileOp(types, operands).operation
  condition, body = (
    region.blocks.append(*types, arg_locs=[a.location] * len(types))
    for region in merged.regions
  )
  _return(condition, _move(first.condition, condition, places_a))
  in_order_b = [places_b[i] for i in range(len(b.operands))]
  returned_a = _move(first.body, body, places_a)
  returned_b = _move(second.body, body, in_order_b)
  _return(body, [*returned_a, *(returned_b[i] for i in own)])
  for loop, places in ((a, places_a), (b, in_order_b)):
    for result, place in zip(loop.results, places, strict=True):
      result.replace_all_uses_with(merged.results[place])
    loop.erase()
  read = counted_loops.read(merged)
  assert isinstance(read, counted_loops.CountedLoop), read
  return read


def _twins(
  first: counted_loops.CountedLoop, second: counted_loops.CountedLoop
) -> dict[int, int]:
  """Carry of the second loop -> the first loop's that always equals it."""
  twins = {
    j: i
    for j in _unchanged(second)
    for i in _unchanged(first)
    if first.operation.operands[i] == second.operation.operands[j]
  }
  counts_alike = (first.start, first.step) == (second.start, second.step)
  type_of_first, type_of_second = (
    loop.operation.operands[loop.counter].type for loop in (first, second)
  )
  if counts_alike and type_of_first == type_of_second:
    twins[second.counter] = first.counter
  return twins


def _unchanged(loop: counted_loops.CountedLoop) -> list[int]:
  """The carries that a trip returns as it took them."""
  body = loop.body
  returned = body.operations[len(body.operations) - 1].operands
  return [
    i
    for i, (argument, value) in enumerate(
      zip(body.arguments, returned, strict=True)
    )
    if value == argument
  ]


def _move(
  source: ir.Block, to: ir.Block, places: Sequence[int]
) -> list[ir.Value]:
  """Moves a block's operations to the end of another.

  Args:
    source: what is emptied, but for its return.
    to: the block that takes the operations.
    places: for each argument of the source, the argument of the other that it
      becomes.

  Returns:
    What the source returned.
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


def share(
  block: ir.Block, late: Iterable[ir.Operation], early: Iterable[ir.Operation]
) -> list[counted_loops.CountedLoop]:
  """Merges loops of a block that hold products, and the loops inside of those.

  Args:
    block: where they are.
    late: operations of one stage, in order.
    early: operations of the other, none of which needs any of the first's.

  Returns:
    What pairs became.
  """
  late_loops, early_loops = _counted(late), _counted(early)
  _, pairs = align(_described(late_loops), _described(early_loops))
  shared: list[counted_loops.CountedLoop] = []
  for i, j in pairs:
    first, second = late_loops[i], early_loops[j]
    within = mlir.BlockDependence(block)
    if obstacle(first, second, within) is None:
      shared += merge_deeply(first, second, within)
  return shared


def merge_deeply(
  first: counted_loops.CountedLoop,
  second: counted_loops.CountedLoop,
  within: mlir.BlockDependence,
) -> list[counted_loops.CountedLoop]:
  """Merges two loops, as `merge`, and then the loops inside of them.

  Returns:
    What pairs became. The inner ones come first: a loop that is written anew
    takes them along.
  """
  num_first = len(first.body.operations) - 1
  merged = merge(first, second, within)
  inner = [op.operation for op in merged.body.operations][:-1]
  return [*share(merged.body, inner[:num_first], inner[num_first:]), merged]


def _counted(
  operations: Iterable[ir.Operation],
) -> list[counted_loops.CountedLoop]:
  loops = (
    counted_loops.read(operation)
    for operation in operations
    if operation.name == "stablehlo.while"
  )
  return [loop for loop in loops if isinstance(loop, counted_loops.CountedLoop)]


def _described(
  loops: Sequence[counted_loops.CountedLoop],
) -> list[Loop]:
  return [
    Loop(
      position=i,
      num_trips=loop.num_trips,
      flops=counted_loops.flops(loop.operation),
    )
    for i, loop in enumerate(loops)
  ]
