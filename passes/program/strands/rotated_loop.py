# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""A rotated loop, written from a loop and the stages of its trips."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
import dataclasses

from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo

from lagom_xla.passes.program.stablehlo import counted_loops
from lagom_xla.passes.program.strands import prefetch
from lagom_xla.passes.program.strands import shared_loops
from lagom_xla.passes.program.strands import trip_body
from lagom_xla.passes.program.strands.stages import Stages


def rotate(loop: counted_loops.CountedLoop, stages: Stages) -> int:
  """Puts a rotated loop in the place of a loop.

  The first trip's early stage comes before it, the last trip's late stage
  behind it. It carries a counter; what the loop carried, of which that of the
  early stage is a trip ahead; and what crosses from stage to stage. Loops that
  the stages come to share are rotated, too: their gathers go a trip ahead.

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
    new, body = _counting_loop(
      loop.num_trips - 1, [*operands, *map(first.value, items)]
    )
    carries, kept = _split(list(body.arguments)[1:], len(before))
    with ir.InsertionPoint(body):
      late = _late(loop, stages, carries, kept)
      early = _early(loop, stages, carries)
      _return(body, [
        *({**late.returned, **early.returned}.get(i, v)
          for i, v in enumerate(carries)),
        *map(early.value, items),
      ])  # fmt: skip
    carries, kept = _split(list(new.results)[1:], len(before))
    last = _late(loop, stages, carries, kept)
    for i, result in enumerate(old.results):
      result.replace_all_uses_with(last.returned.get(i, carries[i]))
  old.erase()
  shared = shared_loops.share(
    body, list(late.operations.values()), list(early.operations.values())
  )
  for loop in shared:
    prefetch.split_barriers(loop)
    gathers = prefetch.stages(loop) if loop.num_trips > 1 else None
    if gathers is not None:
      rotate(loop, gathers)
  return len(shared)


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class _Part:
  """A copy of some operations of a trip.

  Attributes:
    operations: the copies, by the position of what was copied.
    carries: what the trip's carries are in it.
    returned: what the next trip takes, for the carries that it advances.
  """

  operations: Mapping[int, ir.Operation]
  carries: Sequence[ir.Value]
  returned: Mapping[int, ir.Value]

  def value(self, item: trip_body.Item) -> ir.Value:
    """The value that stands for one of the trip."""
    position, number = item
    if position == trip_body.CARRY:
      return self.carries[number]
    return self.operations[position].results[number]


def _early(
  loop: counted_loops.CountedLoop, stages: Stages, carries: Sequence[ir.Value]
) -> _Part:
  """Writes the stage that runs ahead, at the insertion point."""
  return _copy(loop, carries, {}, stages.ahead, stages.ahead_carries)


def _late(
  loop: counted_loops.CountedLoop,
  stages: Stages,
  carries: Sequence[ir.Value],
  kept: Sequence[ir.Value],
) -> _Part:
  """Writes the other stage at the insertion point; it takes what is kept."""
  known = dict(zip(stages.crossing.items, kept, strict=True))
  num_operations = len(loop.body.operations) - 1
  positions = set(range(num_operations)) - stages.ahead | stages.crossing.again
  advanced = set(range(len(carries))) - stages.ahead_carries
  return _copy(loop, carries, known, positions, advanced)


def _copy(
  loop: counted_loops.CountedLoop,
  carries: Sequence[ir.Value],
  known: Mapping[trip_body.Item, ir.Value],
  positions: Iterable[int],
  advanced: Iterable[int],
) -> _Part:
  """Writes some operations of a trip, at the insertion point.

  Args:
    loop: whose trip it is.
    carries: what stands for the trip's carries.
    known: what stands for other values, and goes before `carries`.
    positions: of the operations.
    advanced: numbers of the carries whose next value is wanted.
  """
  whole = loop.operation.clone().operation
  block = whole.regions[1].blocks[0]
  operations = [op.operation for op in block.operations]
  for (position, number), value in known.items():
    if position != trip_body.CARRY:
      operations[position].results[number].replace_all_uses_with(value)
  for number, argument in enumerate(block.arguments):
    carry = known.get((trip_body.CARRY, number), carries[number])
    argument.replace_all_uses_with(carry)
  moved = {position: operations[position] for position in sorted(positions)}
  for operation in moved.values():
    operation.move_before(whole)
  returned = {i: operations[-1].operands[i] for i in advanced}
  whole.erase()
  return _Part(operations=moved, carries=carries, returned=returned)


def _counting_loop(
  num_trips: int, operands: Sequence[ir.Value]
) -> tuple[ir.Operation, ir.Block]:
  """A loop that counts in its first carry, and its body, which has no end."""
  carried = [_constant(0), *operands]
  types = [value.type for value in carried]
  loop = stablehlo.WhileOp(types, carried).operation
  locations = [loop.location] * len(types)
  condition, body = (
    region.blocks.append(*types, arg_locs=locations) for region in loop.regions
  )
  with ir.InsertionPoint(condition):
    goes_on = stablehlo.compare(
      condition.arguments[0],
      _constant(num_trips),
      stablehlo.ComparisonDirectionAttr.get("LT"),
      compare_type=stablehlo.ComparisonTypeAttr.get("SIGNED"),
    )
    stablehlo.return_([goes_on])
  return loop, body


def _return(body: ir.Block, values: Sequence[ir.Value]) -> None:
  """Ends the body of a counting loop, at the insertion point."""
  stablehlo.return_([
    stablehlo.add(body.arguments[0], _constant(1)), *values
  ])  # fmt: skip


def _constant(number: int) -> ir.Value:
  value = ir.Attribute.parse(f"dense<{number}> : tensor<i32>")
  return stablehlo.constant(value)


def _split(
  values: Sequence[ir.Value], at: int
) -> tuple[Sequence[ir.Value], Sequence[ir.Value]]:
  return values[:at], values[at:]
