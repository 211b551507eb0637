# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Chains of collectives and products that can be cut into pieces together.

A chain begins at all-gathers (or all-to-alls) or at products, and ends at
reduce-scatters, all-reduces, all-to-alls or products. All of its operations are
independent along one dimension: the gathered tokens, or another one such as the
batch, which keeps sequences whole, so that attention is independent, too. All
pieces share the values without that dimension, such as weights.

The search starts at a collective and follows the operations of its block as
long as they can run in the same pieces: each piece of a result needs the same
piece of some operands and all of the others. The chain keeps only the
operations that lead to a product or to its end, or that depend on a product;
the others need not be cut.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
import dataclasses
import math

from jaxlib.mlir import ir

from lagom_xla.passes.program import mlir
from lagom_xla.passes.program.mlir import PRODUCT
from lagom_xla.passes.program.mlir import num_bytes
from lagom_xla.passes.program.mlir import shape_of
from lagom_xla.passes.program.slices import partitioning as partitioning_lib
from lagom_xla.passes.program.slices.partitioning import Cut
from lagom_xla.passes.program.slices.partitioning import Partitioning
from lagom_xla.passes.program.slices.partitioning import dims_of


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Chain:
  """A chain, as plain data.

  Attributes:
    label: its first and last collective, each numbered among those of its kind,
      and the cut dimension of the first one's operand; the same in every
      lowering of a program.
    where: the source line of its first collective in the user's code.
    collectives: StableHLO names, in program order.
    nccl_bytes: sum over its collectives of the larger of input and output, per
      device.
    num_products: number of its matrix products.
    pieces: the numbers of pieces that it can be cut into.
  """

  label: str
  where: str
  collectives: tuple[str, ...]
  nccl_bytes: int
  num_products: int
  pieces: tuple[int, ...]


# One cut per value; None for a value that every piece needs whole.
Cuts = tuple[Cut | None, ...]


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Link:
  """An operation of a chain, in a module without calls.

  Its number is unique in the module. Its name is that of the operation, or of
  the collective that the operation implies. The cut applies to all results; it
  is None for a product that is summed over the pieces.
  """

  number: int
  operation: ir.Operation
  name: str
  cut: Cut | None
  operand_cuts: Cuts

  @property
  def values(self) -> list[tuple[ir.Value, Cut | None]]:
    """Its results and operands, and how each is cut."""
    results = [(result, self.cut) for result in self.operation.results]
    operands = zip(self.operation.operands, self.operand_cuts, strict=True)
    return [*results, *operands]


# A chain and its operations, in program order.
Located = tuple[Chain, tuple[Link, ...]]

_OPENING = frozenset(["stablehlo.all_gather", "stablehlo.all_to_all"])
_CLOSING = frozenset(
  ["stablehlo.all_reduce", "stablehlo.all_to_all", "stablehlo.reduce_scatter"]
)
COLLECTIVES = _OPENING | _CLOSING | {"stablehlo.collective_permute"}
_MARKED = COLLECTIVES | {PRODUCT}
# Attributes for the dimension along which a collective gathers or scatters.
_GATHERED = ("all_gather_dim", "concat_dimension")
_SCATTERED = ("scatter_dimension", "split_dimension")
_NUM_PIECES = (2, 4, 8)


def find(module: ir.Module) -> tuple[Chain, ...]:
  """The chains of a program, in program order; does not change it."""
  with module.context, ir.Location.unknown():
    copy = mlir.copied(module)
    return tuple(chain for chain, _ in locate(copy)[0])


def locate(module: ir.Module) -> tuple[list[Located], Partitioning]:
  """The chains of a module, in program order, and how it is partitioned.

  Inlines calls, which a chain may cross, and adds constraints where XLA's
  partitioner will communicate. The caller must keep the module alive; the
  operations do not.
  """
  mlir.inline_all(module)
  partitioning = Partitioning(module)
  num_before: dict[str, int] = {}
  found: list[Located] = []
  num_operations = 0
  for block in _blocks(module.operation):
    names = [partitioning.name(op.operation) for op in block.operations]
    if COLLECTIVES.isdisjoint(names):
      continue
    flow = _Flow(block, names, num_operations, partitioning)
    num_operations += len(names)
    labels: dict[int, str] = {}
    for number, name in enumerate(names, flow.first):
      if name in COLLECTIVES:
        kind = name.removeprefix("stablehlo.")
        labels[number] = f"{kind}.{num_before.setdefault(kind, 0)}"
        num_before[kind] += 1
    for reached in _chains_of(flow):
      links = tuple(reached[i] for i in sorted(reached))
      found.append((_chain(links, labels, partitioning), links))
  return found, partitioning


def _blocks(operation: ir.Operation) -> Iterator[ir.Block]:
  """The blocks in an operation, outer ones before inner ones."""
  for region in operation.regions:
    for block in region.blocks:
      yield block
      for inner in block.operations:
        yield from _blocks(inner.operation)


def _chain(
  links: Sequence[Link], labels: Mapping[int, str], partitioning: Partitioning
) -> Chain:
  collectives = [link for link in links if link.name in COLLECTIVES]
  first, last = collectives[0], collectives[-1]
  ends = dict.fromkeys([labels[first.number], labels[last.number]])
  (cut, *_) = first.operand_cuts
  assert cut is not None
  nccl_bytes = 0
  for operation in (link.operation for link in collectives):
    if implied := partitioning.implied_by(operation):
      nccl_bytes += implied.nccl_bytes
    else:
      given, taken = operation.operands, operation.results
      nccl_bytes += max(sum(map(num_bytes, v)) for v in (given, taken))
  return Chain(
    label=f"{'-'.join(ends)}:{cut.dim}",
    where=mlir.place_of(first.operation),
    collectives=tuple(link.name for link in collectives),
    nccl_bytes=nccl_bytes,
    num_products=sum(link.name == PRODUCT for link in links),
    pieces=_pieces(links),
  )


def _pieces(links: Iterable[Link]) -> tuple[int, ...]:
  """The numbers of pieces that every value of a chain can be cut into."""
  limit = math.gcd(
    *(
      cut.max_pieces(shape_of(value) or ())
      for link in links
      for value, cut in link.values
      if cut is not None
    )
  )
  return tuple(k for k in _NUM_PIECES if limit % k == 0)


# Operations that are in a chain, by their positions.
_Reached = dict[int, Link]


class _Flow:
  """The operations of a block by position, and their dependences.

  Names are those of the operations, or of the collectives that they imply;
  `first` is the number of the block's first operation.
  """

  def __init__(
    self,
    block: ir.Block,
    names: Sequence[str],
    first: int,
    partitioning: Partitioning,
  ):
    self.operations = [op.operation for op in block.operations]
    self.names = names
    self.first = first
    self.partitioning = partitioning
    positions: dict[ir.Value, int] = {}
    marked: dict[ir.Value, int] = {}
    # Where each operand is defined; None if that is outside of the block.
    self._defined: list[list[int | None]] = []
    # Operations that depend on a product with no collective in between.
    self._after_product: set[int | None] = set()
    for i, operation in enumerate(self.operations):
      defined = [positions.get(v) for v in operation.operands]
      self._defined.append(defined)
      positions.update((result, i) for result in operation.results)
      if names[i] in _MARKED:
        marked.update((result, 1 << i) for result in operation.results)
      if names[i] == PRODUCT or (
        names[i] not in COLLECTIVES
        and not self._after_product.isdisjoint(defined)
      ):
        self._after_product.add(i)
    # Bits of the collectives and products that each operation is or needs.
    needs = mlir.depends(self.operations, marked)
    self._needs = [mlir.bits_of(op, needs) for op in self.operations]

  def forward(self, opening: int, cut: Cut) -> _Reached:
    """Follows a chain from a collective on to products and closings.

    Returns {} if it leads to neither. `cut` is of the opening's results.
    """
    operand_cuts = _operand_cuts(self.operations[opening], cut)
    if operand_cuts is None:
      return {}
    reached = {opening: self._link(opening, cut, operand_cuts)}
    live = {opening}
    for i in range(opening + 1, len(self.operations)):
      if (
        live.isdisjoint(self._defined[i])
        or self.names[i] in COLLECTIVES - _CLOSING
        or self._waits(i, reached, 1 << opening)
      ):
        continue
      known = {
        number: operand_cut
        for number, p in enumerate(self._defined[i])
        if p in reached and (operand_cut := reached[p].cut) is not None
      }
      cuts = _result_cut(self.operations[i], known)
      link = self._link(i, *cuts) if cuts else None
      if link is None or not self._stays_on_devices(link):
        continue
      reached[i] = link
      if link.cut is not None and link.name not in COLLECTIVES:
        live.add(i)
    needed: set[int | None] = set()
    chain: _Reached = {}
    for i in sorted(reached, reverse=True):
      is_end = self.names[i] in _CLOSING | {PRODUCT} and i != opening
      if is_end or i in needed:
        chain[i] = reached[i]
        needed.update(self._defined[i])
    return chain

  def backward(self, closing: int, cut: Cut) -> _Reached:
    """Follows a chain from a collective back to products.

    Returns {} if no product leads to it. `cut` is of the closing's results.
    """
    cuts_of: dict[int | None, set[Cut]] = {closing: {cut}}
    reached: _Reached = {}
    for i in range(closing, -1, -1):
      if len(cuts_of.get(i, ())) != 1:
        continue
      (result_cut,) = cuts_of[i]
      needed = _operand_cuts(self.operations[i], result_cut)
      link = self._link(i, result_cut, needed) if needed else None
      if link is None or not self._stays_on_devices(link):
        continue
      reached[i] = link
      for p, operand_cut in zip(
        self._defined[i], link.operand_cuts, strict=True
      ):
        if operand_cut is not None and p in self._after_product:
          cuts_of.setdefault(p, set()).add(operand_cut)
    chain: _Reached = {}
    for i in sorted(reached):
      if self.names[i] == PRODUCT or not chain.keys().isdisjoint(
        self._defined[i]
      ):
        chain[i] = reached[i]
    return chain

  def can_be_cut(self, reached: _Reached) -> bool:
    """Whether operations have pieces that do not wait for each other.

    A piece waits if an operation outside of the chain takes a whole value of
    the chain and leads back into it, like a residual stream, or if an operation
    takes a value in other pieces than those in which it was made.
    """
    marked = sum(1 << i for i in reached if self.names[i] in _MARKED)
    for i, link in reached.items():
      if self._waits(i, reached, marked):
        return False
      for p, cut in zip(self._defined[i], link.operand_cuts, strict=True):
        if p in reached and reached[p].cut not in (None, cut):
          return False
    return bool(reached and _pieces(reached.values()))

  def _link(self, i: int, cut: Cut | None, operand_cuts: Cuts) -> Link:
    return Link(
      number=self.first + i,
      operation=self.operations[i],
      name=self.names[i],
      cut=cut,
      operand_cuts=operand_cuts,
    )

  def _waits(self, i: int, reached: _Reached, marked: int) -> bool:
    """Whether an operation takes a whole value that needs a marked one."""
    return any(
      p is not None
      and (p not in reached or reached[p].cut is None)
      and self._needs[p] & marked
      for p in self._defined[i]
    )

  def _stays_on_devices(self, link: Link) -> bool:
    """Whether pieces need no communication beyond the chain's own."""
    operation, partitioning = link.operation, self.partitioning
    if link.cut is None and operation.results[0] in partitioning.partial_sums:
      return False
    return not partitioning.moves_data(operation) and all(
      cut is None or cut.parts % partitioning.num_shards(value, cut.dim) == 0
      for value, cut in link.values
    )


def _chains_of(flow: _Flow) -> list[_Reached]:
  """The chains of a block, in program order."""
  opened = [*_opened(flow, gathered=True), *_opened(flow, gathered=False)]
  covered = {i for chain in opened for i in chain}
  return sorted([*opened, *_closed(flow, covered)], key=min)


def _opened(flow: _Flow, *, gathered: bool) -> list[_Reached]:
  """Chains that begin at collectives; chains that share operations merge.

  They are cut along the dimension that the collectives gather, or else along
  the other dimensions.
  """
  chain_of: dict[int, _Reached] = {}
  for opening, name in enumerate(flow.names):
    if name not in _OPENING:
      continue
    along = _changed(flow, opening, _GATHERED)
    cuts = [along] if along else []
    if not gathered:
      cuts = [
        c for c in _cuts(flow, opening) if not along or c.dim != along.dim
      ]
    for cut in cuts:
      reached = flow.forward(opening, cut)
      names = {flow.names[i] for i in reached if i != opening}
      # Weights gathered ahead of their use could be cut along columns; that is
      # no chain.
      if PRODUCT not in names or (not gathered and names.isdisjoint(_CLOSING)):
        continue
      merged = _merged(reached, chain_of)
      if flow.can_be_cut(merged):
        chain_of |= dict.fromkeys(merged, merged)
        break
  return list({id(chain): chain for chain in chain_of.values()}.values())


def _merged(reached: _Reached, chain_of: Mapping[int, _Reached]) -> _Reached:
  """Merges a chain with those that share operations; {} if cuts differ."""
  merged = dict(reached)
  for i in reached:
    chain = chain_of.get(i, {})
    if any(j in merged and merged[j].cut != chain[j].cut for j in chain):
      return {}
    merged |= chain
  return merged


def _closed(flow: _Flow, covered: set[int]) -> Iterator[_Reached]:
  """Chains from products to a collective that is in no other chain.

  Tries the dimension that the collective scatters first.
  """
  for closing, name in enumerate(flow.names):
    if name not in _CLOSING or closing in covered:
      continue
    along = _changed(flow, closing, _SCATTERED)
    for cut in sorted(
      _cuts(flow, closing), key=lambda c: not along or c.dim != along.dim
    ):
      reached = flow.backward(closing, cut)
      if flow.can_be_cut(reached):
        yield reached
        break


def _changed(flow: _Flow, collective: int, names: Iterable[str]) -> Cut | None:
  """The cut of a result along the gathered or scattered dimension."""
  operation = flow.operations[collective]
  implied = flow.partitioning.implied_by(operation)
  if implied is not None:
    return implied.cut
  dim = _dim_of(operation, names)
  return None if dim is None else Cut(dim, _num_devices(operation))


def _cuts(flow: _Flow, collective: int) -> list[Cut]:
  """A cut of a collective's result along each dimension.

  If the partitioner shards the dimension, every device has a part of each
  piece.
  """
  result = flow.operations[collective].results[0]
  dims = range(len(shape_of(result) or ()))
  return [Cut(dim, flow.partitioning.num_shards(result, dim)) for dim in dims]


def _operand_cuts(operation: ir.Operation, cut: Cut) -> Cuts | None:
  """The cuts of the operands that a piece of the results needs.

  None if the operation cannot be done in such pieces.
  """
  shape = shape_of(operation.results[0]) if len(operation.results) else None
  if shape is None or cut.max_pieces(shape) < 2:
    return None
  cuts = _by_rule(operation, cut, shape)
  can_be = cuts and all(
    operand_cut is None or operand_cut.max_pieces(shape_of(operand) or ()) > 1
    for operand, operand_cut in zip(operation.operands, cuts, strict=True)
  )
  return cuts if can_be else None


def _by_rule(
  operation: ir.Operation, cut: Cut, shape: tuple[int, ...]
) -> Cuts | None:
  """The same, by the kind of operation; `shape` is the result's."""
  dim, parts = cut.dim, cut.parts
  shapes = [shape_of(operand) or () for operand in operation.operands]
  same = (cut,) * len(shapes)
  if operation.name in partitioning_lib.ELEMENTWISE:
    # All pieces share a scalar.
    fits = all(operand in (shape, ()) for operand in shapes)
    return (
      tuple(cut if operand else None for operand in shapes) if fits else None
    )
  match operation.name.removeprefix("stablehlo."):
    case mlir.CONSTRAINT | "all_reduce":
      return same
    case "all_gather" | "all_to_all" | "reduce_scatter":
      # Gathering multiplies the parts by the number of devices, scattering
      # divides them by it, and an all-to-all does both.
      group, remainder = _num_devices(operation), 0
      if dim == _dim_of(operation, _GATHERED):
        parts, remainder = divmod(parts, group)
      if dim == _dim_of(operation, _SCATTERED):
        parts *= group
      return None if remainder else (Cut(dim, parts),) * len(shapes)
    case "broadcast_in_dim":
      dims = _integers(operation, "broadcast_dimensions")
      if dim not in dims:
        return (None,)
      of_operand = dims.index(dim)
      is_whole = shapes[0][of_operand] == shape[dim]
      return (Cut(of_operand, parts) if is_whole else None,)
    case "reshape":
      unshaped = _reshaped(cut, shape, shapes[0])
      return None if unshaped is None else (unshaped,)
    case "transpose":
      return (Cut(_integers(operation, "permutation")[dim], parts),)
    case "dot_general":
      dims = dims_of(operation)
      if dim < len(dims.batch):
        return tuple(Cut(of_operand, parts) for of_operand in dims.batch[dim])
      side, of_operand = dims.free[dim - len(dims.batch)]
      of_side = Cut(of_operand, parts)
      return (of_side, None) if side == 0 else (None, of_side)
    case "reduce":
      reduced = _integers(operation, "dimensions")
      left_dims = [d for d in range(len(shapes[0])) if d not in reduced]
      num = len(shapes) // 2
      return (Cut(left_dims[dim], parts),) * num + (None,) * num
    case "concatenate" | "sort":
      return None if dim == _integer(operation, "dimension") else same
    case "reverse":
      return None if dim in _integers(operation, "dimensions") else same
    case "pad":
      padding = ("edge_padding_low", "edge_padding_high", "interior_padding")
      is_padded = any(_integers(operation, name)[dim] for name in padding)
      return None if is_padded else (cut, None)
    case "slice" | "dynamic_slice" | "dynamic_update_slice" as name:
      # Only if the operation reads or writes the whole dimension.
      num = 2 if name == "dynamic_update_slice" else 1
      if any(operand[dim] != shape[dim] for operand in shapes[:num]):
        return None
      return (cut,) * num + (None,) * (len(shapes) - num)
  return None


def _result_cut(
  operation: ir.Operation, known: Mapping[int, Cut]
) -> tuple[Cut | None, Cuts] | None:
  """The cuts of the results and of all operands, given those of some operands.

  `known` has cuts by the operand's number; the other operands are whole, and
  could be cut in any way. None if the operation cannot be done in such pieces.
  The cut of the results is None for a product that is summed over the pieces.
  """
  first, cut = next(iter(known.items()))
  shape = shape_of(operation.results[0]) if len(operation.results) else None
  operand_shape = shape_of(operation.operands[first])
  if shape is None or operand_shape is None:
    return None
  candidates: Iterable[Cut | None]
  if operation.name == "stablehlo.reshape":
    candidates = [_reshaped(cut, operand_shape, shape)]
  else:
    group = _num_devices(operation)
    all_parts = dict.fromkeys((cut.parts, cut.parts * group))
    if cut.parts % group == 0:
      all_parts[cut.parts // group] = None
    candidates = (Cut(dim, p) for dim in range(len(shape)) for p in all_parts)
  for candidate in candidates:
    cuts = None if candidate is None else _operand_cuts(operation, candidate)
    if cuts and all(cuts[n] == known[n] for n in known):
      return candidate, cuts
  if operation.name == PRODUCT and "algorithm" not in operation.attributes:
    for dims in dims_of(operation).contracted:
      cuts = tuple(Cut(dim, cut.parts) for dim in dims)
      if all(cuts[n] == known[n] for n in known):
        return None, cuts
  return None


def _reshaped(
  cut: Cut, shape: Sequence[int], new_shape: Sequence[int]
) -> Cut | None:
  """The same pieces in another shape of the same elements.

  In row-major order, the number of blocks identifies a cut. None if the pieces
  are not along one dimension of the new shape.
  """
  num_blocks = math.prod(shape[: cut.dim]) * cut.parts
  before = 1
  for dim, size in enumerate(new_shape):
    if before <= num_blocks < before * size:
      found = Cut(dim, num_blocks // before)
      fits = num_blocks % before == 0 and found.max_pieces(new_shape)
      return found if fits else None
    before *= size
  return None


def _num_devices(operation: ir.Operation) -> int:
  """The group size of a collective that changes shapes; 1 for others."""
  if operation.name == "stablehlo.all_to_all":
    return _integer(operation, "split_count")
  if operation.name not in ("stablehlo.all_gather", "stablehlo.reduce_scatter"):
    return 1
  taken, given = (
    math.prod(shape_of(value) or (1,))
    for value in (operation.operands[0], operation.results[0])
  )
  return max(taken, given) // max(min(taken, given), 1)


def _dim_of(collective: ir.Operation, names: Iterable[str]) -> int | None:
  """The dimension in the first of these attributes that exists, if any."""
  given = (n for n in names if n in collective.attributes)
  return next((_integer(collective, name) for name in given), None)


def _integer(operation: ir.Operation, name: str) -> int:
  return ir.IntegerAttr(operation.attributes[name]).value


def _integers(operation: ir.Operation, name: str) -> list[int]:
  return list(ir.DenseI64ArrayAttr(operation.attributes[name]))


# A frontend attribute, which a collective keeps until it is scheduled.
CHAIN = "lagom_chain"


def tag(module: ir.Module) -> None:
  """Marks the collectives of chains with their chains' labels, as `CHAIN`.

  Inlines calls.
  """
  with module.context, ir.Location.unknown():
    labels: dict[int, list[str]] = {}
    collectives: dict[int, ir.Operation] = {}
    for chain, links in locate(module)[0]:
      for link in links:
        if link.name in COLLECTIVES:
          labels.setdefault(link.number, []).append(chain.label)
          collectives[link.number] = link.operation
    for number, of_chains in labels.items():
      of_all = ",".join(of_chains)
      mlir.set_frontend_attributes(collectives[number], {CHAIN: of_all})
    partitioning_lib.remove_put_in(module)
