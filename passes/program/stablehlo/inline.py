# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Inlining of calls.

JAX lowers what a scan calls, an inner jit and `remat` to calls of private
functions. Operations can only be moved and merged where they stand side by
side, so every call is replaced by what its function does, as XLA does later on.
"""

from __future__ import annotations

from collections.abc import Iterable

from jaxlib.mlir import ir
from jaxlib.mlir import passmanager
from jaxlib.mlir.dialects import sdy

from lagom_xla.passes.program.stablehlo import functions

_REMOVE_UNUSED = "builtin.module(symbol-dce)"


def inline_all(module: ir.Module) -> None:
  """Inlines every call; functions that nothing calls any more are removed."""
  by_name = functions.by_name(module.operation)
  calls = {name: functions.calls(op) for name, op in by_name.items()}
  called = {
    name: {functions.callee(call) for call in calls[name]} for name in calls
  }
  for name in functions.callees_first(called):
    for call in calls[name]:
      _inline(call, by_name[functions.callee(call)])
  passmanager.PassManager.parse(_REMOVE_UNUSED).run(module.operation)


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
