# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Shared loops: those of two stages, merged pair by pair in their order."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from jaxlib.mlir import ir

from lagom_xla.passes.program import counted_loops
from lagom_xla.passes.program import mlir
from lagom_xla.passes.program.strands import alignment
from lagom_xla.passes.program.strands import merge


def share(
  block: ir.Block, late: Iterable[ir.Operation], early: Iterable[ir.Operation]
) -> list[counted_loops.CountedLoop]:
  """Merges loops of a block that hold products, and the loops inside of those.

  Args:
    block: where they are.
    late: operations of one stage, in order.
    early: operations of the other, none of which needs any of the first's.

  Returns:
    What pairs became.
  """
  late_loops, early_loops = _counted(late), _counted(early)
  _, pairs = alignment.align(_described(late_loops), _described(early_loops))
  shared: list[counted_loops.CountedLoop] = []
  for i, j in pairs:
    first, second = late_loops[i], early_loops[j]
    within = mlir.BlockDependence(block)
    if merge.obstacle(first, second, within) is None:
      shared += merge_deeply(first, second, within)
  return shared


def merge_deeply(
  first: counted_loops.CountedLoop,
  second: counted_loops.CountedLoop,
  within: mlir.BlockDependence,
) -> list[counted_loops.CountedLoop]:
  """Merges two loops, as `merge.merge`, and then the loops inside of them.

  Returns:
    What pairs became. The inner ones come first: a loop that is written anew
    takes them along.
  """
  num_first = len(first.body.operations) - 1
  merged = merge.merge(first, second, within)
  inner = [op.operation for op in merged.body.operations][:-1]
  return [*share(merged.body, inner[:num_first], inner[num_first:]), merged]


def _counted(
  operations: Iterable[ir.Operation],
) -> list[counted_loops.CountedLoop]:
  loops = (
    counted_loops.read(operation)
    for operation in operations
    if operation.name == "stablehlo.while"
  )
  return [loop for loop in loops if isinstance(loop, counted_loops.CountedLoop)]


def _described(
  loops: Sequence[counted_loops.CountedLoop],
) -> list[alignment.Loop]:
  return [
    alignment.Loop(
      position=i,
      num_trips=loop.num_trips,
      flops=counted_loops.flops(loop.operation),
    )
    for i, loop in enumerate(loops)
  ]
