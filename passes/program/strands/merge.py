# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Merging of two loops into one that does in each trip what both did.

XLA schedules every loop body by itself, and nothing moves across a loop's
border. So what one loop communicates can only hide under what another computes
if both are in one body. XLA's scheduler then interleaves the two by itself.
"""

from __future__ import annotations

from collections.abc import Sequence

from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo

from lagom_xla.passes.program import counted_loops
from lagom_xla.passes.program import mlir


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
