# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""FLOPs of the products in an operation, which hide communication."""

from __future__ import annotations

import math

from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo

from lagom_xla.passes.program.stablehlo import counted_loops

_DOT = "stablehlo.dot_general"
_CONVOLUTION = "stablehlo.convolution"
_PRODUCTS = frozenset([_DOT, _CONVOLUTION])
_LOOP = "stablehlo.while"


def flops(operation: ir.Operation) -> int:
  """Floating-point operations of the products in an operation, over all trips.

  They are those of the shapes as written: under GSPMD, of all devices together.
  A loop of unknown length counts as one trip; calls are inlined before.
  """
  if operation.name == _DOT:
    return _dot_flops(operation)
  if operation.name == _CONVOLUTION:
    return _convolution_flops(operation)
  return num_trips(operation) * sum(
    flops(inner.operation)
    for region in operation.regions
    for block in region.blocks
    for inner in block.operations
    if inner.operation.regions or inner.operation.name in _PRODUCTS
  )


def num_trips(operation: ir.Operation) -> int:
  """How often what is in an operation runs; once where nothing is known."""
  if operation.name != _LOOP:
    return 1
  loop = counted_loops.read(operation)
  return 1 if isinstance(loop, str) else loop.num_trips


def _dot_flops(operation: ir.Operation) -> int:
  """What an entry takes for each contracted index."""
  numbers = stablehlo.DotDimensionNumbers(
    operation.attributes["dot_dimension_numbers"]
  )
  contracted = numbers.lhs_contracting_dimensions
  lhs = _shape(operation.operands[0])
  depth = math.prod(lhs[i] for i in contracted)
  return _per_entry(operation) * depth


def _convolution_flops(operation: ir.Operation) -> int:
  """What an entry takes for each kernel weight of it."""
  numbers = stablehlo.ConvDimensionNumbers(
    operation.attributes["dimension_numbers"]
  )
  kernel = _shape(operation.operands[1])
  weights = math.prod(kernel) // kernel[numbers.kernel_output_feature_dimension]
  return _per_entry(operation) * weights


def _per_entry(product: ir.Operation) -> int:
  """A multiplication and an addition of reals for each entry of its result.

  Complex numbers are two reals each, and every one meets every other one.
  """
  result = ir.RankedTensorType(product.results[0].type)
  is_complex = isinstance(result.element_type, ir.ComplexType)
  return (8 if is_complex else 2) * math.prod(result.shape)


def _shape(value: ir.Value) -> list[int]:
  return ir.RankedTensorType(value.type).shape
