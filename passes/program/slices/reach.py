# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""The reach of a cut: how far the operations around a collective are free.

Forward from a collective that opens a chain, or backward from one that closes
it, through the operations of one block, as far as they can be done in the same
pieces. Of what is reached only that is kept which leads to a product or to the
end, or comes from a product: the rest can as well be done in one piece.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
import heapq

from jaxlib.mlir import ir

from lagom_xla.passes.program import mlir
from lagom_xla.passes.program.slices import dimensions
from lagom_xla.passes.program.slices import implied
from lagom_xla.passes.program.slices.implied import Cut
from lagom_xla.passes.program.slices.implied import Cuts
from lagom_xla.passes.program.slices.shardings import Shardings

OPENING = frozenset(["stablehlo.all_gather", "stablehlo.all_to_all"])
CLOSING = frozenset(
  ["stablehlo.all_reduce", "stablehlo.all_to_all", "stablehlo.reduce_scatter"]
)
COLLECTIVES = OPENING | CLOSING | {"stablehlo.collective_permute"}
PRODUCT = "stablehlo.dot_general"
_ENDS = CLOSING | {PRODUCT}
_MARKED = COLLECTIVES | {PRODUCT}

# How results of operations are cut, by their positions. All results of one are
# cut alike; those of a product that adds up over the pieces are whole, which is
# None.
Reached = dict[int, Cut | None]


class Block:
  """The operations of a block, by their positions.

  It describes the block as it was when this was made. jaxlib's hash of an
  operation is slow and changes with the operands; positions do not.

  Attributes:
    operations: in order.
    names: theirs, or of the collectives that they imply.
    shardings: of the program's values.
  """

  def __init__(self, block: ir.Block, shardings: Shardings):
    self.operations = [op.operation for op in block.operations]
    self.names = [implied.kind(op) for op in self.operations]
    self.shardings = shardings
    position: dict[ir.Value, int] = {}
    # Where each operand is defined; None where that is not in the block.
    self._defined: list[list[int | None]] = []
    self._users: list[list[int]] = [[] for _ in self.operations]
    # Collectives and products that each operation needs, as bits.
    self._needs: list[int] = []
    for i, operation in enumerate(self.operations):
      defined = [position.get(value) for value in operation.operands]
      self._defined.append(defined)
      used = defined
      if len(operation.regions):
        used = [position.get(v) for v in mlir.used_values(operation)]
      needs = 1 << i if self.names[i] in _MARKED else 0
      for p in used:
        if p is not None:
          needs |= self._needs[p]
      self._needs.append(needs)
      for p in {p for p in defined if p is not None}:
        self._users[p].append(i)
      position |= dict.fromkeys(operation.results, i)
    self._after_product = self._find_after_product()

  def forward(self, opening: int, cut: Cut) -> Reached:
    """What an opening leads to: products and closings, and all on the way.

    Args:
      opening: a collective of the block.
      cut: of its results.

    Returns:
      With the opening itself; empty where it leads to neither.
    """
    reached: Reached = {opening: cut}
    for i in self._users_in_order(opening, reached):
      if self._waits(i, reached, 1 << opening):
        continue
      known = self._known_cuts(i, reached)
      found = dimensions.result_cut(self.operations[i], known)
      if not self._stays_on_devices(i, found, known):
        continue
      if found or dimensions.summed_cuts(self.operations[i], known):
        reached[i] = found
    kept: set[int] = set()
    for i in sorted(reached, reverse=True):
      is_end = self.names[i] in _ENDS and i != opening
      if is_end or not kept.isdisjoint(self._users[i]):
        kept.add(i)
    return _only(kept, reached)

  def backward(self, closing: int, cut: Cut) -> Reached:
    """What a closing takes from products, and all on the way.

    Args:
      closing: a collective of the block.
      cut: of its results.

    Returns:
      With the closing itself; empty where no product leads to it.
    """
    asked: dict[int, set[Cut]] = {closing: {cut}}
    reached: Reached = {}
    todo = [-closing]
    while todo:
      i = -heapq.heappop(todo)
      found, *others = asked[i]
      needed = dimensions.operand_cuts(self.operations[i], found)
      known = {p: cut for p, cut in enumerate(needed or ()) if cut}
      if others or needed is None:
        continue
      if not self._stays_on_devices(i, found, known):
        continue
      reached[i] = found
      for p, operand_cut in zip(self._defined[i], needed, strict=True):
        if operand_cut is None or p is None or p not in self._after_product:
          continue
        if p not in asked:
          asked[p] = set()
          heapq.heappush(todo, -p)
        asked[p].add(operand_cut)
    kept: set[int] = set()
    for i in sorted(reached):
      if self.names[i] == PRODUCT or not kept.isdisjoint(self._defined[i]):
        kept.add(i)
    return _only(kept, reached)

  def is_independent(self, reached: Reached) -> bool:
    """Whether no piece of a chain waits for other pieces of it.

    It would where something outside of the chain depends on the whole of a
    value of it and comes back, as a residual stream does.
    """
    marked = sum(1 << i for i in reached if self.names[i] in _MARKED)
    return not any(self._waits(i, reached, marked) for i in reached)

  def needed_cuts(self, i: int, reached: Reached) -> Cuts:
    """How the operands of an operation that is reached are cut for it."""
    cut = reached[i]
    if cut is None:
      known = self._known_cuts(i, reached)
      cuts = dimensions.summed_cuts(self.operations[i], known)
    else:
      cuts = dimensions.operand_cuts(self.operations[i], cut)
    assert cuts is not None
    return cuts

  def _waits(self, i: int, reached: Reached, marked: int) -> bool:
    """Whether a whole value that an operation takes needs what is marked."""
    return any(
      p is not None and reached.get(p) is None and self._needs[p] & marked
      for p in self._defined[i]
    )

  def _known_cuts(self, i: int, reached: Reached) -> dict[int, Cut]:
    """How those operands are cut that are reached, by their numbers."""
    known = {}
    for number, p in enumerate(self._defined[i]):
      cut = None if p is None else reached.get(p)
      if cut is not None:
        known[number] = cut
    return known

  def _stays_on_devices(
    self, i: int, cut: Cut | None, known: Mapping[int, Cut]
  ) -> bool:
    """Whether devices have all pieces of their parts, and sum up nothing."""
    operation = self.operations[i]
    if cut is None and known and implied.is_partial_sum(operation):
      return False
    if implied.moves_data(operation, self.shardings):
      return False
    return all(
      value_cut.parts % self.shardings.num_shards(value, value_cut.dim) == 0
      for value, value_cut in [
        *((result, cut) for result in operation.results if cut),
        *((operation.operands[p], cut) for p, cut in known.items()),
      ]
    )

  def _users_in_order(self, opening: int, reached: Reached) -> Iterator[int]:
    """Users of what is reached, in order, while more of them are reached."""
    todo = list(self._users[opening])
    seen = set(todo)
    while todo:
      i = heapq.heappop(todo)
      if self.names[i] in COLLECTIVES - CLOSING:
        continue
      yield i
      if reached.get(i) is None or self.names[i] in COLLECTIVES:
        continue
      for user in self._users[i]:
        if user not in seen:
          seen.add(user)
          heapq.heappush(todo, user)

  def _find_after_product(self) -> set[int]:
    """Operations with a product before them and no collective between."""
    found: set[int] = set()
    for i, name in enumerate(self.names):
      if name not in COLLECTIVES and (
        name == PRODUCT or not found.isdisjoint(self._defined[i])
      ):
        found.add(i)
    return found


def _only(kept: Iterable[int], reached: Mapping[int, Cut | None]) -> Reached:
  return {i: reached[i] for i in sorted(kept)}
