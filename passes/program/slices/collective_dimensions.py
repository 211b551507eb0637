# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Dimensions that collectives leave free.

A dimension that is gathered gets a part per device, one that is scattered loses
them, and an all-to-all does both. All others are free.
"""

from __future__ import annotations

import math

from jaxlib.mlir import ir

from lagom_xla.passes.program.mlir import shape_of
from lagom_xla.passes.program.slices.implied import Cut
from lagom_xla.passes.program.slices.implied import Cuts


def gathered_dim(operation: ir.Operation) -> int | None:
  """The dimension along which a collective gathers."""
  for name in ("all_gather_dim", "concat_dimension"):
    if name in operation.attributes:
      return _number(operation, name)
  return None


def scattered_dim(operation: ir.Operation) -> int | None:
  """The dimension along which a collective scatters."""
  for name in ("scatter_dimension", "split_dimension"):
    if name in operation.attributes:
      return _number(operation, name)
  return None


def num_devices(operation: ir.Operation) -> int:
  """The size of the groups of a collective that changes shapes; else 1."""
  if operation.name == "stablehlo.all_to_all":
    return ir.IntegerAttr(operation.attributes["split_count"]).value
  if operation.name not in (
    "stablehlo.all_gather",
    "stablehlo.reduce_scatter",
  ):
    return 1
  elements = [
    math.prod(shape_of(value) or (1,))
    for value in (operation.operands[0], operation.results[0])
  ]
  return max(elements) // max(min(elements), 1)


def of_all_gather(operation: ir.Operation, cut: Cut) -> Cuts | None:
  """What a piece of an all-gather's result needs; see `operand_cuts`."""
  if cut.dim != gathered_dim(operation):
    return _all(operation, cut)
  return _divided(operation, cut)


def of_reduce_scatter(operation: ir.Operation, cut: Cut) -> Cuts:
  """What a piece of a reduce-scatter's result needs; see `operand_cuts`."""
  if cut.dim != scattered_dim(operation):
    return _all(operation, cut)
  return _multiplied(operation, cut)


def of_all_to_all(operation: ir.Operation, cut: Cut) -> Cuts | None:
  """What a piece of an all-to-all's result needs; see `operand_cuts`."""
  is_split = cut.dim == scattered_dim(operation)
  is_joined = cut.dim == gathered_dim(operation)
  if is_split and is_joined:
    is_in_blocks = cut.parts % num_devices(operation) == 0
    return _all(operation, cut) if is_in_blocks else None
  if is_split:
    return _multiplied(operation, cut)
  return _divided(operation, cut) if is_joined else _all(operation, cut)


def _divided(operation: ir.Operation, cut: Cut) -> Cuts | None:
  parts, remainder = divmod(cut.parts, num_devices(operation))
  return None if remainder else _all(operation, Cut(cut.dim, parts))


def _multiplied(operation: ir.Operation, cut: Cut) -> Cuts:
  parts = cut.parts * num_devices(operation)
  return _all(operation, Cut(cut.dim, parts))


def _all(operation: ir.Operation, cut: Cut) -> Cuts:
  return (cut,) * len(operation.operands)


def _number(operation: ir.Operation, name: str) -> int:
  return ir.IntegerAttr(operation.attributes[name]).value
