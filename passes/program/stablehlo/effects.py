# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Effects: what must neither move nor run another number of times."""

from __future__ import annotations

from jaxlib.mlir import ir

from lagom_xla.passes.program.stablehlo import dependence

_EFFECTFUL = frozenset(
  f"stablehlo.{name}" for name in ("infeed", "outfeed", "recv", "rng", "send")
)


def first_effect(operation: ir.Operation) -> str | None:
  """The first effect of an operation or of the regions in it, in words.

  Calls are inlined before (`inline.py`): what they call is not looked into.

  Returns:
    Such as "the host callback xla_ffi_python_cpu_callback, which has side
    effects"; None where there is no effect.
  """
  for inner in (operation, *dependence.inner_operations(operation)):
    effect = _own_effect(inner)
    if effect is not None:
      return effect
  return None


def _own_effect(operation: ir.Operation) -> str | None:
  if operation.name in _EFFECTFUL:
    return operation.name
  if operation.name == "stablehlo.custom_call":
    attributes = operation.attributes
    if (
      "has_side_effect" in attributes
      and ir.BoolAttr(attributes["has_side_effect"]).value
    ):
      target = ir.StringAttr(attributes["call_target_name"]).value
      kind = "host callback" if "callback" in target else "library call"
      return f"the {kind} {target}, which has side effects"
  if any(_is_token(value.type) for value in operation.operands) or any(
    _is_token(value.type) for value in operation.results
  ):
    return f"the order that a token gives {operation.name}"
  return None


def _is_token(value_type: ir.Type) -> bool:
  return str(value_type) == "!stablehlo.token"
