# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""The reach of a cut: how far the operations around a collective are free.

Forward from a collective that opens a chain, or backward from one that closes
it, through the operations of one block, as far as they can be done in the same
pieces. Of what is reached only that is kept which leads to a product or to the
end, or comes from a product: the rest can as well be done in one piece.

Collectives leave dimensions free: one that is gathered gets a part per device,
one that is scattered loses them, and an all-to-all does both. All others are
free.

Another operation can be done piece by piece along a dimension of its result if
each piece of the result needs only that piece of some operands, and others
whole.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
import heapq
import math

from jaxlib.mlir import ir

from lagom_xla.passes.program import mlir
from lagom_xla.passes.program.mlir import shape_of
from lagom_xla.passes.program.slices import implied
from lagom_xla.passes.program.slices.implied import Cut
from lagom_xla.passes.program.slices.implied import Cuts
from lagom_xla.passes.program.slices.implied import reshaped
from lagom_xla.passes.program.slices.shardings import Shardings


def _gathered_dim(operation: ir.Operation) -> int | None:
  """The dimension along which a collective gathers."""
  for name in ("all_gather_dim", "concat_dimension"):
    if name in operation.attributes:
      return _number(operation, name)
  return None


def _scattered_dim(operation: ir.Operation) -> int | None:
  """The dimension along which a collective scatters."""
  for name in ("scatter_dimension", "split_dimension"):
    if name in operation.attributes:
      return _number(operation, name)
  return None


def num_devices(operation: ir.Operation) -> int:
  """The size of the groups of a collective that changes shapes; else 1."""
  if operation.name == "stablehlo.all_to_all":
    return ir.IntegerAttr(operation.attributes["split_count"]).value
  if operation.name not in (
    "stablehlo.all_gather",
    "stablehlo.reduce_scatter",
  ):
    return 1
  elements = [
    math.prod(shape_of(value) or (1,))
    for value in (operation.operands[0], operation.results[0])
  ]
  return max(elements) // max(min(elements), 1)


def _collective(operation: ir.Operation, cut: Cut) -> Cuts | None:
  """What a piece of a collective's result needs; see `operand_cuts`."""
  group, parts = num_devices(operation), cut.parts
  if cut.dim == _gathered_dim(operation):
    parts, remainder = divmod(parts, group)
    if remainder:
      return None
  if cut.dim == _scattered_dim(operation):
    parts *= group
  return _same(operation, Cut(cut.dim, parts))


def _number(operation: ir.Operation, name: str) -> int:
  return ir.IntegerAttr(operation.attributes[name]).value


def operand_cuts(operation: ir.Operation, cut: Cut) -> Cuts | None:
  """What a piece of an operation's results needs of its operands.

  Args:
    operation: any.
    cut: of all its results.

  Returns:
    For each operand, how it is cut, or None where every piece needs all of it;
    None where the operation cannot be done in such pieces.
  """
  shape = shape_of(operation.results[0]) if len(operation.results) else None
  if shape is None or cut.dim >= len(shape) or cut.max_pieces(shape) < 2:
    return None
  if operation.name in implied.ELEMENTWISE:
    return _of_elementwise(operation, cut)
  rule = _RULES.get(operation.name)
  cuts = rule(operation, cut) if rule else None
  for operand, operand_cut in zip(operation.operands, cuts or (), strict=False):
    if operand_cut is None:
      continue
    operand_shape = shape_of(operand)
    if operand_shape is None or operand_cut.max_pieces(operand_shape) < 2:
      return None
  return cuts


def _result_cut(
  operation: ir.Operation, known: Mapping[int, Cut]
) -> Cut | None:
  """How results are cut where operands are cut.

  Args:
    operation: any.
    known: number of an operand -> how it is cut; all others are whole values
      that could be cut in any way.

  Returns:
    None where the operation cannot be done with such pieces.
  """
  first, cut = next(iter(known.items()))
  shape = shape_of(operation.results[0]) if len(operation.results) else None
  operand_shape = shape_of(operation.operands[first])
  if shape is None or operand_shape is None:
    return None
  for candidate in _candidates(operation, cut, operand_shape, shape):
    cuts = operand_cuts(operation, candidate)
    if cuts and all(cuts[i] == known_cut for i, known_cut in known.items()):
      return candidate
  return None


def _summed_cuts(
  operation: ir.Operation, known: Mapping[int, Cut]
) -> Cuts | None:
  """What a piece of a sum needs, of a product that adds up over a cut.

  Args:
    operation: any.
    known: as of `_result_cut`.

  Returns:
    How both operands are cut; None of what is no such product.
  """
  if operation.name != implied.PRODUCT or ("algorithm" in operation.attributes):
    return None
  side, cut = next(iter(known.items()))
  for dims in implied.ProductDims.of(operation).contracted:
    if dims[side] == cut.dim:
      cuts = (Cut(dims[0], cut.parts), Cut(dims[1], cut.parts))
      return cuts if all(cuts[i] == k for i, k in known.items()) else None
  return None


def _candidates(
  operation: ir.Operation,
  cut: Cut,
  operand_shape: tuple[int, ...],
  shape: tuple[int, ...],
) -> list[Cut]:
  if operation.name == "stablehlo.reshape":
    found = reshaped(cut, operand_shape, shape)
    return [found] if found else []
  group = num_devices(operation)
  all_parts = {cut.parts: None, cut.parts * group: None}
  if cut.parts % group == 0:
    all_parts[cut.parts // group] = None
  return [Cut(dim, p) for dim in range(len(shape)) for p in all_parts]


def _of_elementwise(operation: ir.Operation, cut: Cut) -> Cuts | None:
  shape = shape_of(operation.results[0])
  cuts: list[Cut | None] = []
  for operand in operation.operands:
    operand_shape = shape_of(operand)
    if operand_shape not in (shape, ()):
      return None
    cuts.append(cut if operand_shape else None)  # A scalar is for everybody.
  return tuple(cuts)


def _numbers(operation: ir.Operation, name: str) -> list[int]:
  return list(ir.DenseI64ArrayAttr(operation.attributes[name]))


def _same(operation: ir.Operation, cut: Cut) -> Cuts:
  return (cut,) * len(operation.operands)


def _first(operation: ir.Operation, cut: Cut, num: int = 1) -> Cuts:
  return (cut,) * num + (None,) * (len(operation.operands) - num)


def _broadcast(operation: ir.Operation, cut: Cut) -> Cuts | None:
  dims = _numbers(operation, "broadcast_dimensions")
  (operand,) = operation.operands
  if cut.dim not in dims:
    return (None,)
  dim = dims.index(cut.dim)
  sizes, result = shape_of(operand), shape_of(operation.results[0])
  if sizes is None or result is None:
    return None
  is_whole = sizes[dim] == result[cut.dim]
  return (Cut(dim, cut.parts) if is_whole else None,)


def _reshape(operation: ir.Operation, cut: Cut) -> Cuts | None:
  operand, result = operation.operands[0], operation.results[0]
  found = reshaped(cut, shape_of(result) or (), shape_of(operand) or ())
  return (found,) if found else None


def _transpose(operation: ir.Operation, cut: Cut) -> Cuts:
  return (Cut(_numbers(operation, "permutation")[cut.dim], cut.parts),)


def _dot(operation: ir.Operation, cut: Cut) -> Cuts | None:
  dims = implied.ProductDims.of(operation)
  if cut.dim < len(dims.batch):
    lhs, rhs = dims.batch[cut.dim]
    return Cut(lhs, cut.parts), Cut(rhs, cut.parts)
  side, dim = dims.free[cut.dim - len(dims.batch)]
  taken = Cut(dim, cut.parts)
  return (taken, None) if side == 0 else (None, taken)


def _reduce(operation: ir.Operation, cut: Cut) -> Cuts:
  num_inputs = len(operation.operands) // 2
  rank = len(shape_of(operation.operands[0]) or ())
  reduced = _numbers(operation, "dimensions")
  kept = [dim for dim in range(rank) if dim not in reduced]
  return _first(operation, Cut(kept[cut.dim], cut.parts), num_inputs)


def _along_one(operation: ir.Operation, cut: Cut) -> Cuts | None:
  """Of what joins or sorts along one dimension."""
  along = ir.IntegerAttr(operation.attributes["dimension"]).value
  return None if cut.dim == along else _same(operation, cut)


def _untouched(operation: ir.Operation, cut: Cut) -> Cuts | None:
  """Of what takes, or writes to, all of some dimensions."""
  result = shape_of(operation.results[0]) or ()
  num = 2 if operation.name == "stablehlo.dynamic_update_slice" else 1
  for operand in list(operation.operands)[:num]:
    if (shape_of(operand) or ())[cut.dim] != result[cut.dim]:
      return None
  return _first(operation, cut, num)


def _pad(operation: ir.Operation, cut: Cut) -> Cuts | None:
  names = ("edge_padding_low", "edge_padding_high", "interior_padding")
  if any(_numbers(operation, name)[cut.dim] for name in names):
    return None
  return _first(operation, cut)


def _reverse(operation: ir.Operation, cut: Cut) -> Cuts | None:
  return None if cut.dim in _numbers(operation, "dimensions") else (cut,)


_RULES = {
  "sdy.sharding_constraint": _same,
  "stablehlo.all_gather": _collective,
  "stablehlo.all_reduce": _same,
  "stablehlo.all_to_all": _collective,
  "stablehlo.broadcast_in_dim": _broadcast,
  "stablehlo.concatenate": _along_one,
  "stablehlo.dot_general": _dot,
  "stablehlo.dynamic_slice": _untouched,
  "stablehlo.dynamic_update_slice": _untouched,
  "stablehlo.pad": _pad,
  "stablehlo.reduce": _reduce,
  "stablehlo.reduce_scatter": _collective,
  "stablehlo.reshape": _reshape,
  "stablehlo.reverse": _reverse,
  "stablehlo.slice": _untouched,
  "stablehlo.sort": _along_one,
  "stablehlo.transpose": _transpose,
}


OPENING = frozenset(["stablehlo.all_gather", "stablehlo.all_to_all"])
CLOSING = frozenset(
  ["stablehlo.all_reduce", "stablehlo.all_to_all", "stablehlo.reduce_scatter"]
)
COLLECTIVES = OPENING | CLOSING | {"stablehlo.collective_permute"}
PRODUCT = implied.PRODUCT
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
      found = _result_cut(self.operations[i], known)
      if not self._stays_on_devices(i, found, known):
        continue
      if found or _summed_cuts(self.operations[i], known):
        reached[i] = found
    kept: set[int] = set()
    for i in sorted(reached, reverse=True):
      is_end = self.names[i] in _ENDS and i != opening
      if is_end or not kept.isdisjoint(self._users[i]):
        kept.add(i)
    return {i: reached[i] for i in sorted(kept)}

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
      needed = operand_cuts(self.operations[i], found)
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
    return {i: reached[i] for i in sorted(kept)}

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
      cuts = _summed_cuts(self.operations[i], known)
    else:
      cuts = operand_cuts(self.operations[i], cut)
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


NUM_PIECES = (2, 4, 8)


def chains_of(block: Block) -> list[Reached]:
  """The chains of a block, in program order."""
  opened = [*_opened(block, _gathered), *_opened(block, _not_gathered)]
  covered = {i for chain in opened for i in chain}
  return sorted([*opened, *_closed(block, covered)], key=min)


def _opened(
  block: Block, cuts_of: Callable[[Block, int], list[Cut]]
) -> list[Reached]:
  """Chains from collectives on; those that share an operation are one."""
  chain_of: dict[int, Reached] = {}
  for opening, name in enumerate(block.names):
    if name not in OPENING:
      continue
    for cut in cuts_of(block, opening):
      reached = block.forward(opening, cut)
      names = {block.names[i] for i in reached if i != opening}
      # Weights that are gathered before they are needed have columns that are
      # free: that makes no chain.
      if PRODUCT not in names or (
        cuts_of is not _gathered and names.isdisjoint(CLOSING)
      ):
        continue
      merged = _merged(reached, chain_of)
      if _can_be_cut(block, merged):
        chain_of |= dict.fromkeys(merged, merged)
        break
  return list({id(chain): chain for chain in chain_of.values()}.values())


def _merged(reached: Reached, chain_of: Mapping[int, Reached]) -> Reached:
  """With all chains that share an operation; empty if that is cut otherwise."""
  merged = dict(reached)
  for i in reached:
    chain = chain_of.get(i, {})
    if any(merged.get(j, cut) != cut for j, cut in chain.items()):
      return {}
    merged |= chain
  return merged


def _closed(block: Block, covered: set[int]) -> Iterator[Reached]:
  """Chains from products to a collective that is in no other chain."""
  for closing, name in enumerate(block.names):
    if name not in CLOSING or closing in covered:
      continue
    for cut in _along(block, closing):
      reached = block.backward(closing, cut)
      if _can_be_cut(block, reached):
        yield reached
        break


def _can_be_cut(block: Block, reached: Reached) -> bool:
  return (
    bool(reached)
    and block.is_independent(reached)
    and bool(possible(block, reached))
  )


def possible(block: Block, reached: Reached) -> tuple[int, ...]:
  """The numbers of pieces that every value of a chain can be cut into."""
  limit = 0
  for i, cut in reached.items():
    operation, needed = block.operations[i], block.needed_cuts(i, reached)
    for value, value_cut in [
      (operation.results[0], cut),
      *zip(operation.operands, needed, strict=True),
    ]:
      if value_cut is not None:
        limit = math.gcd(limit, value_cut.max_pieces(shape_of(value) or ()))
  return tuple(k for k in NUM_PIECES if limit % k == 0)


def _gathered(block: Block, opening: int) -> list[Cut]:
  """The cut of an opening's results along what it gathers."""
  operation = block.operations[opening]
  if implied.is_implied(operation):
    cut = implied.cut_of(operation)
    return [cut] if cut else []
  dim = _gathered_dim(operation)
  assert dim is not None
  return [Cut(dim, num_devices(operation))]


def _not_gathered(block: Block, opening: int) -> list[Cut]:
  gathered = {cut.dim for cut in _gathered(block, opening)}
  return [cut for cut in _cuts(block, opening) if cut.dim not in gathered]


def _along(block: Block, closing: int) -> list[Cut]:
  """Cuts of a closing's results: first along what it scatters."""
  operation = block.operations[closing]
  scattered = _scattered_dim(operation)
  if implied.is_implied(operation):
    cut = implied.cut_of(operation)
    scattered = cut.dim if cut else None
  return sorted(_cuts(block, closing), key=lambda cut: cut.dim != scattered)


def _cuts(block: Block, collective: int) -> list[Cut]:
  """A cut of a collective's result along each dimension.

  Of one that the partitioner shards, every device has a part of each piece.
  """
  result = block.operations[collective].results[0]
  dims = range(len(shape_of(result) or ()))
  return [Cut(dim, block.shardings.num_shards(result, dim)) for dim in dims]
