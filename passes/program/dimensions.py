# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Dimensions that operations leave free: what of a result takes what of inputs.

An operation can be done piece by piece along a dimension of its result if each
piece of the result needs only that piece of some operands, and others whole.
"""

from __future__ import annotations

from collections.abc import Mapping
import math

from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo

from lagom_xla.passes.program.cuts import Cut
from lagom_xla.passes.program.cuts import reshaped
from lagom_xla.passes.program.cuts import shape_of

_ELEMENTWISE = frozenset(
  [f"stablehlo.{name}" for name in (
    "abs", "add", "and", "atan2", "cbrt", "ceil", "clamp", "compare",
    "complex", "convert", "cosine", "count_leading_zeros", "divide",
    "exponential", "exponential_minus_one", "floor", "imag", "is_finite",
    "log", "log_plus_one", "logistic", "maximum", "minimum", "multiply",
    "negate", "not", "or", "popcnt", "power", "real", "reduce_precision",
    "remainder", "round_nearest_afz", "round_nearest_even", "rsqrt", "select",
    "shift_left", "shift_right_arithmetic", "shift_right_logical", "sign",
    "sine", "sqrt", "subtract", "tan", "tanh", "xor",
  )]
  + [f"chlo.{name}" for name in (
    "acos", "acosh", "asin", "asinh", "atan", "atanh", "bessel_i1e", "cosh",
    "digamma", "erf", "erf_inv", "erfc", "is_inf", "is_neg_inf", "is_pos_inf",
    "lgamma", "next_after", "sinh", "square", "tan", "zeta",
  )]
)  # fmt: skip


Cuts = tuple[Cut | None, ...]


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
  if operation.name in _ELEMENTWISE:
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


def _number(operation: ir.Operation, name: str) -> int:
  return ir.IntegerAttr(operation.attributes[name]).value


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


def _concatenate(operation: ir.Operation, cut: Cut) -> Cuts | None:
  if cut.dim == _number(operation, "dimension"):
    return None
  return _same(operation, cut)


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
  is_touched = cut.dim in _numbers(operation, "dimensions")
  return None if is_touched else (cut,)


def _sort(operation: ir.Operation, cut: Cut) -> Cuts | None:
  is_touched = cut.dim == _number(operation, "dimension")
  return None if is_touched else _same(operation, cut)


def _all_gather(operation: ir.Operation, cut: Cut) -> Cuts | None:
  if cut.dim != _number(operation, "all_gather_dim"):
    return _same(operation, cut)
  return _divided(operation, cut)


def _reduce_scatter(operation: ir.Operation, cut: Cut) -> Cuts:
  if cut.dim != _number(operation, "scatter_dimension"):
    return _same(operation, cut)
  return _multiplied(operation, cut)


def _all_to_all(operation: ir.Operation, cut: Cut) -> Cuts | None:
  is_split = cut.dim == _number(operation, "split_dimension")
  is_joined = cut.dim == _number(operation, "concat_dimension")
  if is_split and is_joined:
    is_in_blocks = cut.parts % num_devices(operation) == 0
    return _same(operation, cut) if is_in_blocks else None
  if is_split:
    return _multiplied(operation, cut)
  return _divided(operation, cut) if is_joined else _same(operation, cut)


def _divided(operation: ir.Operation, cut: Cut) -> Cuts | None:
  parts, remainder = divmod(cut.parts, num_devices(operation))
  return None if remainder else _same(operation, Cut(cut.dim, parts))


def _multiplied(operation: ir.Operation, cut: Cut) -> Cuts:
  parts = cut.parts * num_devices(operation)
  return _same(operation, Cut(cut.dim, parts))


_RULES = {
  "stablehlo.all_gather": _all_gather,
  "stablehlo.all_reduce": _same,
  "stablehlo.all_to_all": _all_to_all,
  "stablehlo.broadcast_in_dim": _broadcast,
  "stablehlo.concatenate": _concatenate,
  "stablehlo.dot_general": _dot,
  "stablehlo.dynamic_slice": _untouched,
  "stablehlo.dynamic_update_slice": _untouched,
  "stablehlo.pad": _pad,
  "stablehlo.reduce": _reduce,
  "stablehlo.reduce_scatter": _reduce_scatter,
  "stablehlo.reshape": _reshape,
  "stablehlo.reverse": _reverse,
  "stablehlo.slice": _untouched,
  "stablehlo.sort": _sort,
  "stablehlo.transpose": _transpose,
}
