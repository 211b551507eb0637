# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Dependence among the operations of a block, nested regions included."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from jaxlib.mlir import ir


class BlockDependence:
  """Which operations of a block need which others of it.

  It describes the block as it was when this was made: after an operation moved
  or went, make another.

  Attributes:
    operations: those of the block, in order.
  """

  def __init__(self, block: ir.Block):
    self.operations: Sequence[ir.Operation] = [
      op.operation for op in block.operations
    ]
    self._position = {op: i for i, op in enumerate(self.operations)}
    self._direct = [self._needed_directly(op) for op in self.operations]

  def position(self, operation: ir.Operation) -> int:
    """Where an operation of the block stands."""
    return self._position[operation]

  def needed_by(self, positions: Iterable[int]) -> set[int]:
    """Positions of all that those at some positions need, at any remove."""
    needed: set[int] = set()
    todo = list(positions)
    while todo:
      for position in self._direct[todo.pop()]:
        if position not in needed:
          needed.add(position)
          todo.append(position)
    return needed

  def _needed_directly(self, operation: ir.Operation) -> frozenset[int]:
    owners = map(defining_operation, used_values(operation))
    return frozenset(
      self._position[owner] for owner in owners if owner in self._position
    )


def defining_operation(value: ir.Value) -> ir.Operation | None:
  """What defines a value; None of a block's argument."""
  owner = value.owner
  return None if isinstance(owner, ir.Block) else owner.operation


def used_values(operation: ir.Operation) -> Iterator[ir.Value]:
  """What an operation and the regions in it use, wherever it is defined."""
  yield from operation.operands
  for region in operation.regions:
    for block in region.blocks:
      for inner in block.operations:
        yield from used_values(inner.operation)


def inner_operations(operation: ir.Operation) -> list[ir.Operation]:
  """The operations in the regions of an operation, at any depth, in order."""
  found: list[ir.Operation] = []

  def visit(inner: ir.Operation) -> ir.WalkResult:
    found.append(inner)
    return ir.WalkResult.ADVANCE

  operation.walk(visit, ir.WalkOrder.PRE_ORDER)
  return found[1:]
