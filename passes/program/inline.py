# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Inlining of the calls that hold loops.

JAX lowers what a scan calls, an inner jit and `remat` to calls of private
functions. Loops can only be merged where they stand side by side, so calls of
functions with loops in them are replaced by what the functions do, as XLA does
with every call later on.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from jaxlib.mlir import ir
from jaxlib.mlir import passmanager
from jaxlib.mlir.dialects import sdy

from lagom_xla.passes.program import dependence

_CALLS = frozenset(["call", "func.call"])
_REMOVE_UNUSED = "builtin.module(symbol-dce)"


def inline_loops(module: ir.Module) -> None:
  """Inlines every call that holds a while loop, at whatever depth.

  Functions that nothing calls any more are removed.
  """
  functions = _functions(module)
  with_loops = _with_loops(functions)
  # The last first: their callers then take them complete.
  for name in _callees_first(functions):
    for call in list(_calls(functions[name])):
      callee = _callee(call)
      if callee in with_loops:
        _inline(call, functions[callee])
  passmanager.PassManager.parse(_REMOVE_UNUSED).run(module.operation)


def _functions(module: ir.Module) -> dict[str, ir.Operation]:
  return {
    ir.StringAttr(op.operation.attributes["sym_name"]).value: op.operation
    for op in module.body.operations
    if op.operation.name == "func.func"
  }


def _calls(operation: ir.Operation) -> Iterator[ir.Operation]:
  for inner in dependence.inner_operations(operation):
    if inner.name in _CALLS:
      yield inner


def _callee(call: ir.Operation) -> str:
  return ir.FlatSymbolRefAttr(call.attributes["callee"]).value


def _callees_first(functions: Mapping[str, ir.Operation]) -> list[str]:
  """The functions' names, each after all that it calls."""
  ordered: dict[str, None] = {}

  def visit(name: str) -> None:
    if name in ordered or name not in functions:
      return
    for call in _calls(functions[name]):
      visit(_callee(call))
    ordered[name] = None

  for name in functions:
    visit(name)
  return list(ordered)


def _with_loops(functions: Mapping[str, ir.Operation]) -> set[str]:
  found: set[str] = set()
  for name in _callees_first(functions):
    for inner in dependence.inner_operations(functions[name]):
      if inner.name == "stablehlo.while" or (
        inner.name in _CALLS and _callee(inner) in found
      ):
        found.add(name)
        break
  return found


def _inline(call: ir.Operation, function: ir.Operation) -> None:
  """Puts what a function does in the place of a call of it."""
  copy = function.clone().operation
  (block,) = copy.regions[0].blocks
  with call.location:
    arguments = _constrained(call.operands, function, "arg_attrs", call)
    for argument, operand in zip(block.arguments, arguments, strict=True):
      argument.replace_all_uses_with(operand)
    *operations, returned = [op.operation for op in block.operations]
    for operation in operations:
      operation.move_before(call)
    results = _constrained(returned.operands, function, "res_attrs", call)
    for result, value in zip(call.results, results, strict=True):
      result.replace_all_uses_with(value)
  call.erase()
  copy.erase()


def _constrained(
  values: Iterable[ir.Value],
  function: ir.Operation,
  name: str,
  call: ir.Operation,
) -> list[ir.Value]:
  """Values with the shardings that the function's signature gives them."""
  listed = list(values)
  if name not in function.attributes:
    return listed
  constrained = []
  for value, raw in zip(
    listed, ir.ArrayAttr(function.attributes[name]), strict=True
  ):
    attributes = ir.DictAttr(raw)
    if "sdy.sharding" in attributes:
      with ir.InsertionPoint(call):
        value = sdy.ShardingConstraintOp(
          value, attributes["sdy.sharding"]
        ).result
    constrained.append(value)
  return constrained
