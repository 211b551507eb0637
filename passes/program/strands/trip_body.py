# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""A trip's body: which of its operations and carries need which others."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from jaxlib.mlir import ir

from lagom_xla.passes.program import counted_loops
from lagom_xla.passes.program import mlir

# A value of a body: the position of the operation that defines it and the
# number of the result; or this and the number of the carry.
CARRY = -1
Item = tuple[int, int]


class TripBody:
  """The body of a loop, as positions and numbers.

  It describes the body as it was when this was made.

  Attributes:
    operations: those of the body in order, without the return.
    uses: for each, the values of the body that it and its regions use.
    returned: for each carry, the value that the next trip takes; None where it
      is from outside the loop.
    invariant: numbers of the carries that no trip changes.
  """

  operations: Sequence[ir.Operation]
  uses: Sequence[frozenset[Item]]
  returned: Sequence[Item | None]
  invariant: frozenset[int]

  def __init__(self, loop: counted_loops.CountedLoop):
    *operations, last = [op.operation for op in loop.body.operations]
    self.operations = operations
    self._block = loop.body
    self._position = {op: i for i, op in enumerate(operations)}
    self.uses = [self._items(mlir.used_values(op)) for op in self.operations]
    self.returned = [self._item(value) for value in last.operands]
    self.invariant = frozenset(
      i for i, item in enumerate(self.returned) if item == (CARRY, i)
    )

  def value(self, item: Item) -> ir.Value:
    """The value itself."""
    position, number = item
    if position == CARRY:
      return self._block.arguments[number]
    return self.operations[position].results[number]

  def with_all_needed(
    self, positions: Iterable[int]
  ) -> tuple[frozenset[int], frozenset[int]]:
    """Operations and all that they need, from the trip before as well.

    Tuples that they return are unpacked with them.

    Returns:
      The positions of those operations, and the numbers of the carries that
      advance with them.
    """
    found: set[int] = set()
    carries: set[int] = set()
    todo: list[Item] = [(position, 0) for position in positions]
    while todo:
      position, number = todo.pop()
      if position != CARRY:
        if position not in found:
          found.add(position)
          todo.extend(self.uses[position])
      elif number not in self.invariant and number not in carries:
        carries.add(number)
        update = self.returned[number]
        if update is not None:
          todo.append(update)
    # A tuple, which a library call may return, is carried by no loop.
    for position, operation in enumerate(self.operations):
      if operation.name == "stablehlo.get_tuple_element":
        if any(source in found for source, _ in self.uses[position]):
          found.add(position)
    return frozenset(found), frozenset(carries)

  def needed_in_trip(self, positions: Iterable[int]) -> frozenset[int]:
    """Operations and all that they need of their own trip."""
    found: set[int] = set()
    todo = list(positions)
    while todo:
      position = todo.pop()
      if position != CARRY and position not in found:
        found.add(position)
        todo.extend(source for source, _ in self.uses[position])
    return frozenset(found)

  def _items(self, values: Iterable[ir.Value]) -> frozenset[Item]:
    items = map(self._item, values)
    return frozenset(item for item in items if item is not None)

  def _item(self, value: ir.Value) -> Item | None:
    owner = value.owner
    if isinstance(owner, ir.Block):
      if owner != self._block:
        return None
      return CARRY, ir.BlockArgument(value).arg_number
    position = self._position.get(owner.operation)
    if position is None:
      return None
    return position, ir.OpResult(value).result_number
