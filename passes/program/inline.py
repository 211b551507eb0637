# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Inlining of the calls that hold loops.

JAX lowers what a scan calls, an inner jit and `remat` to calls of private
functions. Loops can only be merged where they stand side by side, so calls of
functions with loops in them are replaced by what the functions do, as XLA does
with every call later on.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

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
  ordered = functions.callees_first(by_name)
  with_loops = _with_loops(by_name, ordered)
  # Callees first: their callers then take them complete.
  for name in ordered:
    for call in list(functions.calls(by_name[name])):
      callee = functions.callee(call)
      if callee in with_loops:
        _inline(call, by_name[callee])
  passmanager.PassManager.parse(_REMOVE_UNUSED).run(module.operation)


def _with_loops(
  by_name: Mapping[str, ir.Operation], ordered: Iterable[str]
) -> set[str]:
  """The functions that hold loops, or call some that do."""
  found: set[str] = set()
  for name in ordered:
    for inner in dependence.inner_operations(by_name[name]):
      if inner.name == "stablehlo.while" or (
        functions.is_call(inner) and functions.callee(inner) in found
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
