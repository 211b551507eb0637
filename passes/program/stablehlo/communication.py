# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Communication of a program, written out or left to XLA's partitioner."""

from __future__ import annotations

from jaxlib.mlir import ir

from lagom_xla.passes.program.stablehlo import dependence

COLLECTIVES = frozenset(
  f"stablehlo.{name}"
  for name in (
    "all_gather", "all_reduce", "all_to_all", "collective_broadcast",
    "collective_permute", "reduce_scatter",
  )
)  # fmt: skip
_CONSTRAINT = "sdy.sharding_constraint"
_PARTITIONS = "mhlo.num_partitions"


def is_partitioned(module: ir.Module) -> bool:
  """Whether a program runs on several devices that share its arrays.

  The partitioner may then communicate anywhere.
  """
  attributes = module.operation.attributes
  return (
    _PARTITIONS in attributes
    and ir.IntegerAttr(attributes[_PARTITIONS]).value > 1
  )


def is_collective(operation: ir.Operation) -> bool:
  """Whether it is a collective, or where the partitioner may place one."""
  return operation.name in COLLECTIVES or operation.name == _CONSTRAINT


def is_in(operation: ir.Operation) -> bool:
  """Whether there is a collective in the regions of an operation."""
  return any(
    inner.name in COLLECTIVES
    for inner in dependence.inner_operations(operation)
  )
