# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Reading StableHLO: dependences, effects, source lines, functions.

JAX lowers a scan's body, an inner jit and `remat` to calls of private
functions. Operations can only be moved and merged within one block, so the
passes inline every call, as XLA does later.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
import math
import re
from typing import Any

from jaxlib.mlir import ir
from jaxlib.mlir import passmanager
from jaxlib.mlir.dialects import sdy

# A value of a block: the position of the operation that defines it and the
# number of the result; or ARGUMENT and the number of the block's argument.
ARGUMENT = -1
Item = tuple[int, int]


class Dataflow:
  """The dependences between the operations of a block, by position.

  Positions identify operations, because jaxlib's hash of an operation is slow
  and changes with its operands. The object describes the block at the time of
  construction; make another one after you move or erase an operation.

  Attributes:
    operations: the block's operations, in order.
    uses: for each, the values of the block that it and its regions use.
  """

  def __init__(self, block: ir.Block):
    self.operations: Sequence[ir.Operation] = [
      op.operation for op in block.operations
    ]
    self._block = block
    self._items: dict[ir.Value, Item] = {
      argument: (ARGUMENT, i) for i, argument in enumerate(block.arguments)
    }
    self.uses: list[frozenset[Item]] = []
    for position, operation in enumerate(self.operations):
      used = map(self.item, used_values(operation))
      self.uses.append(frozenset(item for item in used if item is not None))
      for i, result in enumerate(operation.results):
        self._items[result] = position, i

  def item(self, value: ir.Value) -> Item | None:
    """The item that defines a value; None if it is outside of the block."""
    return self._items.get(value)

  def value(self, item: Item) -> ir.Value:
    """The value of an item."""
    position, number = item
    if position == ARGUMENT:
      return self._block.arguments[number]
    return self.operations[position].results[number]

  def position(self, operation: ir.Operation) -> int:
    """The position of an operation of the block that has results."""
    return self._items[operation.results[0]][0]

  def needed_by(self, positions: Iterable[int]) -> set[int]:
    """Positions of all operations that these need, directly or indirectly."""
    needed: set[int] = set()
    todo = list(positions)
    while todo:
      for position, _ in self.uses[todo.pop()]:
        if position != ARGUMENT and position not in needed:
          needed.add(position)
          todo.append(position)
    return needed


def depends(
  operations: Iterable[ir.Operation], sources: Mapping[ir.Value, int]
) -> dict[ir.Value, int]:
  """The sources that each value depends on, directly or not, as bits.

  `operations` are all or the first operations of a block, in order; sources are
  values of the block or from outside.
  """
  known = dict(sources)
  for operation in operations:
    mask = 0
    for value in (*operation.results, *used_values(operation)):
      mask |= known.get(value, 0)
    if mask:
      known.update((result, mask) for result in operation.results)
  return known


def bits_of(operation: ir.Operation, known: Mapping[ir.Value, int]) -> int:
  """The bits of an operation's results, as `depends` found them."""
  return known.get(operation.results[0], 0) if len(operation.results) else 0


def defining_operation(value: ir.Value) -> ir.Operation | None:
  """The operation that defines a value; None for a block's argument."""
  owner = value.owner
  return None if isinstance(owner, ir.Block) else owner.operation


def used_values(operation: ir.Operation) -> Iterator[ir.Value]:
  """The values that an operation and its regions use."""
  yield from operation.operands
  for inner in inner_operations(operation) if len(operation.regions) else ():
    yield from inner.operands


def inner_operations(operation: ir.Operation) -> list[ir.Operation]:
  """All operations nested in an operation, at any depth, in order."""
  found: list[ir.Operation] = []

  def visit(inner: ir.Operation) -> ir.WalkResult:
    found.append(inner)
    return ir.WalkResult.ADVANCE

  operation.walk(visit, ir.WalkOrder.PRE_ORDER)
  return found[1:]


def direct_operations(operation: ir.Operation) -> list[ir.Operation]:
  """The operations directly in the blocks of an operation, in order."""
  return [
    inner.operation
    for region in operation.regions
    for block in region.blocks
    for inner in block.operations
  ]


def returned(block: ir.Block) -> list[ir.Value]:
  """The values that a block's terminator returns."""
  return list(block.operations[len(block.operations) - 1].operands)


COLLECTIVES = frozenset(
  f"stablehlo.{name}"
  for name in (
    "all_gather", "all_reduce", "all_to_all", "collective_broadcast",
    "collective_permute", "reduce_scatter",
  )
)  # fmt: skip
CONSTRAINT = "sdy.sharding_constraint"
LOOP = "stablehlo.while"
PRODUCT = "stablehlo.dot_general"
CONVOLUTION = "stablehlo.convolution"
_PARTITIONS = "mhlo.num_partitions"


def is_partitioned(module: ir.Module) -> bool:
  """Whether a program is partitioned over several devices.

  If so, the partitioner may communicate anywhere.
  """
  attributes = module.operation.attributes
  return (
    _PARTITIONS in attributes
    and ir.IntegerAttr(attributes[_PARTITIONS]).value > 1
  )


def is_collective(operation: ir.Operation) -> bool:
  """Whether it is a collective, or a constraint, which may become one."""
  return operation.name in COLLECTIVES or operation.name == CONSTRAINT


_EFFECTFUL = frozenset(
  f"stablehlo.{name}" for name in ("infeed", "outfeed", "recv", "rng", "send")
)


def first_effect(operation: ir.Operation) -> str | None:
  """The first effect of an operation or of its regions, in words.

  For example "the host callback xla_ffi_python_cpu_callback, which has side
  effects". Inline calls first (`inline_all`): callees are not examined.
  """
  each = map(_own_effect, (operation, *inner_operations(operation)))
  return next((effect for effect in each if effect), None)


def _own_effect(operation: ir.Operation) -> str | None:
  if operation.name in _EFFECTFUL:
    return operation.name
  if operation.name == "stablehlo.custom_call":
    attributes = operation.attributes
    side_effect = "has_side_effect"
    if side_effect in attributes and ir.BoolAttr(attributes[side_effect]).value:
      target = ir.StringAttr(attributes["call_target_name"]).value
      kind = "host callback" if "callback" in target else "library call"
      return f"the {kind} {target}, which has side effects"
  values = (*operation.operands, *operation.results)
  if any(str(value.type) == "!stablehlo.token" for value in values):
    return f"the order that a token gives {operation.name}"
  return None


def shape_of(value: ir.Value) -> tuple[int, ...] | None:
  """The shape of a tensor; None for other types and for dynamic shapes."""
  type_ = value.type
  if not isinstance(type_, ir.RankedTensorType) or not type_.has_static_shape:
    return None
  return tuple(type_.shape)


def num_bytes(value: ir.Value) -> int:
  """Bytes of a tensor as XLA stores it, with one byte per boolean.

  0 for other values and special types.
  """
  shape: Any = shape_of(value)
  element: Any = getattr(value.type, "element_type", None)
  if shape is None:
    return 0
  num = math.prod(shape)
  if isinstance(element, ir.ComplexType):
    num, element = 2 * num, element.element_type
  width = getattr(element, "width", 0)
  return -(-num * (8 if width == 1 else width) // 8)


# XLA's combiners only join collectives with equal values of this.
COMBINER_KEY = "combiner_key"

_NAME = "mhlo.frontend_attributes"


def frontend_attribute(operation: ir.Operation, name: str) -> bool:
  """Whether an operation has a frontend attribute of this name."""
  return _NAME in operation.attributes and name in ir.DictAttr(
    operation.attributes[_NAME]
  )


def set_frontend_attributes(
  operation: ir.Operation, added: Mapping[str, str]
) -> None:
  """Adds frontend attributes to those of an operation."""
  attributes = {}
  if _NAME in operation.attributes:
    for named in ir.DictAttr(operation.attributes[_NAME]):
      attributes[named.name] = named.attr
  for name, text in added.items():
    attributes[name] = ir.StringAttr.get(text)
  operation.attributes[_NAME] = ir.DictAttr.get(attributes)


_SOURCE_LINE = re.compile(r'"([^"]+\.py)":(\d+)')
_PLACE_NAME = re.compile(r'^loc\("([^"]+)"')


def place_of(operation: ir.Operation) -> str:
  """The source line of an operation, or its name if the line is unknown.

  This is the innermost line of the user's files, or else of any other.
  """
  location = str(operation.location)
  lines = _SOURCE_LINE.findall(location)
  if lines:
    file, line = next(filter(_is_users, lines), lines[0])
    return f"{file.rpartition('/')[2]}:{line}"
  name = _PLACE_NAME.match(location)
  return name[1] if name is not None else f"a {operation.name}"


def _is_users(line: tuple[str, str]) -> bool:
  return "site-packages" not in line[0]


def user_line(operations: Iterable[ir.Operation]) -> str:
  """The first source line of operations in the user's files; "" for none.

  This is the lowest file and line, because uses of a value are in no order.
  """
  found = []
  for operation in operations:
    lines = _SOURCE_LINE.findall(str(operation.location))
    found += [(f, int(n)) for f, n in filter(_is_users, lines)][:1]
  if not found:
    return ""
  file, line = min(found)
  return f"{file.rpartition('/')[2]}:{line}"


_CALLS = frozenset(["call", "func.call"])


def functions_by_name(module: ir.Operation) -> dict[str, ir.Operation]:
  """The functions of a module."""
  return {
    ir.StringAttr(op.operation.attributes["sym_name"]).value: op.operation
    for op in module.regions[0].blocks[0].operations
    if op.operation.name == "func.func"
  }


def is_call(operation: ir.Operation) -> bool:
  """Whether an operation calls a function of the module."""
  return operation.name in _CALLS


def callee(call: ir.Operation) -> str:
  """The name of the function that a call calls."""
  return ir.FlatSymbolRefAttr(call.attributes["callee"]).value


def copied(module: ir.Module) -> ir.Module:
  """A copy of a program; the module's context must be current."""
  copy = ir.Module.create()
  for name, attribute in module.operation.attributes.items():
    copy.operation.attributes[name] = attribute
  for operation in module.body.operations:
    copy.body.append(operation.operation.clone())
  return copy


_REMOVE_UNUSED = "builtin.module(symbol-dce)"


def inline_all(module: ir.Module) -> None:
  """Inlines every call, and removes functions that become unused."""
  by_name = functions_by_name(module.operation)
  done: set[str] = set()

  def inline_in(name: str) -> None:
    if name in done:
      return
    done.add(name)
    for call in filter(is_call, inner_operations(by_name[name])):
      inline_in(callee(call))
      _inline(call, by_name[callee(call)])

  for name in by_name:
    inline_in(name)
  passmanager.PassManager.parse(_REMOVE_UNUSED).run(module.operation)


def _inline(call: ir.Operation, function: ir.Operation) -> None:
  """Replaces a call by the operations of its function."""
  copy = function.clone().operation
  (block,) = copy.regions[0].blocks
  with ir.InsertionPoint(call), call.location:
    arguments = _constrained(call.operands, function, "arg_attrs")
    for argument, operand in zip(block.arguments, arguments, strict=True):
      argument.replace_all_uses_with(operand)
    *operations, returned = [op.operation for op in block.operations]
    for operation in operations:
      operation.move_before(call)
    results = _constrained(returned.operands, function, "res_attrs")
    for result, value in zip(call.results, results, strict=True):
      result.replace_all_uses_with(value)
  call.erase()
  copy.erase()


def _constrained(
  values: Iterable[ir.Value], function: ir.Operation, name: str
) -> list[ir.Value]:
  """Values constrained to the shardings in the function's signature."""
  values = list(values)
  if name in function.attributes:
    for i, raw in enumerate(ir.ArrayAttr(function.attributes[name])):
      attributes = ir.DictAttr(raw)
      if "sdy.sharding" in attributes:
        sharding = attributes["sdy.sharding"]
        values[i] = sdy.ShardingConstraintOp(values[i], sharding).result
  return values
