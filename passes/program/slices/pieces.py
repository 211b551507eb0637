# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Pieces of a value: taken out of it, put together, and summed up."""

from __future__ import annotations

from collections.abc import Sequence
import functools
from typing import Any

from jaxlib.mlir import ir
from jaxlib.mlir.dialects import sdy
from jaxlib.mlir.dialects import stablehlo

from lagom_xla.passes.program.mlir import shape_of
from lagom_xla.passes.program.slices import shardings
from lagom_xla.passes.program.slices.implied import Cut


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
  return constrained(value, shardings.split(sharding, dim, rank))


def _with_shape(value: ir.Value, sizes: Sequence[int]) -> ir.Type:
  type_: Any = value.type
  return ir.RankedTensorType.get(sizes, type_.element_type)
