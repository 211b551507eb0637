# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Slices: a chain done piece by piece, each piece with its own collectives.

While one piece is communicated, the next piece's products run: a software
version of T3 (arXiv 2401.16677), which is hardware. If a value of the chain is
needed whole, such as one saved for the backward pass, its pieces are
concatenated in order.

All numbers come from the same operations on the same values, with one
exception: a product that contracts over the cut dimension, as a weight's
gradient does over tokens, becomes a sum of products in float32, rounded once
(concatenating its operands would cost the time that slices save). With n terms,
the error is within n float32 roundings of the sum of their magnitudes.

XLA would join the pieces again. Different `combiner_key`s keep its combiners
from that. Its dot merger, which joins small products with a shared operand,
finds none, because each piece takes it through its own barrier.
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
from lagom_xla.passes.program.slices import partitioning as partitioning_lib
from lagom_xla.passes.program.slices.chains import Link
from lagom_xla.passes.program.slices.partitioning import Cut
from lagom_xla.passes.program.slices.partitioning import Partitioning

# XLA joins products if at least one of them has at most this many bytes of
# operands and result on a device: the default of its option
# xla_gpu_dot_merger_threshold_mb (xla/debug_options_flags.cc,
# xla/service/dot_merger.h). Without the limit, barriers would cost copies: a
# barrier between a product and the slice of its weight prevents their fusion.
_MERGED_BYTES = 32 << 20


def cut(module: ir.Module, pieces: Mapping[str, int]) -> Outcome:
  """Cuts a program's chains, by label, into pieces, in place.

  Inlines calls even if nothing is cut.
  """
  if not pieces:
    return Outcome()
  found, partitioning = chains_lib.locate(module)
  by_label = {chain.label: (chain, links) for chain, links in found}
  accepted, refusals = _decide(by_label, pieces)
  actions = []
  for label in accepted:
    (chain, links), num = by_label[label], pieces[label]
    _Cutting(label, num, partitioning).run(links)
    actions.append(
      f"cut the chain {label} at {chain.where} ({len(chain.collectives)}"
      f" collectives, {chain.num_products} matmuls) into {num} pieces"
    )
  partitioning_lib.remove_put_in(module)
  return Outcome(actions=tuple(actions), refusals=tuple(refusals))


def _decide(
  by_label: Mapping[str, chains_lib.Located], pieces: Mapping[str, int]
) -> tuple[list[str], list[Refusal]]:
  accepted: list[str] = []
  refusals: list[Refusal] = []
  cut_by: dict[int, str] = {}
  for label, num in pieces.items():
    where = f"the chain {label}"
    if label not in by_label:
      refusals.append(Refusal(where=where, reason="is not in this program"))
      continue
    if num == 1:
      continue
    chain, links = by_label[label]
    where += f" at {chain.where}"
    numbers = [link.number for link in links]
    other = next((cut_by[n] for n in numbers if n in cut_by), None)
    if num in chain.pieces and other is None:
      accepted.append(label)
      cut_by |= dict.fromkeys(numbers, label)
      continue
    reason = f"shares operations with {other}, which is cut"
    if num not in chain.pieces:
      possible = ", ".join(map(str, (1, *chain.pieces)))
      reason = f"can be cut into {possible} pieces, not {num}"
    refusals.append(Refusal(where=where, reason=reason))
  return accepted, refusals


class _Cutting:
  """Replaces a chain's operations by pieces.

  jaxlib's hash of an operation changes with its operands, so operations are
  never dictionary keys here.
  """

  def __init__(self, label: str, num: int, partitioning: Partitioning):
    self._label = label
    self._num = num
    self._partitioning = partitioning
    # Pieces of the chain's results and of its operands from outside.
    self._pieces: dict[tuple[ir.Value, Cut], Sequence[ir.Value]] = {}

  def run(self, links: Sequence[Link]) -> None:
    """Cuts the chain."""
    for link in links:
      with ir.InsertionPoint(link.operation), link.operation.location:
        self._replicate(link)
    # Last first, so that remaining uses of a result are outside of the chain.
    for link in reversed(links):
      operation, cut_ = link.operation, link.cut
      for result in operation.results:
        if cut_ is not None and next(iter(result.uses), None) is not None:
          with ir.InsertionPoint(operation), operation.location:
            pieces = self._pieces[result, cut_]
            sharding = self._partitioning.of(result)
            self._replace(result, _put_together(pieces, cut_, sharding))
      self._partitioning.forget(operation.results)
      operation.erase()

  def _replicate(self, link: Link) -> None:
    operation, num = link.operation, self._num
    operands = [
      [operand] * num
      if operand_cut is None
      else self._pieces_of(operand, operand_cut)
      for operand, operand_cut in zip(
        operation.operands, link.operand_cuts, strict=True
      )
    ]
    # By piece.
    taken: list[tuple[ir.Value, ...]] = list(zip(*operands, strict=True))
    if link.name == mlir.PRODUCT and self._may_be_merged(link):
      # A barrier per piece, so that pieces share no value.
      barriers = map(stablehlo.OptimizationBarrierOp, taken)
      taken = [tuple(barrier.operation.results) for barrier in barriers]
    copies = [operation.clone().operation for _ in range(num)]
    for j, copy in enumerate(copies):
      for i, value in enumerate(taken[j]):
        copy.operands[i] = value
      if link.name in chains_lib.COLLECTIVES:
        key = f"{self._label}/{j}"
        mlir.set_frontend_attributes(
          copy, {chains_lib.CHAIN: self._label, mlir.COMBINER_KEY: key}
        )
        partitioning_lib.keep(copy)
    if link.cut is None:
      (result,) = operation.results
      total = _add_up(copies)
      self._replace(result, _constrained(total, self._partitioning.of(result)))
      return
    for copy in copies:
      for result in copy.results:
        sizes = list(shape_of(result) or ())
        sizes[link.cut.dim] //= num
        result.set_type(_with_shape(result, sizes))
      if operation.name in _SIZES:
        name = _SIZES[operation.name]
        sizes = list(ir.DenseI64ArrayAttr(copy.attributes[name]))
        sizes[link.cut.dim] //= num
        copy.attributes[name] = ir.DenseI64ArrayAttr.get(sizes)
    for i, result in enumerate(operation.results):
      self._pieces[result, link.cut] = [copy.results[i] for copy in copies]

  def _replace(self, result: ir.Value, value: ir.Value) -> None:
    result.replace_all_uses_with(value)
    self._partitioning.replace(result, value)

  def _pieces_of(self, value: ir.Value, cut_: Cut) -> Sequence[ir.Value]:
    if (value, cut_) not in self._pieces:
      sharding = self._partitioning.of(value)
      self._pieces[value, cut_] = _take(value, cut_, self._num, sharding)
    return self._pieces[value, cut_]

  def _may_be_merged(self, product: Link) -> bool:
    """Whether XLA's dot merger would join the pieces of a product."""
    num_shards = self._partitioning.num_shards
    total = sum(
      num_bytes(value) // num_shards(value) // (self._num if cut_ else 1)
      for value, cut_ in product.values
    )
    return total <= _MERGED_BYTES


# Attributes with the size of each dimension, which is smaller for a piece.
_SIZES = {
  "stablehlo.dynamic_slice": "slice_sizes",
  "stablehlo.slice": "limit_indices",
}


def _take(
  value: ir.Value, cut_: Cut, num: int, sharding: Any
) -> list[ir.Value]:
  """`num` pieces of a value, at the insertion point.

  `sharding` is that of the value and of each piece, so no data moves.
  """
  dim, sizes = cut_.dim, list(shape_of(value) or ())
  of_piece = list(sizes)
  of_piece[dim] //= num
  if cut_.parts > 1:
    # (..., tokens, ...) as (..., parts, pieces, tokens of both, ...).
    size = sizes[dim] // (cut_.parts * num)
    sizes[dim : dim + 1] = [cut_.parts, num, size]
    value = stablehlo.reshape(_with_shape(value, sizes), value)
    value = _constrained_parts(value, sharding, dim)
    dim += 1
  size = sizes[dim] // num
  pieces: list[ir.Value] = []
  for j in range(num):
    starts, limits = [0] * len(sizes), list(sizes)
    starts[dim], limits[dim] = j * size, (j + 1) * size
    piece = stablehlo.slice(value, starts, limits, [1] * len(sizes))
    if cut_.parts > 1:
      piece = stablehlo.reshape(_with_shape(value, of_piece), piece)
    pieces.append(_constrained(piece, sharding))
  return pieces


def _put_together(
  pieces: Sequence[ir.Value], cut_: Cut, sharding: Any
) -> ir.Value:
  """Concatenates the pieces of a value, at the insertion point."""
  dim, sizes = cut_.dim, list(shape_of(pieces[0]) or ())
  if cut_.parts == 1:
    return _constrained(stablehlo.concatenate(pieces, dim), sharding)
  whole = list(sizes)
  whole[dim] *= len(pieces)
  # Along tokens, because the size of the concatenated dimension limits how many
  # elements XLA moves per thread.
  sizes[dim : dim + 1] = [cut_.parts, sizes[dim] // cut_.parts]
  in_blocks = [
    stablehlo.reshape(_with_shape(piece, sizes), piece) for piece in pieces
  ]
  together = stablehlo.concatenate(in_blocks, dim + 1)
  together = _constrained_parts(together, sharding, dim)
  together = stablehlo.reshape(_with_shape(together, whole), together)
  return _constrained(together, sharding)


def _add_up(products: Iterable[ir.Operation]) -> ir.Value:
  """The sum of products over pieces, at the insertion point.

  It is rounded to their type once, like the whole product: if that type is
  narrower than float32, the products give float32.
  """
  sums = [product.results[0] for product in products]
  result_type: Any = sums[0].type
  element = result_type.element_type
  if isinstance(element, ir.BF16Type | ir.F16Type):
    element = ir.F32Type.get()
  wide = ir.RankedTensorType.get(result_type.shape, element)
  for each in sums:
    each.set_type(wide)
  total = functools.reduce(stablehlo.add, sums)
  return total if wide == result_type else stablehlo.convert(result_type, total)


def _constrained(value: ir.Value, sharding: Any) -> ir.Value:
  """A value constrained to a sharding, if there is one."""
  if sharding is None:
    return value
  return sdy.ShardingConstraintOp(value, sharding).result


def _constrained_parts(value: ir.Value, sharding: Any, dim: int) -> ir.Value:
  """A value with a split dimension, whose first part keeps the sharding."""
  if sharding is None:
    return value
  dims = list(sharding.dimension_shardings)
  num_new = len(shape_of(value) or ()) - len(dims)
  dims[dim + 1 : dim + 1] = [partitioning_lib.not_sharded()] * num_new
  return _constrained(value, partitioning_lib.with_dims(sharding, dims))


def _with_shape(value: ir.Value, sizes: Sequence[int]) -> ir.Type:
  type_: Any = value.type
  return ir.RankedTensorType.get(sizes, type_.element_type)
