# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Collectives that a program implies: XLA's partitioner makes them of shardings.

Each is marked on a sharding constraint that stands where the collective will:
one that gathers what products need whole, and one behind a product over a
sharded dimension, each device having a part of the sum. Where the program has
no constraint there, one is put in, of the sharding that propagation gives.
"""

from __future__ import annotations

from collections.abc import Iterator
from collections.abc import Set

from jaxlib.mlir import ir
from jaxlib.mlir.dialects import sdy
from jaxlib.mlir.dialects import stablehlo

from lagom_xla.passes.program.slices import elementwise
from lagom_xla.passes.program.slices import shardings as shardings_lib
from lagom_xla.passes.program.slices.cuts import Cut
from lagom_xla.passes.program.slices.cuts import num_bytes
from lagom_xla.passes.program.slices.cuts import shape_of
from lagom_xla.passes.program.slices.shardings import CONSTRAINT
from lagom_xla.passes.program.slices.shardings import Shardings
from lagom_xla.passes.program.stablehlo import dependence

_PRODUCT = "stablehlo.dot_general"
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


def is_partial_sum(operation: ir.Operation) -> bool:
  """Whether a device's product is only a part of the sum."""
  return _PARTIAL in operation.attributes


def nccl_bytes(operation: ir.Operation) -> int:
  """The larger of what goes in and what comes out, per device."""
  return _number(operation, _BYTES)


def mark(module: ir.Module, shardings: Shardings) -> None:
  """Marks the collectives that a program without calls implies."""
  for operation in dependence.inner_operations(module.operation):
    if operation.name == CONSTRAINT:
      _gather_behind(operation, shardings)
      _mark_if_gathering(operation, shardings)
  gathered: dict[tuple[ir.Value, int], ir.Value] = {}
  for operation in dependence.inner_operations(module.operation):
    if operation.name == _PRODUCT:
      _gather_operands(operation, shardings, gathered)
      _mark_partial_sum(operation, shardings)


def keep(constraint: ir.Operation) -> None:
  """Keeps a constraint when all else that was put in is removed."""
  if _PUT_IN in constraint.attributes:
    del constraint.attributes[_PUT_IN]


def unmark(module: ir.Module) -> None:
  """Removes all marks, and the constraints that were put in and not kept."""
  for operation in dependence.inner_operations(module.operation):
    if _PUT_IN in operation.attributes:
      operation.results[0].replace_all_uses_with(operation.operands[0])
      operation.erase()
      continue
    for name in (_KIND, _DIM, _PARTS, _BYTES, _PARTIAL):
      if name in operation.attributes:
        del operation.attributes[name]


def _gather_behind(constraint: ir.Operation, shardings: Shardings) -> None:
  """Has a constraint gather, where what it constrains would be gathered before.

  Propagation takes the sharding over to the operation before, which then needs
  its operands gathered. Behind an elementwise operation the same is gathered.
  """
  value = constraint.operands[0]
  producer = dependence.defining_operation(value)
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


def _put_in(
  value: ir.Value, sharding: sdy.TensorShardingAttr, shardings: Shardings
) -> ir.Operation:
  """Constrains a value at the insertion point, until marks are removed."""
  constraint = sdy.ShardingConstraintOp(value, sharding)
  constraint.operation.attributes[_PUT_IN] = ir.UnitAttr.get()
  shardings.add(constraint.result, sharding)
  return constraint.operation


def _mark_if_gathering(constraint: ir.Operation, shardings: Shardings) -> None:
  operand, result = constraint.operands[0], constraint.results[0]
  for dim in range(len(shape_of(operand) or ())):
    before = shardings.axes(operand, dim)
    after = shardings.axes(result, dim)
    if len(after) < len(before):
      is_moved = set(before[len(after) :]) & set(_all_axes(result, shardings))
      kind_ = "all_to_all" if is_moved else "all_gather"
      cut = Cut(dim, shardings.size(before))
      _mark(constraint, kind_, result, cut, shardings)
      return


def _gather_operands(
  product: ir.Operation,
  shardings: Shardings,
  gathered: dict[tuple[ir.Value, int], ir.Value],
) -> None:
  """Puts constraints before a product's operands that it needs gathered."""
  for i, operand in enumerate(list(product.operands)):
    for dim in _gathered_dims(product, i, shardings):
      if (operand, dim) not in gathered:
        sharding = shardings_lib.without_axes(shardings.of(operand), dim)
        with ir.InsertionPoint(product), product.location:
          constraint = _put_in(operand, sharding, shardings)
        _mark_if_gathering(constraint, shardings)
        gathered[operand, dim] = constraint.results[0]
      product.operands[i] = gathered[operand, dim]
      break


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
  in_result = set(_all_axes(product.results[0], shardings))
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


def _mark_partial_sum(product: ir.Operation, shardings: Shardings) -> None:
  """Marks what is behind a product over a dimension that is sharded."""
  axes = set(_summed_axes(product, shardings))
  if not axes:
    return
  result = product.results[0]
  product.attributes[_PARTIAL] = ir.UnitAttr.get()
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
      constraint = _put_in(result, sharding, shardings)
    for use in users:
      use.owner.operation.operands[use.operand_number] = constraint.results[0]
  _mark_sum(constraint, axes, shardings)


def _mark_sum(
  constraint: ir.Operation, axes: Set[str], shardings: Shardings
) -> None:
  """Marks a constraint as the sum over the devices along mesh axes."""
  operand, result = constraint.operands[0], constraint.results[0]
  for dim in range(len(shape_of(result) or ())):
    if axes.intersection(shardings.axes(result, dim)):
      cut = Cut(dim, shardings.num_shards(result, dim))
      _mark(constraint, "reduce_scatter", operand, cut, shardings, axes)
      return
  _mark(constraint, "all_reduce", operand, None, shardings, axes)


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
      not summed.isdisjoint(_all_axes(user.results[0], shardings))
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
  if any(is_implied(user) for user in users):
    return
  producer = dependence.defining_operation(value)
  assert producer is not None
  uses = list(value.uses)
  with ir.InsertionPoint.after(producer), producer.location:
    if producer.name != CONSTRAINT:
      # Otherwise propagation has each term of the sum scattered.
      whole = shardings_lib.whole(value, sharding)
      value = _put_in(value, whole, shardings).results[0]
    constraint = _put_in(value, sharding, shardings)
  for use in uses:
    use.owner.operation.operands[use.operand_number] = constraint.results[0]
  _mark_sum(constraint, summed, shardings)


def _constraint_behind(product: ir.Operation) -> ir.Operation | None:
  """The constraint that is the only user of a product."""
  users = [use.owner.operation for use in product.results[0].uses]
  if len(users) == 1 and users[0].name == CONSTRAINT:
    return users[0]
  return None


def _summed_axes(product: ir.Operation, shardings: Shardings) -> Iterator[str]:
  """The mesh axes over whose devices a product's terms are."""
  numbers = stablehlo.DotDimensionNumbers(
    product.attributes["dot_dimension_numbers"]
  )
  in_result = set(_all_axes(product.results[0], shardings))
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


def _all_axes(value: ir.Value, shardings: Shardings) -> Iterator[str]:
  for dim in range(len(shape_of(value) or ())):
    yield from shardings.axes(value, dim)


def _mark(
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


def _number(operation: ir.Operation, name: str) -> int:
  return ir.IntegerAttr(operation.attributes[name]).value
