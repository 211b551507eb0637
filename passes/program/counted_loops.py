# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Counted loops: while loops with a known number of trips."""

from __future__ import annotations

import dataclasses
import math

from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo

from lagom_xla.passes.program import mlir


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class CountedLoop:
  """A `stablehlo.while` with a counter among its carries.

  The carry `counter` begins at `start` and grows by `step` per trip.
  """

  operation: ir.Operation
  counter: int
  start: int
  step: int
  num_trips: int

  @property
  def condition(self) -> ir.Block:
    """The block that decides whether there is another trip."""
    return self.operation.regions[0].blocks[0]

  @property
  def body(self) -> ir.Block:
    """The block of a trip; it returns the next trip's carries."""
    return self.operation.regions[1].blocks[0]


def read(operation: ir.Operation) -> CountedLoop | str:
  """Reads a while loop as a counted one, or returns why it is not one.

  The counter starts at a constant, grows by a constant in each trip, and stays
  below a constant, as in `lax.scan`, `lax.map`, and `lax.fori_loop` with known
  bounds.
  """
  condition, body = (region.blocks[0] for region in operation.regions)
  compare = mlir.defining_operation(mlir.returned(condition)[0])
  counter = limit = None
  if compare is not None and compare.name == "stablehlo.compare":
    if " LT>" in str(compare.attributes["comparison_direction"]):
      counter = _argument_number(compare.operands[0], condition)
      limit = _constant(compare.operands[1])
  if counter is None or limit is None:
    return "its condition does not compare a counter with a constant"
  start = _constant(operation.operands[counter])
  if start is None:
    return "its counter starts at an unknown value"
  step = _added(body, counter)
  if step is None or step < 1:
    return "its counter does not grow by a constant"
  return CountedLoop(
    operation=operation,
    counter=counter,
    start=start,
    step=step,
    num_trips=max(-(-(limit - start) // step), 0),
  )


def _added(body: ir.Block, counter: int) -> int | None:
  """The amount that a trip adds to the counter."""
  operation = mlir.defining_operation(mlir.returned(body)[counter])
  if operation is None or operation.name != "stablehlo.add":
    return None
  left, right = operation.operands
  for value, other in ((left, right), (right, left)):
    if _argument_number(value, body) == counter:
      return _constant(other)
  return None


def _argument_number(value: ir.Value, block: ir.Block) -> int | None:
  if not isinstance(value.owner, ir.Block) or value.owner != block:
    return None
  return ir.BlockArgument(value).arg_number


def _constant(value: ir.Value) -> int | None:
  """The integer in a constant value; None if unknown."""
  operation = mlir.defining_operation(value)
  if operation is None:
    return None
  if operation.name == "stablehlo.convert":
    return _constant(operation.operands[0])
  if operation.name != "stablehlo.constant":
    return None
  shape = ir.RankedTensorType(value.type)
  if shape.rank != 0 or not isinstance(shape.element_type, ir.IntegerType):
    return None
  return int(ir.DenseIntElementsAttr(operation.attributes["value"])[0])


def flops(operation: ir.Operation) -> int:
  """Floating-point operations of the products in an operation, over all trips.

  Shapes count as written: under GSPMD, those of all devices together. A loop of
  unknown length counts as one trip. Inline calls first.
  """
  attributes = operation.attributes
  if operation.name == mlir.PRODUCT:
    dims = stablehlo.DotDimensionNumbers(attributes["dot_dimension_numbers"])
    lhs = ir.RankedTensorType(operation.operands[0].type).shape
    contracted = dims.lhs_contracting_dimensions
    return _per_entry(operation) * math.prod(lhs[i] for i in contracted)
  if operation.name == mlir.CONVOLUTION:
    dims = stablehlo.ConvDimensionNumbers(attributes["dimension_numbers"])
    kernel = ir.RankedTensorType(operation.operands[1].type).shape
    num_outputs = kernel[dims.kernel_output_feature_dimension]
    return _per_entry(operation) * (math.prod(kernel) // num_outputs)
  if not len(operation.regions):
    return 0
  return num_trips(operation) * sum(
    map(flops, mlir.direct_operations(operation))
  )


def num_trips(operation: ir.Operation) -> int:
  """How often the regions of an operation run; 1 if unknown."""
  if operation.name != mlir.LOOP:
    return 1
  loop = read(operation)
  return 1 if isinstance(loop, str) else loop.num_trips


def _per_entry(product: ir.Operation) -> int:
  """FLOPs per contracted element for all entries of a product's result.

  An entry takes a multiplication and an addition of reals. A complex product
  multiplies each of two reals by each of the other two.
  """
  result = ir.RankedTensorType(product.results[0].type)
  is_complex = isinstance(result.element_type, ir.ComplexType)
  return (8 if is_complex else 2) * math.prod(result.shape)
