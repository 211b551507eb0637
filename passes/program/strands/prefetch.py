# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Prefetch of what a loop's trips gather, one trip ahead.

The first collective of a body has nothing to hide under: all products wait for
it. What it gathers may be known a trip before, though: a recomputed layer's
residual, or weights, which the counter picks from what no trip changes.
"""

from __future__ import annotations

from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo

from lagom_xla.passes.program import counted_loops
from lagom_xla.passes.program import mlir
from lagom_xla.passes.program.strands import stages as stages_lib
from lagom_xla.passes.program.strands.stages import Stages


def split_barriers(loop: counted_loops.CountedLoop) -> None:
  """Gives each value that a barrier of a body holds back one of its own.

  `jax.checkpoint` keeps XLA from merging what is recomputed with the original
  by a barrier, in which a layer's residual also waits for its gradient. Within
  a trip that wait saves no memory worth having, and no gather can pass it.
  """
  for operation in [op.operation for op in loop.body.operations]:
    if operation.name == "stablehlo.optimization_barrier":
      with ir.InsertionPoint(operation), operation.location:
        for operand, result in zip(
          list(operation.operands), operation.results, strict=True
        ):
          own = stablehlo.OptimizationBarrierOp([operand]).operation
          result.replace_all_uses_with(own.results[0])
      operation.erase()


def stages(loop: counted_loops.CountedLoop) -> Stages | None:
  """The gathers of a trip that need but its counter, as its early stage.

  None where there are none, or where they are all that the trip does.
  """
  body = stages_lib.TripBody(loop)
  ahead: set[int] = set()
  for position, operation in enumerate(body.operations):
    if not mlir.is_collective(operation):
      continue
    needed, advanced = body.with_all_needed([position])
    if advanced == {loop.counter} and not any(
      counted_loops.flops(body.operations[i]) for i in needed
    ):
      ahead |= needed
  if not ahead:
    return None
  return Stages(
    ahead=frozenset(ahead),
    ahead_carries=frozenset(),
    crossing=stages_lib.crossing_between(body, ahead, frozenset()),
  )
