# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Implied collectives: XLA's partitioner makes them of shardings.

Each is noted on the sharding constraint that stands where the collective will.
Notes are attributes, so that they stay with an operation that is cloned.
"""

from __future__ import annotations

from collections.abc import Set

from jaxlib.mlir import ir
from jaxlib.mlir.dialects import sdy

from lagom_xla.passes.program import mlir
from lagom_xla.passes.program.mlir import num_bytes
from lagom_xla.passes.program.mlir import shape_of
from lagom_xla.passes.program.slices import elementwise
from lagom_xla.passes.program.slices.cuts import Cut
from lagom_xla.passes.program.slices.shardings import Shardings

PRODUCT = "stablehlo.dot_general"
_KIND = "lagom_collective"
_DIM = "lagom_dimension"
_PARTS = "lagom_parts"
_BYTES = "lagom_bytes"
_PUT_IN = "lagom_put_in"
_PARTIAL = "lagom_partial"


def kind(operation: ir.Operation) -> str:
  """The name of an operation, or that of the collective that it implies."""
  if _KIND in operation.attributes:
    return ir.StringAttr(operation.attributes[_KIND]).value
  return operation.name


def is_implied(operation: ir.Operation) -> bool:
  """Whether an operation is a constraint that implies a collective."""
  return _KIND in operation.attributes


def cut_of(operation: ir.Operation) -> Cut | None:
  """How an implied collective's result is cut along what it changes.

  Pieces of a dimension have a part of every device's own.
  """
  if _DIM not in operation.attributes:
    return None
  return Cut(_number(operation, _DIM), _number(operation, _PARTS))


def nccl_bytes(operation: ir.Operation) -> int:
  """The larger of what goes in and what comes out, per device."""
  return _number(operation, _BYTES)


def is_partial_sum(operation: ir.Operation) -> bool:
  """Whether a device's product is only a part of the sum."""
  return _PARTIAL in operation.attributes


def moves_data(operation: ir.Operation, shardings: Shardings) -> bool:
  """Whether the partitioner communicates at what is no collective here.

  An operand of an elementwise operation is sharded as the result is not.
  """
  if operation.name not in elementwise.OPERATIONS:
    return False
  (result,) = operation.results
  return any(
    shardings.axes(operand, dim) not in ((), shardings.axes(result, dim))
    for operand in operation.operands
    for dim in range(len(shape_of(operand) or ()))
  )


def note(
  constraint: ir.Operation,
  kind_: str,
  value: ir.Value,
  cut: Cut | None,
  shardings: Shardings,
  summed: Set[str] = frozenset(),
) -> None:
  """Notes a collective on a constraint.

  Args:
    constraint: the operation.
    kind_: such as "all_gather".
    value: what a device has the larger part of.
    cut: of the result, along the dimension that is gathered or scattered.
    shardings: of all values.
    summed: mesh axes that this collective adds up over.
  """
  number = ir.IntegerType.get_signless(64)
  rank = range(len(shape_of(value) or ()))
  axes = [a for d in rank for a in shardings.axes(value, d) if a not in summed]
  noted = {_BYTES: num_bytes(value) // shardings.size(axes)}
  if cut is not None:
    noted |= {_DIM: cut.dim, _PARTS: cut.parts}
  constraint.attributes[_KIND] = ir.StringAttr.get(f"stablehlo.{kind_}")
  for name, count in noted.items():
    constraint.attributes[name] = ir.IntegerAttr.get(number, count)


def note_partial(product: ir.Operation) -> None:
  """Notes that each device has a part of a product's sum."""
  product.attributes[_PARTIAL] = ir.UnitAttr.get()


def put_in(
  value: ir.Value, sharding: sdy.TensorShardingAttr, shardings: Shardings
) -> ir.Operation:
  """Constrains a value at the insertion point, until notes are removed."""
  constraint = sdy.ShardingConstraintOp(value, sharding)
  constraint.operation.attributes[_PUT_IN] = ir.UnitAttr.get()
  shardings.add(constraint.result, sharding)
  return constraint.operation


def keep(constraint: ir.Operation) -> None:
  """Keeps a constraint when all else that was put in is removed."""
  if _PUT_IN in constraint.attributes:
    del constraint.attributes[_PUT_IN]


def remove_notes(module: ir.Module) -> None:
  """Removes all notes, and the constraints that were put in and not kept."""
  for operation in mlir.inner_operations(module.operation):
    if _PUT_IN in operation.attributes:
      operation.results[0].replace_all_uses_with(operation.operands[0])
      operation.erase()
      continue
    for name in (_KIND, _DIM, _PARTS, _BYTES, _PARTIAL):
      if name in operation.attributes:
        del operation.attributes[name]


def _number(operation: ir.Operation, name: str) -> int:
  return ir.IntegerAttr(operation.attributes[name]).value
