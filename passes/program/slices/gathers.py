# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Implied gathers: where products, or constraints, need what is sharded whole.

A gather is noted on the constraint that asks for it. Where the program has none
before a product, one is put in.
"""

from __future__ import annotations

from collections.abc import Iterator

from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo

from lagom_xla.passes.program import mlir
from lagom_xla.passes.program.mlir import num_bytes
from lagom_xla.passes.program.mlir import shape_of
from lagom_xla.passes.program.slices import elementwise
from lagom_xla.passes.program.slices import implied
from lagom_xla.passes.program.slices import shardings as shardings_lib
from lagom_xla.passes.program.slices.cuts import Cut
from lagom_xla.passes.program.slices.shardings import CONSTRAINT
from lagom_xla.passes.program.slices.shardings import Shardings

# By a value and the dimension that is gathered.
_Gathered = dict[tuple[ir.Value, int], ir.Operation]


def find(module: ir.Module, shardings: Shardings) -> None:
  """Notes the gathers that a program without calls implies."""
  gathered: _Gathered = {}
  for operation in mlir.inner_operations(module.operation):
    if operation.name == CONSTRAINT:
      _gather_behind(operation, shardings)
      _note_if_gathering(operation, shardings)
    elif operation.name == implied.PRODUCT:
      _gather_operands(operation, shardings, gathered)


def _gather_behind(constraint: ir.Operation, shardings: Shardings) -> None:
  """Has a constraint gather, where what it constrains would be gathered before.

  Propagation takes the sharding over to the operation before, which then needs
  its operands gathered. Behind an elementwise operation the same is gathered.
  """
  value = constraint.operands[0]
  producer = mlir.defining_operation(value)
  if producer is None or producer.name not in elementwise.OPERATIONS:
    return
  for operand in producer.operands:
    if (
      shape_of(operand) == shape_of(value)
      and num_bytes(operand) >= num_bytes(value)
      and shardings.num_in_all(operand) > shardings.num_in_all(value)
    ):
      shardings.add(value, shardings.of(operand))
      return


def _note_if_gathering(constraint: ir.Operation, shardings: Shardings) -> None:
  operand, result = constraint.operands[0], constraint.results[0]
  for dim in range(len(shape_of(operand) or ())):
    before = shardings.axes(operand, dim)
    after = shardings.axes(result, dim)
    if len(after) < len(before):
      is_moved = set(before[len(after) :]) & shardings.all_axes(result)
      kind_ = "all_to_all" if is_moved else "all_gather"
      cut = Cut(dim, shardings.size(before))
      implied.note(constraint, kind_, result, cut, shardings)
      return


def _gather_operands(
  product: ir.Operation, shardings: Shardings, gathered: _Gathered
) -> None:
  """Puts constraints before a product's operands that it needs gathered."""
  for i, operand in enumerate(list(product.operands)):
    dim = next(_gathered_dims(product, i, shardings), None)
    if dim is None:
      continue
    constraint = gathered.get((operand, dim))
    if constraint is None or constraint.block != product.block:
      sharding = shardings_lib.without_axes(shardings.of(operand), dim)
      with ir.InsertionPoint(product), product.location:
        constraint = implied.put_in(operand, sharding, shardings)
      _note_if_gathering(constraint, shardings)
      gathered[operand, dim] = constraint
    product.operands[i] = constraint.results[0]


def _gathered_dims(
  product: ir.Operation, side: int, shardings: Shardings
) -> Iterator[int]:
  """Dimensions of an operand that are sharded as the product cannot use.

  Either the product's result is not sharded so, or it has those mesh axes along
  another dimension.
  """
  numbers = stablehlo.DotDimensionNumbers(
    product.attributes["dot_dimension_numbers"]
  )
  contracting = (
    list(numbers.lhs_contracting_dimensions),
    list(numbers.rhs_contracting_dimensions),
  )
  batching = (
    list(numbers.lhs_batching_dimensions),
    list(numbers.rhs_batching_dimensions),
  )
  operand = product.operands[side]
  in_result = shardings.all_axes(product.results[0])
  free = _free_dims(product, numbers)
  for dim in range(len(shape_of(operand) or ())):
    axes = shardings.axes(operand, dim)
    if not axes or dim in batching[side]:
      continue
    if dim in contracting[side]:
      index = contracting[side].index(dim)
      other = product.operands[1 - side]
      of_other = shardings.axes(other, contracting[1 - side][index])
      if of_other != axes and in_result.issuperset(axes):
        yield dim
    elif shardings.axes(product.results[0], free.index((side, dim))) != axes:
      yield dim


def _free_dims(
  product: ir.Operation, numbers: stablehlo.DotDimensionNumbers
) -> list[tuple[int, int] | None]:
  """For each dimension of a product its operand and dimension there."""
  free: list[tuple[int, int] | None] = [None] * len(
    numbers.lhs_batching_dimensions
  )
  for side, batching, contracting in (
    (0, numbers.lhs_batching_dimensions, numbers.lhs_contracting_dimensions),
    (1, numbers.rhs_batching_dimensions, numbers.rhs_contracting_dimensions),
  ):
    used = {*batching, *contracting}
    rank = len(shape_of(product.operands[side]) or ())
    free += [(side, dim) for dim in range(rank) if dim not in used]
  return free
