# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Slices: a chain done piece by piece, each piece with collectives of its own.

While one piece is communicated, the next one's products run: what T3 (arXiv
2401.16677) does in hardware, in software. Where a value of the chain is needed
whole, such as what is saved for the backward pass, its pieces are put together
again, in the order that they had.

Every number comes from the same operations on the same values, with one
exception: a product that contracts over what is cut, as a weight's gradient
does over tokens, becomes a sum of products, in float32 and rounded once (to put
its operands together would cost the time that slices save). With n terms, that
is within n roundings of float32 of the sum of their magnitudes.

XLA would join the pieces again. Its combiners keep collectives of different
`combiner_key`s apart; its dot merger, which joins small products that share an
operand, sees each piece take the shared one through a barrier of its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
import functools
from typing import Any

from jaxlib.mlir import ir
from jaxlib.mlir.dialects import sdy
from jaxlib.mlir.dialects import stablehlo

from lagom_xla.passes.program import mlir
from lagom_xla.passes.program.form import Outcome
from lagom_xla.passes.program.form import Refusal
from lagom_xla.passes.program.mlir import num_bytes
from lagom_xla.passes.program.mlir import shape_of
from lagom_xla.passes.program.slices import chains as chains_lib
from lagom_xla.passes.program.slices import implied
from lagom_xla.passes.program.slices import reach
from lagom_xla.passes.program.slices import shardings as shardings_lib
from lagom_xla.passes.program.slices.implied import Cut
from lagom_xla.passes.program.slices.shardings import Shardings


def piece_type(value: ir.Value, cut: Cut, num: int) -> ir.Type:
  """The type of each of `num` pieces of a value."""
  sizes = list(shape_of(value) or ())
  sizes[cut.dim] //= num
  return _with_shape(value, sizes)


def take(
  value: ir.Value, cut: Cut, num: int, sharding: Any = None
) -> list[ir.Value]:
  """The pieces of a value, at the current insertion point.

  Args:
    value: a tensor whose shape is known.
    cut: how it is cut.
    num: of pieces; each of the cut's parts can be divided by it.
    sharding: of the value and of each piece, so that no data moves.
  """
  dim, sizes = cut.dim, list(shape_of(value) or ())
  type_ = piece_type(value, cut, num)
  if cut.parts > 1:
    # (..., tokens, ...) as (..., parts, pieces, tokens of both, ...).
    size = sizes[dim] // (cut.parts * num)
    sizes[dim : dim + 1] = [cut.parts, num, size]
    value = stablehlo.reshape(_with_shape(value, sizes), value)
    value = _constrained_parts(value, sharding, dim)
    dim += 1
  size = sizes[dim] // num
  pieces: list[ir.Value] = []
  for j in range(num):
    starts, limits = [0] * len(sizes), list(sizes)
    starts[dim], limits[dim] = j * size, (j + 1) * size
    piece = stablehlo.slice(value, starts, limits, [1] * len(sizes))
    piece = stablehlo.reshape(type_, piece) if cut.parts > 1 else piece
    pieces.append(constrained(piece, sharding))
  return pieces


def put_together(
  pieces: Sequence[ir.Value], cut: Cut, sharding: Any = None
) -> ir.Value:
  """The value of which these are the pieces, at the insertion point."""
  dim, sizes = cut.dim, list(shape_of(pieces[0]) or ())
  if cut.parts == 1:
    return constrained(stablehlo.concatenate(pieces, dim), sharding)
  whole = list(sizes)
  whole[dim] *= len(pieces)
  type_ = _with_shape(pieces[0], whole)
  # Along tokens: XLA moves no more elements a thread than that dimension has.
  sizes[dim : dim + 1] = [cut.parts, sizes[dim] // cut.parts]
  in_blocks = [
    stablehlo.reshape(_with_shape(piece, sizes), piece) for piece in pieces
  ]
  together = stablehlo.concatenate(in_blocks, dim + 1)
  together = _constrained_parts(together, sharding, dim)
  return constrained(stablehlo.reshape(type_, together), sharding)


def add_up(products: Sequence[ir.Operation]) -> ir.Value:
  """What products over pieces add up to, at the insertion point.

  It is rounded to their type once, as the product of the whole is.

  Args:
    products: with results of their final type; those become sums in float32
      where the type is narrower.
  """
  result_type: Any = products[0].results[0].type
  element = result_type.element_type
  if isinstance(element, ir.BF16Type | ir.F16Type):
    element = ir.F32Type.get()
  wide = ir.RankedTensorType.get(result_type.shape, element)
  for product in products:
    product.results[0].set_type(wide)
  total = functools.reduce(stablehlo.add, [p.results[0] for p in products])
  return total if wide == result_type else stablehlo.convert(result_type, total)


def constrained(value: ir.Value, sharding: Any) -> ir.Value:
  """A value held to a sharding, if there is one."""
  if sharding is None:
    return value
  return sdy.ShardingConstraintOp(value, sharding).result


def _constrained_parts(value: ir.Value, sharding: Any, dim: int) -> ir.Value:
  """A value whose dimension became several, of which the first is sharded."""
  if sharding is None:
    return value
  rank = len(shape_of(value) or ())
  return constrained(value, shardings_lib.split(sharding, dim, rank))


def _with_shape(value: ir.Value, sizes: Sequence[int]) -> ir.Type:
  type_: Any = value.type
  return ir.RankedTensorType.get(sizes, type_.element_type)


# XLA joins products of which at least one has no more bytes of operands and
# result than this: the default of its option xla_gpu_dot_merger_threshold_mb
# (xla/debug_options_flags.cc, xla/service/dot_merger.h), on a device. A barrier
# costs a copy where it parts a product from the slice of a weight that would be
# fused.
_MERGED_BYTES = 32 << 20


def cut(module: ir.Module, pieces: Mapping[str, int]) -> Outcome:
  """Cuts chains of a program in pieces, in place.

  Args:
    module: a lowered program; its calls are inlined even if nothing is cut.
    pieces: label of a chain (`chains.find`) -> number of pieces.

  Returns:
    What was cut, and what not.
  """
  with module.context, ir.Location.unknown():
    if not pieces:
      return Outcome()
    shardings = chains_lib.prepare(module)
    found = chains_lib.locate(module, shardings)
    accepted, refusals = _decide(found, pieces)
    located = {chain.chain.label: chain for chain in found}
    actions = []
    for label, num in accepted.items():
      _Cutting(located[label], num, shardings).run()
      chain = located[label].chain
      actions.append(
        f"cut the chain {label} at {chain.where} ({len(chain.collectives)}"
        f" collectives, {chain.num_products} products) into {num} pieces"
      )
    implied.remove_notes(module)
  return Outcome(actions=tuple(actions), refusals=refusals)


def _decide(
  found: Iterable[chains_lib.Located], pieces: Mapping[str, int]
) -> tuple[dict[str, int], tuple[Refusal, ...]]:
  by_label = {located.chain.label: located for located in found}
  accepted: dict[str, int] = {}
  refusals: list[Refusal] = []
  cut_by: dict[int, str] = {}
  for label, num in pieces.items():
    located = by_label.get(label)
    if located is None:
      refusals.append(
        Refusal(where=f"the chain {label}", reason="is not in this program")
      )
      continue
    if num == 1:
      continue
    where = f"the chain {label} at {located.chain.where}"
    numbers = [link.number for link in located.links]
    other = next((cut_by[n] for n in numbers if n in cut_by), None)
    if num not in located.chain.pieces:
      possible = ", ".join(map(str, (1, *located.chain.pieces)))
      reason = f"can be cut into {possible} pieces, not {num}"
    elif other is not None:
      reason = f"shares operations with {other}, which is cut"
    else:
      accepted[label] = num
      cut_by |= dict.fromkeys(numbers, label)
      continue
    refusals.append(Refusal(where=where, reason=reason))
  return accepted, tuple(refusals)


class _Cutting:
  """Puts pieces in the place of a chain's operations.

  jaxlib's hash of an operation changes with its operands: no dictionary has
  operations for keys here.
  """

  def __init__(
    self, located: chains_lib.Located, num: int, shardings: Shardings
  ):
    self._shardings = shardings
    self._label = located.chain.label
    self._links = located.links
    self._num = num
    # Of the chain's results and of what it takes from outside.
    self._pieces: dict[tuple[ir.Value, Cut], list[ir.Value]] = {}

  def run(self) -> None:
    """Cuts the chain."""
    for link in self._links:
      self._replicate(link)
    # The last first: what then still uses a result is outside of the chain.
    for link in reversed(self._links):
      if link.cut is not None:
        self._put_together(link.operation, link.cut)
      self._shardings.forget(link.operation.results)
      link.operation.erase()

  def _replicate(self, link: chains_lib.Link) -> None:
    operation, cut_ = link.operation, link.cut
    with ir.InsertionPoint(operation), operation.location:
      operands = [
        self._pieces_of(operand, operand_cut)
        for operand, operand_cut in zip(
          operation.operands, link.operand_cuts, strict=True
        )
      ]
      if operation.name == reach.PRODUCT and self._may_be_merged(link):
        operands = _apart(operands)
      copies = [operation.clone().operation for _ in range(self._num)]
      for j, copy in enumerate(copies):
        for i, of_operand in enumerate(operands):
          copy.operands[i] = of_operand[j]
        if implied.kind(copy) in reach.COLLECTIVES:
          key = f"{self._label}/{j}"
          mlir.set_frontend_attributes(
            copy,
            {chains_lib.CHAIN: self._label, mlir.COMBINER_KEY: key},
          )
          implied.keep(copy)
      if cut_ is None:
        (result,) = operation.results
        sharding = self._shardings.of(result)
        total = add_up(copies)
        total = constrained(total, sharding)
        result.replace_all_uses_with(total)
        self._shardings.replace(result, total)
        return
    for copy in copies:
      for result in copy.results:
        result.set_type(piece_type(result, cut_, self._num))
      _set_size(copy, cut_.dim, self._num)
    for i, result in enumerate(operation.results):
      self._pieces[result, cut_] = [copy.results[i] for copy in copies]

  def _may_be_merged(self, product: chains_lib.Link) -> bool:
    """Whether XLA's dot merger looks at the pieces of a product."""
    operation = product.operation
    total = 0
    for value, cut_ in [
      (operation.results[0], product.cut),
      *zip(operation.operands, product.operand_cuts, strict=True),
    ]:
      on_device = num_bytes(value) // self._shardings.num_in_all(value)
      total += on_device // (self._num if cut_ else 1)
    return total <= _MERGED_BYTES

  def _pieces_of(self, value: ir.Value, cut_: Cut | None) -> list[ir.Value]:
    if cut_ is None:
      return [value] * self._num
    if (value, cut_) not in self._pieces:
      self._pieces[value, cut_] = take(
        value, cut_, self._num, self._shardings.of(value)
      )
    return self._pieces[value, cut_]

  def _put_together(self, operation: ir.Operation, cut_: Cut) -> None:
    """Gives the users outside of the chain the whole of each result."""
    for result in operation.results:
      if next(iter(result.uses), None) is not None:
        with ir.InsertionPoint(operation), operation.location:
          pieces = self._pieces[result, cut_]
          sharding = self._shardings.of(result)
          whole = put_together(pieces, cut_, sharding)
          result.replace_all_uses_with(whole)
          self._shardings.replace(result, whole)


def _apart(operands: list[list[ir.Value]]) -> list[list[ir.Value]]:
  """Operands of pieces' products, none of which share a value.

  What is shared goes through a barrier with what is not.
  """
  together = [
    stablehlo.optimization_barrier(list(of_piece))
    for of_piece in zip(*operands, strict=True)
  ]
  return [list(of_operand) for of_operand in zip(*together, strict=True)]


# Attributes with a size for each dimension, which a piece has less of.
_SIZES = {
  "stablehlo.dynamic_slice": "slice_sizes",
  "stablehlo.slice": "limit_indices",
}


def _set_size(operation: ir.Operation, dim: int, num: int) -> None:
  """Says in a piece's attributes how large it is along a dimension."""
  name = _SIZES.get(operation.name)
  if name is None:
    return
  sizes = list(ir.DenseI64ArrayAttr(operation.attributes[name]))
  sizes[dim] //= num
  operation.attributes[name] = ir.DenseI64ArrayAttr.get(sizes)
