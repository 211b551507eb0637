# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""A copy of a trip, or of some of its operations, outside of its loop."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
import dataclasses

from jaxlib.mlir import ir

from lagom_xla.passes.program import counted_loops
from lagom_xla.passes.program.strands import stages


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class TripCopy:
  """A copy of some operations of a trip.

  Attributes:
    operations: the copies, by the position of what was copied.
    carries: what the trip's carries are in it.
    returned: what the next trip takes, for the carries that it advances.
  """

  operations: Mapping[int, ir.Operation]
  carries: Sequence[ir.Value]
  returned: Mapping[int, ir.Value]

  def value(self, item: stages.Item) -> ir.Value:
    """The value that stands for one of the trip."""
    position, number = item
    if position == stages.CARRY:
      return self.carries[number]
    return self.operations[position].results[number]


def write(
  loop: counted_loops.CountedLoop,
  carries: Sequence[ir.Value],
  known: Mapping[stages.Item, ir.Value],
  positions: Iterable[int],
  advanced: Iterable[int],
) -> TripCopy:
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
    if position != stages.CARRY:
      operations[position].results[number].replace_all_uses_with(value)
  for number, argument in enumerate(block.arguments):
    carry = known.get((stages.CARRY, number), carries[number])
    argument.replace_all_uses_with(carry)
  moved = {position: operations[position] for position in sorted(positions)}
  for operation in moved.values():
    operation.move_before(whole)
  returned = {i: operations[-1].operands[i] for i in advanced}
  whole.erase()
  return TripCopy(operations=moved, carries=carries, returned=returned)


def write_whole(
  loop: counted_loops.CountedLoop, carries: Sequence[ir.Value]
) -> TripCopy:
  """Writes a whole trip, at the insertion point.

  Args:
    loop: whose trip it is.
    carries: what stands for the trip's carries.
  """
  positions = range(len(loop.body.operations) - 1)
  return write(loop, carries, {}, positions, range(len(carries)))
