# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""The reach of a cut: how far the operations around a collective are free.

Forward from a collective that opens a chain, or backward from one that closes
it, through the operations of one block, as far as they can be done in the same
pieces. Of what is reached only that is kept which leads to a product or to the
end, or comes from a product: the rest can as well be done in one piece.
"""

from __future__ import annotations

from collections.abc import Iterator
import heapq

from jaxlib.mlir import ir

from lagom_xla.passes.program import dependence
from lagom_xla.passes.program import dimensions
from lagom_xla.passes.program.cuts import Cut

OPENING = frozenset(["stablehlo.all_gather", "stablehlo.all_to_all"])
CLOSING = frozenset(
  ["stablehlo.all_reduce", "stablehlo.all_to_all", "stablehlo.reduce_scatter"]
)
COLLECTIVES = OPENING | CLOSING | {"stablehlo.collective_permute"}
PRODUCT = "stablehlo.dot_general"

# How results of operations are cut. All results of one are cut alike; those of
# a product that adds up over the pieces are whole, which is None.
Reached = dict[ir.Operation, Cut | None]


class Block:
  """The operations of a block.

  It describes the block as it was when this was made.

  Attributes:
    operations: in order.
    position: of each operation.
  """

  def __init__(self, block: ir.Block):
    self.operations = [op.operation for op in block.operations]
    self.position = {op: i for i, op in enumerate(self.operations)}
    self._after_product = self._find_after_product()
    self._needs = self._find_needs()

  def is_independent(self, reached: Reached) -> bool:
    """Whether no piece of a chain waits for other pieces of it.

    It would where something outside of the chain depends on the whole of a
    value of it and comes back, as a residual stream does.
    """
    marked = 0
    for operation in reached:
      if operation.name in COLLECTIVES or operation.name == PRODUCT:
        marked |= 1 << self.position[operation]
    return not any(
      reached.get(owner) is None and self._needs.get(owner, 0) & marked
      for operation in reached
      for owner in _owners(operation)
      if owner is not None
    )

  def forward(self, opening: ir.Operation, cut: Cut) -> Reached:
    """What an opening leads to: products and closings, and all on the way.

    Args:
      opening: a collective of the block.
      cut: of its results.

    Returns:
      With the opening itself; empty where it leads to neither.
    """
    reached: Reached = {opening: cut}
    opened = 1 << self.position[opening]
    for operation in self._users_in_order(opening, reached):
      if any(
        reached.get(owner) is None and self._needs.get(owner, 0) & opened
        for owner in _owners(operation)
        if owner is not None
      ):
        continue
      known = known_cuts(operation, reached)
      found = dimensions.result_cut(operation, known)
      if found is not None or dimensions.summed_cuts(operation, known):
        reached[operation] = found
    kept: set[ir.Operation] = set()
    for operation in sorted(reached, key=self.position.__getitem__)[::-1]:
      is_end = operation.name in CLOSING or operation.name == PRODUCT
      if (is_end and operation != opening) or any(
        user in kept for user in _users(operation)
      ):
        kept.add(operation)
    return {op: cut for op, cut in reached.items() if op in kept}

  def backward(self, closing: ir.Operation, cut: Cut) -> Reached:
    """What a closing takes from products, and all on the way.

    Args:
      closing: a collective of the block.
      cut: of its results.

    Returns:
      With the closing itself; empty where no product leads to it.
    """
    asked: dict[ir.Operation, set[Cut]] = {closing: {cut}}
    reached: Reached = {}
    todo = [-self.position[closing]]
    while todo:
      operation = self.operations[-heapq.heappop(todo)]
      found, *others = asked[operation]
      needed = dimensions.operand_cuts(operation, found)
      if others or needed is None:
        continue
      reached[operation] = found
      for owner, operand_cut in zip(_owners(operation), needed, strict=True):
        if operand_cut is None or owner not in self._after_product:
          continue
        if owner not in asked:
          asked[owner] = set()
          heapq.heappush(todo, -self.position[owner])
        asked[owner].add(operand_cut)
    kept: set[ir.Operation | None] = set()
    for operation in sorted(reached, key=self.position.__getitem__):
      if operation.name == PRODUCT or any(
        owner in kept for owner in _owners(operation)
      ):
        kept.add(operation)
    return {op: cut for op, cut in reached.items() if op in kept}

  def _users_in_order(
    self, opening: ir.Operation, reached: Reached
  ) -> Iterator[ir.Operation]:
    """Users of what is reached, in order, while more of them are reached."""
    todo: list[int] = []
    seen: set[int] = set()

    def add_users(operation: ir.Operation) -> None:
      for user in _users(operation):
        position = self.position.get(user)
        if position is not None and position not in seen:
          seen.add(position)
          heapq.heappush(todo, position)

    add_users(opening)
    while todo:
      operation = self.operations[heapq.heappop(todo)]
      if operation.name in COLLECTIVES - CLOSING:
        continue
      yield operation
      if reached.get(operation) and operation.name not in COLLECTIVES:
        add_users(operation)

  def _find_needs(self) -> dict[ir.Operation, int]:
    """Collectives and products that each operation needs, itself included.

    The bit at its position stands for each.
    """
    needs: dict[ir.Operation, int] = {}
    for position, operation in enumerate(self.operations):
      is_marked = operation.name in COLLECTIVES or operation.name == PRODUCT
      mask = 1 << position if is_marked else 0
      for value in dependence.used_values(operation):
        owner = dependence.defining_operation(value)
        if owner is not None:
          mask |= needs.get(owner, 0)
      needs[operation] = mask
    return needs

  def _find_after_product(self) -> set[ir.Operation | None]:
    """Operations with a product before them and no collective between."""
    found: set[ir.Operation | None] = set()
    for operation in self.operations:
      if operation.name not in COLLECTIVES and (
        operation.name == PRODUCT
        or any(owner in found for owner in _owners(operation))
      ):
        found.add(operation)
    return found


def known_cuts(operation: ir.Operation, reached: Reached) -> dict[int, Cut]:
  """How those operands are cut that are reached, by their numbers."""
  known = {}
  for i, owner in enumerate(_owners(operation)):
    cut = reached.get(owner) if owner is not None else None
    if cut is not None:
      known[i] = cut
  return known


def needed_cuts(operation: ir.Operation, reached: Reached) -> dimensions.Cuts:
  """How the operands of what is reached are cut for it."""
  cut = reached[operation]
  if cut is None:
    cuts = dimensions.summed_cuts(operation, known_cuts(operation, reached))
  else:
    cuts = dimensions.operand_cuts(operation, cut)
  assert cuts is not None
  return cuts


def _owners(operation: ir.Operation) -> Iterator[ir.Operation | None]:
  return map(dependence.defining_operation, operation.operands)


def _users(operation: ir.Operation) -> Iterator[ir.Operation]:
  for result in operation.results:
    for use in result.uses:
      yield use.owner.operation
