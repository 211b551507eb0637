# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Functions of a module, and who calls them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from jaxlib.mlir import ir

from lagom_xla.passes.program.stablehlo import dependence

_CALLS = frozenset(["call", "func.call"])


def by_name(module: ir.Operation) -> dict[str, ir.Operation]:
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


def calls(operation: ir.Operation) -> list[ir.Operation]:
  """The calls in the regions of an operation, at any depth."""
  return [op for op in dependence.inner_operations(operation) if is_call(op)]


def callees_first(called: Mapping[str, Iterable[str]]) -> list[str]:
  """Names of functions, each after all that it calls.

  Args:
    called: the functions that each function calls.
  """
  ordered: dict[str, None] = {}

  def visit(name: str) -> None:
    if name not in ordered and name in called:
      for other in called[name]:
        visit(other)
      ordered[name] = None

  for name in called:
    visit(name)
  return list(ordered)
