# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Implied sums over devices: products over a dimension that is sharded.

Each device has a part of the sum. The reduce-scatter or all-reduce behind is
noted on a constraint; where the program has none there, one is put in.
"""

from __future__ import annotations

from collections.abc import Iterator, Set

from jaxlib.mlir import ir
from jaxlib.mlir.dialects import sdy
from jaxlib.mlir.dialects import stablehlo

from lagom_xla.passes.program import mlir
from lagom_xla.passes.program.mlir import shape_of
from lagom_xla.passes.program.slices import elementwise
from lagom_xla.passes.program.slices import implied
from lagom_xla.passes.program.slices import shardings as shardings_lib
from lagom_xla.passes.program.slices.cuts import Cut
from lagom_xla.passes.program.slices.shardings import CONSTRAINT
from lagom_xla.passes.program.slices.shardings import Shardings


def find(module: ir.Module, shardings: Shardings) -> None:
  """Notes the sums over devices that a program without calls implies."""
  for operation in mlir.inner_operations(module.operation):
    if operation.name == implied.PRODUCT:
      _note_partial_sum(operation, shardings)


def _note_partial_sum(product: ir.Operation, shardings: Shardings) -> None:
  """Marks what is behind a product over a dimension that is sharded."""
  axes = set(_summed_axes(product, shardings))
  if not axes:
    return
  result = product.results[0]
  implied.note_partial(product)
  later = _scattered_later(result, axes, shardings)
  if later is not None:
    _scatter(*later, axes, shardings)
    return
  constraint = _constraint_behind(product)
  if constraint is None:
    sharding = shardings.of(result)
    if sharding is None:
      sharding = shardings_lib.whole(result, shardings.of(product.operands[0]))
    users = [use for use in result.uses]
    with ir.InsertionPoint.after(product), product.location:
      constraint = implied.put_in(result, sharding, shardings)
    for use in users:
      use.owner.operation.operands[use.operand_number] = constraint.results[0]
  _note_sum(constraint, axes, shardings)


def _summed_axes(product: ir.Operation, shardings: Shardings) -> Iterator[str]:
  """The mesh axes over whose devices a product's terms are."""
  numbers = stablehlo.DotDimensionNumbers(
    product.attributes["dot_dimension_numbers"]
  )
  in_result = shardings.all_axes(product.results[0])
  lhs, rhs = product.operands
  for lhs_dim, rhs_dim in zip(
    numbers.lhs_contracting_dimensions,
    numbers.rhs_contracting_dimensions,
    strict=True,
  ):
    of_lhs = set(shardings.axes(lhs, lhs_dim))
    of_rhs = set(shardings.axes(rhs, rhs_dim))
    yield from of_lhs & of_rhs
    yield from (of_lhs ^ of_rhs) - in_result


def _scattered_later(
  total: ir.Value, summed: Set[str], shardings: Shardings
) -> tuple[ir.Value, sdy.TensorShardingAttr] | None:
  """Where a sum over devices that is whole at first is sharded again.

  A constraint's transpose is the same constraint, so that gradients are held
  whole where activations are gathered, and sharded behind. XLA adds up such
  sums first and then makes one reduce-scatter of them.

  Returns:
    The last value that is whole, and the sharding of all its users; None where
    there is no such value.
  """
  value = total
  while True:
    users = [use.owner.operation for use in value.uses]
    if not users or any(not _is_elementwise(u, total) for u in users):
      return None
    is_scattered = [
      not summed.isdisjoint(shardings.all_axes(user.results[0]))
      for user in users
    ]
    if all(is_scattered):
      return value, shardings.of(users[0].results[0])
    if any(is_scattered) or len(users) > 1:
      return None
    value = users[0].results[0]


def _is_elementwise(operation: ir.Operation, value: ir.Value) -> bool:
  """Whether an operation is elementwise, with results like a value."""
  return (
    operation.name == CONSTRAINT or operation.name in elementwise.OPERATIONS
  ) and shape_of(operation.results[0]) == shape_of(value)


def _scatter(
  value: ir.Value,
  sharding: sdy.TensorShardingAttr,
  summed: Set[str],
  shardings: Shardings,
) -> None:
  """Marks a reduce-scatter at a value that is whole, if there is none yet."""
  users = [use.owner.operation for use in value.uses]
  if any(implied.is_implied(user) for user in users):
    return
  producer = mlir.defining_operation(value)
  assert producer is not None
  uses = list(value.uses)
  with ir.InsertionPoint.after(producer), producer.location:
    if producer.name != CONSTRAINT:
      # Otherwise propagation has each term of the sum scattered.
      whole = shardings_lib.whole(value, sharding)
      value = implied.put_in(value, whole, shardings).results[0]
    constraint = implied.put_in(value, sharding, shardings)
  for use in uses:
    use.owner.operation.operands[use.operand_number] = constraint.results[0]
  _note_sum(constraint, summed, shardings)


def _constraint_behind(product: ir.Operation) -> ir.Operation | None:
  """The constraint that is the only user of a product."""
  users = [use.owner.operation for use in product.results[0].uses]
  if len(users) == 1 and users[0].name == CONSTRAINT:
    return users[0]
  return None


def _note_sum(
  constraint: ir.Operation, axes: Set[str], shardings: Shardings
) -> None:
  """Marks a constraint as the sum over the devices along mesh axes."""
  operand, result = constraint.operands[0], constraint.results[0]
  for dim in range(len(shape_of(result) or ())):
    if not axes.isdisjoint(shardings.axes(result, dim)):
      cut = Cut(dim, shardings.num_shards(result, dim))
      implied.note(constraint, "reduce_scatter", operand, cut, shardings, axes)
      return
  implied.note(constraint, "all_reduce", operand, None, shardings, axes)
