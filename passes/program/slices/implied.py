# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Implied collectives: XLA's partitioner makes them of shardings.

Each is noted on the sharding constraint that stands where the collective will.
Notes are attributes, so that they stay with an operation that is cloned.

A dimension that is cut consists of `parts` blocks of one size, and piece j
holds the j-th piece of every block. A gathered sequence has a part per device,
so that its piece j is what gathering piece j of every device's own tokens
gives. A single part is cut in pieces that lie one after the other.

Products, or constraints, need what is sharded whole. A gather is noted on the
constraint that asks for it. Where the program has none before a product, one is
put in.

Where a product contracts over a sharded dimension each device has a part of the
sum. The reduce-scatter or all-reduce behind is noted on a constraint; where the
program has none there, one is put in.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Set
import dataclasses
import math

from jaxlib.mlir import ir
from jaxlib.mlir.dialects import sdy
from jaxlib.mlir.dialects import stablehlo

from lagom_xla.passes.program import mlir
from lagom_xla.passes.program.mlir import num_bytes
from lagom_xla.passes.program.mlir import shape_of
from lagom_xla.passes.program.slices import shardings as shardings_lib
from lagom_xla.passes.program.slices.shardings import CONSTRAINT
from lagom_xla.passes.program.slices.shardings import Shardings


@dataclasses.dataclass(frozen=True, slots=True)
class Cut:
  """How a value is cut in pieces.

  Attributes:
    dim: the dimension.
    parts: blocks of one size that the dimension consists of, each of which is
      cut in as many pieces.
  """

  dim: int
  parts: int = 1

  def max_pieces(self, shape: Sequence[int]) -> int:
    """The number that numbers of pieces must divide; 0 if there is none."""
    if self.dim >= len(shape):
      return 0
    size, remainder = divmod(shape[self.dim], self.parts)
    return 0 if remainder else size


# Of a list of values; None of those that every piece needs whole.
Cuts = tuple[Cut | None, ...]


def reshaped(
  cut: Cut, shape: Sequence[int], new_shape: Sequence[int]
) -> Cut | None:
  """The same pieces in another shape of the same elements.

  In row-major order a cut is known by how many blocks there are in all.

  Args:
    cut: of a value of the first shape.
    shape: sizes.
    new_shape: sizes with the same product.

  Returns:
    None where the pieces are no pieces of one dimension there.
  """
  num_blocks = math.prod(shape[: cut.dim]) * cut.parts
  before = 1
  for dim, size in enumerate(new_shape):
    if before <= num_blocks < before * size:
      found = Cut(dim, num_blocks // before)
      fits = num_blocks % before == 0 and found.max_pieces(new_shape)
      return found if fits else None
    before *= size
  return None


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


PRODUCT = "stablehlo.dot_general"


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class ProductDims:
  """The dimensions of a product's operands.

  Its result has those of the batch first, and then those that are free.

  Attributes:
    batch: of both operands, in pairs.
    contracted: of both operands, in pairs.
    free: 0 or 1 for the operand, and the dimension.
  """

  batch: list[tuple[int, int]]
  contracted: list[tuple[int, int]]
  free: list[tuple[int, int]]

  @classmethod
  def of(cls, product: ir.Operation) -> ProductDims:
    """Those of a `dot_general`."""
    numbers = stablehlo.DotDimensionNumbers(
      product.attributes["dot_dimension_numbers"]
    )
    lhs_batch = list(numbers.lhs_batching_dimensions)
    rhs_batch = list(numbers.rhs_batching_dimensions)
    lhs_contracted = list(numbers.lhs_contracting_dimensions)
    rhs_contracted = list(numbers.rhs_contracting_dimensions)
    used = ({*lhs_batch, *lhs_contracted}, {*rhs_batch, *rhs_contracted})
    return cls(
      batch=list(zip(lhs_batch, rhs_batch, strict=True)),
      contracted=list(zip(lhs_contracted, rhs_contracted, strict=True)),
      free=[
        (side, dim)
        for side, operand in enumerate(product.operands)
        for dim in range(len(shape_of(operand) or ()))
        if dim not in used[side]
      ],
    )


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
  if operation.name not in ELEMENTWISE:
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


# By a value and the dimension that is gathered.
_Gathered = dict[tuple[ir.Value, int], ir.Operation]


def find_gathers(module: ir.Module, shardings: Shardings) -> None:
  """Notes the gathers that a program without calls implies."""
  gathered: _Gathered = {}
  for operation in mlir.inner_operations(module.operation):
    if operation.name == CONSTRAINT:
      _gather_behind(operation, shardings)
      _note_if_gathering(operation, shardings)
    elif operation.name == PRODUCT:
      _gather_operands(operation, shardings, gathered)


def _gather_behind(constraint: ir.Operation, shardings: Shardings) -> None:
  """Has a constraint gather, where what it constrains would be gathered before.

  Propagation takes the sharding over to the operation before, which then needs
  its operands gathered. Behind an elementwise operation the same is gathered.
  """
  value = constraint.operands[0]
  producer = mlir.defining_operation(value)
  if producer is None or producer.name not in ELEMENTWISE:
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
      note(constraint, kind_, result, cut, shardings)
      return


def _gather_operands(
  product: ir.Operation, shardings: Shardings, gathered: _Gathered
) -> None:
  """Puts constraints before a product's operands that it needs gathered."""
  for i, operand in enumerate(list(product.operands)):
    dim = min(_gathered_dims(product, i, shardings), default=None)
    if dim is None:
      continue
    constraint = gathered.get((operand, dim))
    if constraint is None or constraint.block != product.block:
      sharding = shardings_lib.without_axes(shardings.of(operand), dim)
      with ir.InsertionPoint(product), product.location:
        constraint = put_in(operand, sharding, shardings)
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
  operand, result = product.operands[side], product.results[0]
  other = product.operands[1 - side]
  in_result = shardings.all_axes(result)
  dims = ProductDims.of(product)
  for pair in dims.contracted:
    axes = shardings.axes(operand, pair[side])
    of_other = shardings.axes(other, pair[1 - side])
    if axes and of_other != axes and in_result.issuperset(axes):
      yield pair[side]
  for in_result_dim, (of_side, dim) in enumerate(dims.free, len(dims.batch)):
    axes = shardings.axes(operand, dim) if of_side == side else ()
    if axes and shardings.axes(result, in_result_dim) != axes:
      yield dim


def find_sums(module: ir.Module, shardings: Shardings) -> None:
  """Notes the sums over devices that a program without calls implies."""
  for operation in mlir.inner_operations(module.operation):
    if operation.name == PRODUCT:
      _note_partial_sum(operation, shardings)


def _note_partial_sum(product: ir.Operation, shardings: Shardings) -> None:
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
    constraint = _put_behind(result, sharding, shardings)
  _note_sum(constraint, axes, shardings)


def _summed_axes(product: ir.Operation, shardings: Shardings) -> Iterator[str]:
  """The mesh axes over whose devices a product's terms are."""
  in_result = shardings.all_axes(product.results[0])
  lhs, rhs = product.operands
  for lhs_dim, rhs_dim in ProductDims.of(product).contracted:
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
    operation.name == CONSTRAINT or operation.name in ELEMENTWISE
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
  producer = mlir.defining_operation(value)
  assert producer is not None
  if producer.name != CONSTRAINT:
    # Otherwise propagation has each term of the sum scattered.
    whole = shardings_lib.whole(value, sharding)
    value = _put_behind(value, whole, shardings).results[0]
  constraint = _put_behind(value, sharding, shardings)
  _note_sum(constraint, summed, shardings)


def _put_behind(
  value: ir.Value, sharding: sdy.TensorShardingAttr, shardings: Shardings
) -> ir.Operation:
  """Puts a constraint between a value and all its users."""
  producer = mlir.defining_operation(value)
  assert producer is not None
  uses = list(value.uses)
  with ir.InsertionPoint.after(producer), producer.location:
    constraint = put_in(value, sharding, shardings)
  for use in uses:
    use.owner.operation.operands[use.operand_number] = constraint.results[0]
  return constraint


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
      note(constraint, "reduce_scatter", operand, cut, shardings, axes)
      return
  note(constraint, "all_reduce", operand, None, shardings, axes)
