# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Dimensions that operations leave free: what of a result takes what of inputs.

An operation can be done piece by piece along a dimension of its result if each
piece of the result needs only that piece of some operands, and others whole.
"""

from __future__ import annotations

from collections.abc import Mapping

from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo

from lagom_xla.passes.program.mlir import shape_of
from lagom_xla.passes.program.slices import collective_dimensions
from lagom_xla.passes.program.slices import implied
from lagom_xla.passes.program.slices.implied import Cut
from lagom_xla.passes.program.slices.implied import Cuts
from lagom_xla.passes.program.slices.implied import reshaped


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


def result_cut(operation: ir.Operation, known: Mapping[int, Cut]) -> Cut | None:
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


def summed_cuts(
  operation: ir.Operation, known: Mapping[int, Cut]
) -> Cuts | None:
  """What a piece of a sum needs, of a product that adds up over a cut.

  Args:
    operation: any.
    known: as of `result_cut`.

  Returns:
    How both operands are cut; None of what is no such product.
  """
  if operation.name != "stablehlo.dot_general" or (
    "algorithm" in operation.attributes
  ):
    return None
  numbers = _dot_numbers(operation)
  side, cut = next(iter(known.items()))
  of_side = (
    list(numbers.lhs_contracting_dimensions),
    list(numbers.rhs_contracting_dimensions),
  )
  if cut.dim not in of_side[side]:
    return None
  index = of_side[side].index(cut.dim)
  cuts = tuple(Cut(dims[index], cut.parts) for dims in of_side)
  fits = all(cuts[i] == known_cut for i, known_cut in known.items())
  return cuts if fits else None


def _candidates(
  operation: ir.Operation,
  cut: Cut,
  operand_shape: tuple[int, ...],
  shape: tuple[int, ...],
) -> list[Cut]:
  if operation.name == "stablehlo.reshape":
    found = reshaped(cut, operand_shape, shape)
    return [found] if found else []
  group = collective_dimensions.num_devices(operation)
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
  numbers = _dot_numbers(operation)
  of_batch = list(
    zip(
      numbers.lhs_batching_dimensions,
      numbers.rhs_batching_dimensions,
      strict=True,
    )
  )
  if cut.dim < len(of_batch):
    lhs, rhs = of_batch[cut.dim]
    return Cut(lhs, cut.parts), Cut(rhs, cut.parts)
  free = []
  for side, batching, contracting in (
    (0, numbers.lhs_batching_dimensions, numbers.lhs_contracting_dimensions),
    (1, numbers.rhs_batching_dimensions, numbers.rhs_contracting_dimensions),
  ):
    rank = len(shape_of(operation.operands[side]) or ())
    used = {*batching, *contracting}
    free += [(side, dim) for dim in range(rank) if dim not in used]
  side, dim = free[cut.dim - len(of_batch)]
  taken = Cut(dim, cut.parts)
  return (taken, None) if side == 0 else (None, taken)


def _dot_numbers(operation: ir.Operation) -> stablehlo.DotDimensionNumbers:
  return stablehlo.DotDimensionNumbers(
    operation.attributes["dot_dimension_numbers"]
  )


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
  "stablehlo.all_gather": collective_dimensions.of_all_gather,
  "stablehlo.all_reduce": _same,
  "stablehlo.all_to_all": collective_dimensions.of_all_to_all,
  "stablehlo.broadcast_in_dim": _broadcast,
  "stablehlo.concatenate": _along_one,
  "stablehlo.dot_general": _dot,
  "stablehlo.dynamic_slice": _untouched,
  "stablehlo.dynamic_update_slice": _untouched,
  "stablehlo.pad": _pad,
  "stablehlo.reduce": _reduce,
  "stablehlo.reduce_scatter": collective_dimensions.of_reduce_scatter,
  "stablehlo.reshape": _reshape,
  "stablehlo.reverse": _reverse,
  "stablehlo.slice": _untouched,
  "stablehlo.sort": _along_one,
  "stablehlo.transpose": _transpose,
}
