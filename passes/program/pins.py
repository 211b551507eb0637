# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Adds sharding constraints ("pins") to a program that lacks them.

    changed, pins = pins.pin_activations(module, data=[26])

The values that layers pass on have the batch in their first dimension. Without
a constraint, the partitioner may give them the sharding of weights, and
communicate around each product. Similarly, reshaping a batch into micro-batches
puts whole micro-batches on some of the devices. A pin is the constraint that
`jax.lax.with_sharding_constraint` writes, with the batch's sharding. Arguments
can be sharded differently, too. All functions work on copies.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
import dataclasses
import functools
import math
from typing import Any

from jaxlib.mlir import ir
from jaxlib.mlir.dialects import sdy
from jaxlib.mlir.dialects import stablehlo

from lagom_xla.passes.program import mlir

# Operations that read or write stacks, or pass on values that a trip does not
# change.
_PASSIVE = frozenset(
  [
    *("stablehlo.dynamic_slice", "stablehlo.dynamic_update_slice"),
    *("stablehlo.return", "func.return", "stablehlo.while"),
  ]
)
_SUM = "stablehlo.add"
# Operations that optimizers update state with, element by element.
_ELEMENT_BY_ELEMENT = frozenset(
  [
    *(_SUM, "stablehlo.subtract", "stablehlo.multiply", "stablehlo.divide"),
    *("stablehlo.convert", "stablehlo.negate", "stablehlo.select"),
    *("stablehlo.sqrt", "stablehlo.maximum", "stablehlo.minimum"),
    "stablehlo.optimization_barrier",
  ]
)
# Attributes that name mesh axes.
_SHARDINGS = (
  *("arg_attrs", "res_attrs", "sdy.sharding", "sharding", "manual_axes"),
  *("in_shardings", "out_shardings", "target"),
)
# Operations that keep the dimensions of a batch.
_SAME = frozenset(["stablehlo.convert", "stablehlo.slice"])
_OF_WEIGHTS = _SAME | {"stablehlo.dynamic_slice"}


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Pin:
  """A constraint added to a program.

  Attributes:
    place: the first of the user's lines that uses the value; "" if unknown.
    shape: of the value, such as "bf16[8,4096]".
    spec: its `PartitionSpec`, such as "P('data')".
    num_bytes: of the whole value.
  """

  place: str
  shape: str
  spec: str
  num_bytes: int


Pins = tuple[ir.Module, tuple[Pin, ...]]


@dataclasses.dataclass(frozen=True, slots=True)
class _Batch:
  """A sharded argument that is data.

  Attributes:
    argument: its value.
    dim: the first of its dimensions that is sharded.
    sharding: of the argument.
  """

  argument: ir.Value
  dim: int
  sharding: Any

  @property
  def shape(self) -> tuple[int, ...]:
    """The argument's shape."""
    return mlir.shape_of(self.argument) or ()

  @property
  def rows(self) -> int:
    """The size of the sharded dimension."""
    return self.shape[self.dim]

  @property
  def of_dim(self) -> Any:
    """The sharding of that dimension."""
    return sdy.DimensionShardingAttr(
      self.sharding.dimension_shardings[self.dim]
    )


def pin_activations(module: ir.Module, data: Collection[int]) -> Pins:
  """Pins the values that layers pass on to the sharding of the batch.

  Args:
    module: a lowered program, which is not changed.
    data: numbers of the arguments other than state.

  Returns:
    A copy with the pins, and the pins; () if there is nothing to pin.
  """
  pin = functools.partial(_pin_layers, data=data)
  return _pinned(module, data, pin, or_whole=True)


def pin_splits(module: ir.Module, data: Collection[int]) -> Pins:
  """Pins micro-batches that are reshaped from a sharded batch."""
  return _pinned(module, data, _pin_splits)


def _pinned(
  module: ir.Module,
  data: Collection[int],
  pin: Callable[[ir.Module, list[_Batch]], Iterator[Pin]],
  *,
  or_whole: bool = False,
) -> Pins:
  with module.context, ir.Location.unknown():
    copy = mlir.copied(module)
    main = mlir.functions_by_name(copy.operation)["main"]
    batches = _batches(main, data)
    if not batches and or_whole:
      batches = _whole_batch(main, data)
    pins = tuple(pin(copy, batches)) if batches else ()
    return copy, pins


def _batches(main: ir.Operation, data: Collection[int]) -> list[_Batch]:
  """The sharded data arguments, largest first."""
  arguments = main.regions[0].blocks[0].arguments
  found = []
  for number, sharding in enumerate(shardings_of(main)):
    if number in data and sharding is not None:
      for dim, raw in enumerate(sharding.dimension_shardings):
        if len(sdy.DimensionShardingAttr(raw).axes):
          found.append(_Batch(arguments[number], dim, sharding))
          break
  return sorted(found, key=lambda b: -mlir.num_bytes(b.argument))


def _whole_batch(main: ir.Operation, data: Collection[int]) -> list[_Batch]:
  """The largest data argument, if it is replicated."""
  arguments = main.regions[0].blocks[0].arguments
  meshes = [s.mesh_or_ref for s in shardings_of(main) if s is not None]
  some = [arguments[n] for n in data if mlir.shape_of(arguments[n])]
  if not meshes or not some:
    return []
  largest = max(some, key=mlir.num_bytes)
  rank = len(mlir.shape_of(largest) or ())
  return [_Batch(largest, 0, _sharded(None, meshes[0], rank, {}))]


def shardings_of(main: ir.Operation) -> list[Any]:
  """The shardings of a function's arguments; None for those without one."""
  if "arg_attrs" not in main.attributes:
    return []
  return [
    sdy.TensorShardingAttr(attributes["sdy.sharding"])
    if "sdy.sharding" in attributes
    else None
    for attributes in map(
      ir.DictAttr, ir.ArrayAttr(main.attributes["arg_attrs"])
    )
  ]


def _pin_splits(module: ir.Module, batches: list[_Batch]) -> Iterator[Pin]:
  for batch in batches:
    for split in list(_splits(module, batch)):
      with ir.InsertionPoint.after(split):
        yield _pin(split.results[0], batch, batch.dim + 1, [split])


def _splits(module: ir.Module, batch: _Batch) -> Iterator[ir.Operation]:
  """Reshapes of the batch into micro-batches of consecutive rows.

  Excludes reshapes followed by a transpose, which take rows from each device.
  """
  operations = mlir.inner_operations(module.operation)
  calls = {mlir.callee(o): o for o in operations if mlir.is_call(o)}
  for operation in operations:
    if operation.name != "stablehlo.reshape":
      continue
    before = mlir.shape_of(operation.operands[0]) or ()
    after = mlir.shape_of(operation.results[0]) or ()
    dim = batch.dim
    if (
      _source(operation.operands[0], calls) == batch.argument
      and len(after) == len(before) + 1
      and after[:dim] == before[:dim]
      and after[dim + 2 :] == before[dim + 1 :]
      and after[dim] > 1
      and not all(
        use.owner.operation.name == "stablehlo.transpose"
        for use in operation.results[0].uses
      )
    ):
      yield operation


def _source(value: ir.Value, calls: Mapping[str, ir.Operation]) -> ir.Value:
  """Follows a value back through operations that keep its dimensions."""
  while True:
    made = mlir.defining_operation(value)
    if made is not None and made.name in _SAME:
      value = made.operands[0]
      continue
    if made is not None:
      return value
    argument = ir.BlockArgument(value)
    function = argument.owner.owner
    if "sym_name" not in function.attributes:
      return value
    name = ir.StringAttr(function.attributes["sym_name"]).value
    if name not in calls:
      return value
    value = calls[name].operands[argument.arg_number]


def _sizes(module: ir.Module, batch: _Batch) -> set[int]:
  """Possible sizes of a dimension of rows, which are sequences or tokens."""
  rows = {batch.rows}
  for split in _splits(module, batch):
    rows.add((mlir.shape_of(split.results[0]) or ())[batch.dim + 1])
  # A step may drop one token of each sequence.
  rest = math.prod(batch.shape[batch.dim + 1 :])
  return {n * many for n in rows for many in (1, rest, rest - 1) if many > 0}


def _pin_layers(
  module: ir.Module, batches: list[_Batch], data: Collection[int]
) -> Iterator[Pin]:
  batch = batches[0]
  functions = mlir.functions_by_name(module.operation)
  sizes = _sizes(module, batch)
  everything = mlir.inner_operations(module.operation)
  calls = {mlir.callee(o): o for o in everything if mlir.is_call(o)}

  def dim_of_rows(value: ir.Value) -> int | None:
    """The first dimension, or the second one if the first is time."""
    shape = mlir.shape_of(value) or ()
    if len(shape) < 2 or not isinstance(_element_type(value), ir.FloatType):
      return None
    if shape[0] in sizes:
      dim = 0
    elif shape[1] in sizes and len(shape) > 2:
      dim = 1
    else:
      return None
    # A weight may have as many rows as the batch.
    return None if _is_of_state(value, data, calls) else dim

  pins = []
  operations = [o for o in everything if not _is_manual(o)]
  for body in (
    o.regions[1].blocks[0] for o in operations if o.name == mlir.LOOP
  ):
    for value in body.arguments:
      if (dim := dim_of_rows(value)) is None:
        continue
      uses = [u for u in _uses(value, functions) if u.name not in _PASSIVE]
      # A value that is only added to is a sum over the trips.
      if any(use.name != _SUM for use in uses):
        with ir.InsertionPoint.at_block_begin(body):
          pins.append(_pin(value, batch, dim, uses))
  # Within layers and between unrolled layers, sums are passed on, too: those
  # with the shape of a sum that feeds another one.
  sums = [
    (operation, dim, list(_uses(operation.results[0], functions)))
    for operation in operations
    if operation.name == _SUM
    and (dim := dim_of_rows(operation.results[0])) is not None
  ]
  sums = [item for item in sums if len(item[2]) > 1]
  shapes = {pin.shape for pin in pins} or {
    _in_words(total.results[0])
    for total, _, uses in sums
    if any(
      use.name == _SUM and use.results[0].type == total.results[0].type
      for use in uses
    )
  }
  for total, dim, uses in sums:
    if not shapes or _in_words(total.results[0]) in shapes:
      with ir.InsertionPoint.after(total):
        pins.append(_pin(total.results[0], batch, dim, uses))
  yield from sorted(pins, key=lambda pin: (not pin.place, -pin.num_bytes))


def _is_of_state(
  value: ir.Value, data: Collection[int], calls: Mapping[str, ir.Operation]
) -> bool:
  """Whether a value is state, or is made from state element by element."""
  shape, todo, seen = mlir.shape_of(value), [value], {value}
  while todo:
    value = todo.pop()
    made = mlir.defining_operation(value)
    if made is not None:
      before = made.operands if made.name in _ELEMENT_BY_ELEMENT else ()
    else:
      argument = ir.BlockArgument(value)
      owner = argument.owner.owner
      name = ""
      if "sym_name" in owner.attributes:
        name = ir.StringAttr(owner.attributes["sym_name"]).value
      if name == "main" and argument.arg_number not in data:
        return True
      call = owner if owner.name == mlir.LOOP else calls.get(name)
      before = [call.operands[argument.arg_number]] if call else ()
    fresh = [v for v in before if mlir.shape_of(v) == shape and v not in seen]
    todo += fresh
    seen.update(fresh)
  return False


def _is_manual(operation: ir.Operation) -> bool:
  """Whether it is in a `jax.shard_map`, where XLA shards nothing."""
  parent = operation.parent
  while parent is not None:
    if parent.operation.name == "sdy.manual_computation":
      return True
    parent = parent.operation.parent
  return False


def pin_products(module: ir.Module, data: Collection[int]) -> Pins:
  """Pins products of rows and sharded weights to the sharding of both.

  Rows get the batch's sharding, and columns the weight's, without the mesh axes
  of the rows.
  """
  return _pinned(module, data, _pin_products)


def _pin_products(module: ir.Module, batches: list[_Batch]) -> Iterator[Pin]:
  batch, pins = batches[0], []
  sizes, batch_axes = _sizes(module, batch), _axes(batch.of_dim)
  operations = mlir.inner_operations(module.operation)
  calls = {mlir.callee(o): o for o in operations if mlir.is_call(o)}
  shardings = shardings_of(mlir.functions_by_name(module.operation)["main"])
  for operation in operations:
    if operation.name != "stablehlo.dot_general":
      continue
    value = operation.results[0]
    columns = _columns(operation, calls, shardings, batch_axes)
    if not any(columns.values()):
      continue
    shape = mlir.shape_of(value) or ()
    rows = [d for d, n in enumerate(shape) if d not in columns and n in sizes]
    if not rows:
      continue
    dims = {
      d: [a for a in axes if a not in batch_axes] for d, axes in columns.items()
    }
    dims[rows[0]] = [*batch_axes]
    users = [use.owner.operation for use in value.uses]
    if [user.name for user in users] == ["stablehlo.transpose"]:
      (operation,) = users
      order = [*ir.DenseI64ArrayAttr(operation.attributes["permutation"])]
      dims = {order.index(d): axes for d, axes in dims.items()}
      value = operation.results[0]
      users = [use.owner.operation for use in value.uses]
    if [user.name for user in users] == ["sdy.sharding_constraint"]:
      continue
    with ir.InsertionPoint.after(operation):
      pins.append(_pin_to(value, batch, dims, [operation]))
  yield from sorted(pins, key=lambda pin: (not pin.place, -pin.num_bytes))


def _columns(
  product: ir.Operation,
  calls: Mapping[str, ir.Operation],
  shardings: Sequence[Any],
  taken: Collection[str],
) -> dict[int, tuple[str, ...]]:
  """Dimensions of a product that come from a weight -> their mesh axes.

  {} unless the product has exactly one weight, whose axes include some that
  rows use.
  """
  numbers = stablehlo.DotDimensionNumbers(
    product.attributes["dot_dimension_numbers"]
  )
  sides = (
    (numbers.lhs_batching_dimensions, numbers.lhs_contracting_dimensions),
    (numbers.rhs_batching_dimensions, numbers.rhs_contracting_dimensions),
  )
  free, end = [], len(numbers.lhs_batching_dimensions)
  for operand, (batching, contracting) in zip(
    product.operands, sides, strict=True
  ):
    rank = len(mlir.shape_of(operand) or ())
    own = [d for d in range(rank) if d not in (*batching, *contracting)]
    free.append(dict(zip(range(end, end + len(own)), own, strict=True)))
    end += len(own)
  weights = [_weight(operand, calls) for operand in product.operands]
  if sum(weight is not None for weight in weights) != 1:
    return {}
  ((weight, own),) = (
    (weight, own)
    for weight, own in zip(weights, free, strict=True)
    if weight is not None
  )
  number, dims = weight
  sharding = shardings[number] if number < len(shardings) else None
  if sharding is None:
    return {}
  axes = [
    _axes(sdy.DimensionShardingAttr(d)) for d in sharding.dimension_shardings
  ]
  if not any(axis in taken for of_dim in axes for axis in of_dim):
    return {}
  return {of: axes[dims[dim]] for of, dim in own.items()}


def _weight(
  value: ir.Value, calls: Mapping[str, ir.Operation]
) -> tuple[int, list[int]] | None:
  """The argument of which a value is a part, and its dimensions there."""
  dims = list(range(len(mlir.shape_of(value) or ())))
  while True:
    operation = mlir.defining_operation(value)
    if operation is None:
      argument = ir.BlockArgument(value)
      owner = argument.owner.owner
      if owner.name == mlir.LOOP:
        value = owner.operands[argument.arg_number]
      elif "sym_name" not in owner.attributes:
        return None
      elif (name := ir.StringAttr(owner.attributes["sym_name"]).value) in calls:
        value = calls[name].operands[argument.arg_number]
      else:
        return (argument.arg_number, dims) if name == "main" else None
      continue
    if not len(operation.operands):
      return None
    operand = operation.operands[0]
    if operation.name == "stablehlo.optimization_barrier":
      operand = operation.operands[ir.OpResult(value).result_number]
    elif operation.name == "stablehlo.transpose":
      order = ir.DenseI64ArrayAttr(operation.attributes["permutation"])
      dims = [order[d] for d in dims]
    elif operation.name == "stablehlo.reshape":  # Adds or drops sizes of 1.
      places = [
        [d for d, size in enumerate(mlir.shape_of(v) or ()) if size > 1]
        for v in (value, operand)
      ]
      sizes = [
        [n for n in mlir.shape_of(v) or () if n > 1] for v in (value, operand)
      ]
      if sizes[0] != sizes[1] or not set(dims) <= set(places[0]):
        return None
      at = dict(zip(*places, strict=True))
      dims = [at[d] for d in dims]
    elif operation.name not in _OF_WEIGHTS:
      return None
    value = operand


def _pin(
  value: ir.Value, batch: _Batch, dim: int, uses: Sequence[ir.Operation]
) -> Pin:
  """Shards the rows of a value like the batch, for all of its users."""
  return _pin_to(value, batch, {dim: _axes(batch.of_dim)}, uses)


def _pin_to(
  value: ir.Value,
  batch: _Batch,
  axes: Mapping[int, Sequence[str]],
  uses: Sequence[ir.Operation],
) -> Pin:
  """Constrains a value at the insertion point, for all of its users."""
  rank = len(mlir.shape_of(value) or ())
  users = list(value.uses)
  sharding = _sharded(None, batch.sharding.mesh_or_ref, rank, axes)
  pinned = sdy.ShardingConstraintOp(value, sharding).result
  for use in users:
    use.owner.operation.operands[use.operand_number] = pinned
  last = max((dim for dim in axes if axes[dim]), default=-1)
  return Pin(
    place=mlir.user_line(uses),
    shape=_in_words(value),
    spec=spec([axes.get(dim, ()) for dim in range(last + 1)]),
    num_bytes=mlir.num_bytes(value),
  )


def _axes(of_dim: Any) -> tuple[str, ...]:
  return tuple(sdy.AxisRefAttr(axis).name for axis in of_dim.axes)


def spec(dims: Sequence[Sequence[str]]) -> str:
  """A PartitionSpec as code."""
  words = []
  for axes in dims:
    named = [f"'{axis}'" for axis in axes]
    words.append(f"({', '.join(named)})" if len(named) > 1 else "".join(named))
  return f"P({', '.join(word or 'None' for word in words)})"


def _element_type(value: ir.Value) -> ir.Type:
  return ir.RankedTensorType(value.type).element_type


def _in_words(value: ir.Value) -> str:
  sizes = ",".join(map(str, mlir.shape_of(value) or ()))
  return f"{_element_type(value)}[{sizes}]"


def _uses(
  value: ir.Value, functions: Mapping[str, ir.Operation]
) -> Iterator[ir.Operation]:
  """Users of a value, including those in functions that take it."""
  for use in value.uses:
    user = use.owner.operation
    if mlir.is_call(user) and mlir.callee(user) in functions:
      block = functions[mlir.callee(user)].regions[0].blocks[0]
      yield from _uses(block.arguments[use.operand_number], functions)
    else:
      yield user


def axis_sizes(module: ir.Module) -> Mapping[str, int]:
  """Sizes of the axes of all meshes of a program."""
  sizes: dict[str, int] = {}
  with module.context:
    for operation in mlir.direct_operations(module.operation):
      if operation.name == "sdy.mesh":
        axes = sdy.MeshAttr(operation.attributes["mesh"]).axes
        sizes.update((a.name, a.size) for a in map(sdy.MeshAxisAttr, axes))
  return sizes


def axes_without_arrays(module: ir.Module) -> Mapping[str, int]:
  """Mesh axes of several devices that no sharding in a program names."""
  sizes, used = axis_sizes(module), set()
  with module.context:
    for operation in mlir.inner_operations(module.operation):
      for name in _SHARDINGS:
        if name in operation.attributes:
          text = str(operation.attributes[name])
          used.update(axis for axis in sizes if f'"{axis}"' in text)
  return {a: n for a, n in sizes.items() if n > 1 and a not in used}


def looked_up(module: ir.Module) -> Mapping[int, str]:
  """Arguments of which a program looks up rows -> the line, "" if unknown."""
  found: dict[int, str] = {}
  with module.context:
    operations = mlir.inner_operations(module.operation)
    calls = {mlir.callee(o): o for o in operations if mlir.is_call(o)}
    for operation in operations:
      if operation.name != "stablehlo.gather" or _is_manual(operation):
        continue
      weight = _weight(operation.operands[0], calls)
      sizes = [*ir.DenseI64ArrayAttr(operation.attributes["slice_sizes"])]
      if weight is not None and weight[1] == [0, 1] and sizes[0] == 1:
        lines = (mlir.user_line([o]) for o in _with_callers(operation, calls))
        found.setdefault(weight[0], next(filter(None, lines), ""))
  return found


def _with_callers(
  operation: ir.Operation | None, calls: Mapping[str, ir.Operation]
) -> Iterator[ir.Operation]:
  """An operation, the call of its function, the call of that one's, ..."""
  while operation is not None:
    yield operation
    outer = operation
    while outer is not None and "sym_name" not in outer.attributes:
      outer = outer.parent and outer.parent.operation
    if outer is None:
      return
    operation = calls.get(ir.StringAttr(outer.attributes["sym_name"]).value)


def shard_arguments(
  module: ir.Module, wanted: Mapping[int, Mapping[int, Sequence[str]]]
) -> ir.Module:
  """Shards dimensions of arguments over mesh axes; keeps the others.

  If the step donates an argument, the result that replaces it gets the same
  sharding.

  Args:
    module: a lowered program, which is not changed.
    wanted: number of an argument -> dimension -> axes, in their order.
  """
  with module.context, ir.Location.unknown():
    copy = mlir.copied(module)
    main = mlir.functions_by_name(copy.operation)["main"]
    attrs = [ir.DictAttr(a) for a in ir.ArrayAttr(main.attributes["arg_attrs"])]
    mesh = next(s for s in shardings_of(main) if s is not None).mesh_or_ref
    results = []
    if "res_attrs" in main.attributes:
      listed = ir.ArrayAttr(main.attributes["res_attrs"])
      results = [ir.DictAttr(attributes) for attributes in listed]
    arguments = main.regions[0].blocks[0].arguments
    for number, dims in wanted.items():
      rank = len(mlir.shape_of(arguments[number]) or ())
      sharding = _sharded(shardings_of(main)[number], mesh, rank, dims)
      attrs[number] = _with(attrs[number], sharding)
      alias = "tf.aliasing_output"
      if alias in attrs[number] and results:
        result = ir.IntegerAttr(attrs[number][alias]).value
        results[result] = _with(results[result], sharding)
    main.attributes["arg_attrs"] = ir.ArrayAttr.get(attrs)
    if results:
      main.attributes["res_attrs"] = ir.ArrayAttr.get(results)
    return copy


def shard_batch(
  module: ir.Module, wanted: Mapping[int, Mapping[int, Sequence[str]]]
) -> ir.Module:
  """As `shard_arguments`, for data. Rows with the same pins follow."""
  copy = shard_arguments(module, wanted)
  with module.context, ir.Location.unknown():
    main = mlir.functions_by_name(copy.operation)["main"]
    constraints = [
      operation
      for operation in mlir.inner_operations(copy.operation)
      if operation.name == "sdy.sharding_constraint"
    ]
    for batch in _batches(main, wanted):
      number = ir.BlockArgument(batch.argument).arg_number
      before = axes_of(module, number)[batch.dim]
      after, sizes = _axes(batch.of_dim), _sizes(copy, batch)
      parts = math.prod(axis_sizes(copy)[axis] for axis in after)
      for operation in constraints:
        sharding = sdy.TensorShardingAttr(operation.attributes["sharding"])
        shape = mlir.shape_of(operation.results[0]) or ()
        rows = {
          dim: after
          for dim, raw in enumerate(sharding.dimension_shardings)
          if _axes(sdy.DimensionShardingAttr(raw)) == before
          and shape[dim] in sizes
          and shape[dim] % parts == 0
        }
        operation.attributes["sharding"] = _sharded(
          sharding, sharding.mesh_or_ref, len(shape), rows
        )
    return copy


def _sharded(
  sharding: Any, mesh: Any, rank: int, wanted: Mapping[int, Sequence[str]]
) -> Any:
  none = sdy.DimensionShardingAttr.get([], is_closed=True)
  dims = [none] * rank if sharding is None else [*sharding.dimension_shardings]
  for dim, axes in wanted.items():
    refs = [sdy.AxisRefAttr.get(axis) for axis in axes]
    dims[dim] = sdy.DimensionShardingAttr.get(refs, is_closed=True)
  return sdy.TensorShardingAttr.get(mesh, dims)


def _with(attributes: ir.DictAttr, sharding: Any) -> ir.DictAttr:
  named = {one.name: one.attr for one in attributes}
  return ir.DictAttr.get({**named, "sdy.sharding": sharding})


def axes_of(module: ir.Module, number: int) -> tuple[tuple[str, ...], ...]:
  """The mesh axes of each dimension of an argument."""
  with module.context:
    main = mlir.functions_by_name(module.operation)["main"]
    shardings = shardings_of(main)
    arguments = main.regions[0].blocks[0].arguments
    sharding = shardings[number] if shardings else None
    if sharding is None:
      return ((),) * len(mlir.shape_of(arguments[number]) or ())
    return tuple(
      _axes(sdy.DimensionShardingAttr(d)) for d in sharding.dimension_shardings
    )


def sizes_of(module: ir.Module, number: int) -> tuple[int, ...]:
  """The global shape of an argument."""
  with module.context:
    main = mlir.functions_by_name(module.operation)["main"]
    return mlir.shape_of(main.regions[0].blocks[0].arguments[number]) or ()
