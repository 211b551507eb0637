# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""A new loop that counts its trips in its first carry."""

from __future__ import annotations

from collections.abc import Sequence

from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo


def create(
  num_trips: int, operands: Sequence[ir.Value]
) -> tuple[ir.Operation, ir.Block]:
  """A loop that counts in its first carry, and its body, which has no end."""
  carried = [_constant(0), *operands]
  types = [value.type for value in carried]
  loop = stablehlo.WhileOp(types, carried).operation
  locations = [loop.location] * len(types)
  condition, body = (
    region.blocks.append(*types, arg_locs=locations) for region in loop.regions
  )
  with ir.InsertionPoint(condition):
    goes_on = stablehlo.compare(
      condition.arguments[0],
      _constant(num_trips),
      stablehlo.ComparisonDirectionAttr.get("LT"),
      compare_type=stablehlo.ComparisonTypeAttr.get("SIGNED"),
    )
    stablehlo.return_([goes_on])
  return loop, body


def end(body: ir.Block, values: Sequence[ir.Value]) -> None:
  """Ends the body of a counting loop, at the insertion point."""
  stablehlo.return_([
    stablehlo.add(body.arguments[0], _constant(1)), *values
  ])  # fmt: skip


def _constant(number: int) -> ir.Value:
  value = ir.Attribute.parse(f"dense<{number}> : tensor<i32>")
  return stablehlo.constant(value)
