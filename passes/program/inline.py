# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Inlining of the calls that hold loops.

JAX lowers what a scan calls, an inner jit and `remat` to calls of private
functions. Loops can only be merged where they stand side by side, so calls of
functions with loops in them are replaced by what the functions do, as XLA does
with every call later on.
"""

from __future__ import annotations

from collections.abc import Iterable

from jaxlib.mlir import ir
from jaxlib.mlir import passmanager
from jaxlib.mlir.dialects import sdy

from lagom_xla.passes.program import dependence
from lagom_xla.passes.program import functions

_REMOVE_UNUSED = "builtin.module(symbol-dce)"


def inline_loops(module: ir.Module) -> None:
  """Inlines every call that holds a while loop, at whatever depth.

  Functions that nothing calls any more are removed.
  """
  by_name = functions.by_name(module.operation)
  calls = {name: functions.calls(op) for name, op in by_name.items()}
  called = {
    name: {functions.callee(call) for call in calls[name]} for name in calls
  }
  # Callees first: their callers then take them complete.
  with_loops: set[str] = set()
  for name in functions.callees_first(called):
    if not with_loops.isdisjoint(called[name]) or _has_loop(by_name[name]):
      with_loops.add(name)
    for call in calls[name]:
      if functions.callee(call) in with_loops:
        _inline(call, by_name[functions.callee(call)])
  if with_loops:
    passmanager.PassManager.parse(_REMOVE_UNUSED).run(module.operation)


def _has_loop(function: ir.Operation) -> bool:
  inner = dependence.inner_operations(function)
  return any(operation.name == "stablehlo.while" for operation in inner)


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
