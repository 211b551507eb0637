# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""The shardings and collectives that XLA's partitioner gives a program.

Users write some shardings. Shardy's propagation infers the others; XLA runs it
first, and jaxlib offers it as a pass.

Some products and constraints need a sharded value whole, and the partitioner
gathers it. A product that contracts over a sharded dimension leaves a partial
sum on each device, which is then reduced. This module assigns each such
collective to the sharding constraint where it will be, and adds a constraint if
the program has none there.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence, Set
import dataclasses
import math
from typing import Any, NamedTuple

from jaxlib.mlir import ir
from jaxlib.mlir import passmanager
from jaxlib.mlir.dialects import sdy
from jaxlib.mlir.dialects import stablehlo

from lagom_xla.passes.program import mlir
from lagom_xla.passes.program.mlir import CONSTRAINT
from lagom_xla.passes.program.mlir import PRODUCT
from lagom_xla.passes.program.mlir import num_bytes
from lagom_xla.passes.program.mlir import shape_of

ELEMENTWISE = frozenset(
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


@dataclasses.dataclass(frozen=True, slots=True)
class Cut:
  """How a value is cut into pieces.

  The cut dimension consists of `parts` blocks of equal size, and piece j has
  the j-th piece of every block. A gathered sequence has one block per device,
  so gathering piece j of every device's own tokens gives its piece j. With a
  single block, the pieces are consecutive.
  """

  dim: int
  parts: int = 1

  def max_pieces(self, shape: Sequence[int]) -> int:
    """Numbers of pieces must divide this; 0 if it cannot be cut."""
    if self.dim >= len(shape):
      return 0
    size, remainder = divmod(shape[self.dim], self.parts)
    return 0 if remainder else size


class ProductDims(NamedTuple):
  """The dimensions of a product's operands.

  `batch` and `contracted` have pairs of dimensions (lhs, rhs); `free` has pairs
  of the operand's number (0 or 1) and the dimension. The result has the batch
  dimensions first, then the free ones.
  """

  batch: Sequence[tuple[int, int]]
  contracted: Sequence[tuple[int, int]]
  free: Sequence[tuple[int, int]]


def dims_of(product: ir.Operation) -> ProductDims:
  """The dimensions of a `dot_general`."""
  numbers = stablehlo.DotDimensionNumbers(
    product.attributes["dot_dimension_numbers"]
  )
  batch = (numbers.lhs_batching_dimensions, numbers.rhs_batching_dimensions)
  contracted = (
    numbers.lhs_contracting_dimensions,
    numbers.rhs_contracting_dimensions,
  )
  return ProductDims(
    batch=list(zip(*batch, strict=True)),
    contracted=list(zip(*contracted, strict=True)),
    free=[
      (side, dim)
      for side, operand in enumerate(product.operands)
      for dim in range(len(shape_of(operand) or ()))
      if dim not in (*batch[side], *contracted[side])
    ],
  )


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Implied:
  """A collective that the partitioner makes at a sharding constraint.

  `cut` applies to its result, along the gathered or scattered dimension, so
  that each piece has a part from every device; None for an all-reduce.
  `nccl_bytes` is the larger of input and output, per device.
  """

  name: str
  cut: Cut | None
  nccl_bytes: int


_PROPAGATE = "builtin.module(sdy-propagation-pipeline)"
_NUMBER = "lagom_number"
_PUT_IN = "lagom_put_in"
# Mesh axes or sub-axes, major to minor: the name, the pre-size (1 for a whole
# axis), and the number of devices.
Axes = tuple[tuple[str, int, int], ...]


class Partitioning:
  """Shardings of the values of a program without calls, and what they imply.

  Pass values that you erase to `replace` or `forget`: a new value may get the
  same address, and jaxlib then considers the two equal.

  Attributes:
    implied: collectives, by the results of the constraints where they will be.
    partial_sums: results of products that are partial sums on each device.
  """

  def __init__(self, module: ir.Module):
    self.implied: dict[ir.Value, Implied] = {}
    self.partial_sums: set[ir.Value] = set()
    self._of: dict[ir.Value, Any] = {}
    # The axes of each dimension, by sharding, because jaxlib reads them slowly.
    self._axes: dict[Any, tuple[Axes, ...]] = {}
    self._sizes: dict[str, int] = {
      axis.name: axis.size
      for op in module.body.operations
      if op.operation.name == "sdy.mesh"
      for axis in map(
        sdy.MeshAxisAttr, sdy.MeshAttr(op.operation.attributes["mesh"]).axes
      )
    }
    if not self._sizes:
      return
    self._propagate(module)
    self._find_gathers(mlir.inner_operations(module.operation))
    for operation in mlir.inner_operations(module.operation):
      if operation.name == PRODUCT:
        self._find_sum(operation)

  def name(self, operation: ir.Operation) -> str:
    """The name of an operation, or of the collective that it implies."""
    implied = self.implied_by(operation)
    return operation.name if implied is None else implied.name

  def implied_by(self, operation: ir.Operation) -> Implied | None:
    """The collective that the partitioner makes at an operation."""
    if operation.name != CONSTRAINT:
      return None
    return self.implied.get(operation.results[0])

  def of(self, value: ir.Value) -> Any:
    """The sharding of a value; None if it is replicated."""
    return self._of.get(value)

  def axes(self, value: ir.Value, dim: int) -> Axes:
    """The mesh axes over which a dimension of a value is sharded."""
    sharding = self._of.get(value)
    if sharding is None:
      return ()
    if sharding not in self._axes:
      self._axes[sharding] = tuple(
        tuple(map(self._axis, sdy.DimensionShardingAttr(of_dim).axes))
        for of_dim in sharding.dimension_shardings
      )
    of_dims = self._axes[sharding]
    return of_dims[dim] if dim < len(of_dims) else ()

  def all_axes(self, value: ir.Value) -> Axes:
    """The mesh axes over which any dimension of a value is sharded."""
    rank = len(shape_of(value) or ())
    return tuple(axis for dim in range(rank) for axis in self.axes(value, dim))

  def num_shards(self, value: ir.Value, dim: int | None = None) -> int:
    """The number of parts that a value, or a dimension, is sharded into."""
    return _size(self.all_axes(value) if dim is None else self.axes(value, dim))

  def replace(self, value: ir.Value, other: ir.Value) -> None:
    """Gives the sharding of a value to its replacement."""
    sharding = self._of.pop(value, None)
    if sharding is not None:
      self._of[other] = sharding

  def forget(self, values: Iterable[ir.Value]) -> None:
    """Drops the shardings of values that will be erased."""
    for value in values:
      self._of.pop(value, None)

  def moves_data(self, operation: ir.Operation) -> bool:
    """Whether the partitioner communicates at an elementwise operation.

    It does if an operand is sharded and the result has another sharding.
    """
    if operation.name not in ELEMENTWISE:
      return False
    (result,) = operation.results
    return any(
      self.axes(operand, dim) not in ((), self.axes(result, dim))
      for operand in operation.operands
      for dim in range(len(shape_of(operand) or ()))
    )

  def _axis(self, raw: ir.Attribute) -> tuple[str, int, int]:
    axis = sdy.AxisRefAttr(raw)
    if axis.sub_axis_info is None:
      return axis.name, 1, self._sizes[axis.name]
    info = sdy.SubAxisInfoAttr(axis.sub_axis_info)
    return axis.name, info.pre_size, info.size

  def _propagate(self, module: ir.Module) -> None:
    """Propagates shardings in a copy, and records them by operation number."""
    copy = mlir.copied(module)
    number = ir.IntegerType.get_signless(64)
    originals = _outside_of_shard_maps(module)
    for i, operation in enumerate(_outside_of_shard_maps(copy)):
      operation.attributes[_NUMBER] = ir.IntegerAttr.get(number, i)
    passmanager.PassManager.parse(_PROPAGATE).run(copy.operation)
    for operation in mlir.inner_operations(copy.operation):
      if _NUMBER not in operation.attributes:
        continue
      original = originals[ir.IntegerAttr(operation.attributes[_NUMBER]).value]
      values = [original.results]
      shardings = _of_results(operation)
      if original.name == "func.func":
        values = [original.regions[0].blocks[0].arguments]
        shardings = _of_arguments(operation)
      elif original.name == mlir.LOOP:
        values += [r.blocks[0].arguments for r in original.regions]
      for same in values:
        self._of.update(zip(same, shardings, strict=False))

  def _find_gathers(self, operations: Iterable[ir.Operation]) -> None:
    """Records the gathers that constraints and products need."""
    gathered: dict[tuple[ir.Value, int], ir.Operation] = {}
    for operation in operations:
      if operation.name == CONSTRAINT:
        self._gather_behind(operation)
        self._note_gather(operation)
      elif operation.name == PRODUCT:
        for i, operand in enumerate(list(operation.operands)):
          dim = min(self._gathered_dims(operation, i), default=None)
          if dim is None:
            continue
          constraint = gathered.get((operand, dim))
          if constraint is None or constraint.block != operation.block:
            sharding = self._of[operand]
            dims = list(sharding.dimension_shardings)
            dims[dim] = not_sharded()
            with ir.InsertionPoint(operation), operation.location:
              constraint = self._put_in(operand, with_dims(sharding, dims))
            self._note_gather(constraint)
            gathered[operand, dim] = constraint
          operation.operands[i] = constraint.results[0]

  def _gather_behind(self, constraint: ir.Operation) -> None:
    """Moves a gather from before a constraint's operand to the constraint.

    Propagation gives the constraint's sharding to the elementwise operation
    before it, although a gather after that operation moves no more data.
    """
    value = constraint.operands[0]
    producer = mlir.defining_operation(value)
    if producer is None or producer.name not in ELEMENTWISE:
      return
    for operand in producer.operands:
      if (
        shape_of(operand) == shape_of(value)
        and num_bytes(operand) >= num_bytes(value)
        and self.num_shards(operand) > self.num_shards(value)
      ):
        self._of[value] = self._of[operand]
        return

  def _note_gather(self, constraint: ir.Operation) -> None:
    operand, result = constraint.operands[0], constraint.results[0]
    for dim in range(len(shape_of(operand) or ())):
      before, after = self.axes(operand, dim), self.axes(result, dim)
      if len(after) < len(before):
        is_moved = set(before[len(after) :]) & set(self.all_axes(result))
        name = "all_to_all" if is_moved else "all_gather"
        self._note(constraint, name, result, Cut(dim, _size(before)))
        return

  def _gathered_dims(self, product: ir.Operation, side: int) -> Iterator[int]:
    """Dimensions of an operand whose sharding the product cannot use.

    Either the product's result lacks that sharding, or it has those mesh axes
    in another dimension.
    """
    operand, other = product.operands[side], product.operands[1 - side]
    (result,) = product.results
    dims = dims_of(product)
    for pair in dims.contracted:
      axes = self.axes(operand, pair[side])
      if axes and axes != self.axes(other, pair[1 - side]):
        if set(axes) <= set(self.all_axes(result)):
          yield pair[side]
    for in_result, (of_side, dim) in enumerate(dims.free, len(dims.batch)):
      axes = self.axes(operand, dim) if of_side == side else ()
      if axes and self.axes(result, in_result) != axes:
        yield dim

  def _find_sum(self, product: ir.Operation) -> None:
    """Records the reduction after a product over a sharded dimension."""
    lhs, rhs = product.operands
    (result,) = product.results
    summed: set[Any] = set()
    for lhs_dim, rhs_dim in dims_of(product).contracted:
      of_lhs = set(self.axes(lhs, lhs_dim))
      of_rhs = set(self.axes(rhs, rhs_dim))
      summed |= of_lhs & of_rhs
      summed |= (of_lhs ^ of_rhs) - set(self.all_axes(result))
    if not summed:
      return
    self.partial_sums.add(result)
    scattered = self._scattered_later(result, summed)
    if scattered is not None:
      value, sharding = scattered
      users = _users(value)
      if any(self.implied_by(user) for user in users):
        return
      producer = mlir.defining_operation(value)
      if producer is None or producer.name != CONSTRAINT:
        # Otherwise propagation scatters each term of the sum.
        value = self._put_behind(value, _whole(value, sharding)).results[0]
      constraint = self._put_behind(value, sharding)
    else:
      users = _users(result)
      if len(users) == 1 and users[0].name == CONSTRAINT:
        (constraint,) = users
      else:
        sharding = self.of(result)
        if sharding is None:
          sharding = _whole(result, self.of(lhs))
        constraint = self._put_behind(result, sharding)
    total, reduced = constraint.operands[0], constraint.results[0]
    for dim in range(len(shape_of(reduced) or ())):
      if not summed.isdisjoint(self.axes(reduced, dim)):
        cut = Cut(dim, self.num_shards(reduced, dim))
        self._note(constraint, "reduce_scatter", total, cut, summed)
        return
    self._note(constraint, "all_reduce", total, None, summed)

  def _scattered_later(
    self, total: ir.Value, summed: Set[Any]
  ) -> tuple[ir.Value, Any] | None:
    """Where a sum over devices that is whole at first becomes sharded again.

    The transpose of a constraint is the same constraint, so gradients are whole
    where activations were gathered, and then sharded. XLA first adds such sums
    and then makes one reduce-scatter. Returns the last whole value, and the
    sharding of all its users.
    """
    value = total
    while True:
      users = _users(value)
      if not users or any(
        user.name not in ELEMENTWISE | {CONSTRAINT}
        or shape_of(user.results[0]) != shape_of(total)
        for user in users
      ):
        return None
      are_scattered = [
        not summed.isdisjoint(self.all_axes(user.results[0])) for user in users
      ]
      if all(are_scattered):
        return value, self.of(users[0].results[0])
      if any(are_scattered) or len(users) > 1:
        return None
      value = users[0].results[0]

  def _note(
    self,
    constraint: ir.Operation,
    name: str,
    value: ir.Value,
    cut: Cut | None,
    summed: Set[Any] = frozenset(),
  ) -> None:
    """Records a collective; `value` is the larger of input and output."""
    axes = [axis for axis in self.all_axes(value) if axis not in summed]
    self.implied[constraint.results[0]] = Implied(
      name=f"stablehlo.{name}",
      cut=cut,
      nccl_bytes=num_bytes(value) // _size(axes),
    )

  def _put_in(self, value: ir.Value, sharding: Any) -> ir.Operation:
    """Constrains a value at the insertion point, until `remove_put_in`."""
    constraint = sdy.ShardingConstraintOp(value, sharding)
    constraint.operation.attributes[_PUT_IN] = ir.UnitAttr.get()
    self._of[constraint.result] = sharding
    return constraint.operation

  def _put_behind(self, value: ir.Value, sharding: Any) -> ir.Operation:
    """Puts a constraint between a value and all its users."""
    producer = mlir.defining_operation(value)
    assert producer is not None
    uses = list(value.uses)
    with ir.InsertionPoint.after(producer), producer.location:
      constraint = self._put_in(value, sharding)
    for use in uses:
      use.owner.operation.operands[use.operand_number] = constraint.results[0]
    return constraint


def keep(constraint: ir.Operation) -> None:
  """Keeps a constraint that `remove_put_in` would remove."""
  if _PUT_IN in constraint.attributes:
    del constraint.attributes[_PUT_IN]


def remove_put_in(module: ir.Module) -> None:
  """Removes the added constraints that were not kept."""
  for operation in mlir.inner_operations(module.operation):
    if _PUT_IN in operation.attributes:
      operation.results[0].replace_all_uses_with(operation.operands[0])
      operation.erase()


def not_sharded() -> ir.Attribute:
  """The sharding of a replicated dimension."""
  return sdy.DimensionShardingAttr.get([], is_closed=True)


def with_dims(sharding: Any, dims: Sequence[ir.Attribute]) -> Any:
  """The sharding on the same mesh with these shardings of dimensions."""
  return sdy.TensorShardingAttr.get(sharding.mesh_or_ref, dims)


def _whole(value: ir.Value, other: Any) -> Any:
  """A value's replicated sharding, on the mesh of another sharding."""
  return with_dims(other, [not_sharded()] * len(shape_of(value) or ()))


def _size(axes: Iterable[tuple[str, int, int]]) -> int:
  return math.prod(size for _, _, size in axes)


def _users(value: ir.Value) -> list[ir.Operation]:
  return [use.owner.operation for use in value.uses]


def _outside_of_shard_maps(module: ir.Module) -> list[ir.Operation]:
  """All operations that the partitioner handles: none in a shard_map."""
  found: list[ir.Operation] = []

  def visit(operation: ir.Operation) -> ir.WalkResult:
    found.append(operation)
    is_manual = operation.name == "sdy.manual_computation"
    return ir.WalkResult.SKIP if is_manual else ir.WalkResult.ADVANCE

  module.operation.walk(visit, ir.WalkOrder.PRE_ORDER)
  return found[1:]


def _of_results(operation: ir.Operation) -> list[Any]:
  # Propagation turns a constraint into a reshard.
  name = "sharding" if operation.name == "sdy.reshard" else "sdy.sharding"
  if name not in operation.attributes:
    return []
  found = operation.attributes[name]
  if not sdy.TensorShardingPerValueAttr.isinstance(found):
    return [sdy.TensorShardingAttr(found)]
  listed = sdy.TensorShardingPerValueAttr(found).shardings
  return list(map(sdy.TensorShardingAttr, listed))


def _of_arguments(function: ir.Operation) -> list[Any]:
  name = "sdy.sharding"
  if "arg_attrs" not in function.attributes:
    return []
  return [
    sdy.TensorShardingAttr(attributes[name]) if name in attributes else None
    for attributes in map(
      ir.DictAttr, ir.ArrayAttr(function.attributes["arg_attrs"])
    )
  ]
