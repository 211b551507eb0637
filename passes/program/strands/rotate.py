# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Rotation of gradient accumulation: a backward pass beside the next forward.

A loop over micro-batches runs a trip's forward pass, then its backward pass:

    for m in 0 .. N-1:  F(m); B(m)

which is the same as

    F(0);  for m in 0 .. N-2:  B(m); F(m + 1);  B(N-1)

where B(m) and F(m + 1) need nothing of each other. Their loops over layers
become one, and XLA's scheduler runs what one communicates under what the other
computes (DHelix, arXiv 2411.15871). What the first product of a layer gathers
is gathered while the layer before computes (`prefetch.py`). Residuals of two
micro-batches are alive while they share a loop. The order in which gradients
are added up stays.
"""

from __future__ import annotations

from jaxlib.mlir import ir

from lagom_xla.passes.program.outcome import Outcome
from lagom_xla.passes.program.outcome import Refusal
from lagom_xla.passes.program.stablehlo import communication
from lagom_xla.passes.program.stablehlo import counted_loops
from lagom_xla.passes.program.stablehlo import effects
from lagom_xla.passes.program.stablehlo import inline
from lagom_xla.passes.program.stablehlo import place
from lagom_xla.passes.program.stablehlo import product_flops
from lagom_xla.passes.program.strands import rotated_loop
from lagom_xla.passes.program.strands import stages as stages_lib


def rotate(module: ir.Module) -> Outcome:
  """Rotates the loop over micro-batches, wherever in a program it is.

  It is the outermost loop that runs more than half of the program's products,
  makes two trips or more, and whose trips can be cut in two stages
  (`stages.py`).

  Args:
    module: the program; it is changed. Its calls are inlined even if nothing is
      rotated.
  """
  inline.inline_all(module)
  outcome = Outcome()
  functions = [op.operation for op in module.body.operations]
  half_flops = sum(map(product_flops.flops, functions)) / 2
  for function in functions:
    outcome += _rotate_in(
      function, half_flops, communication.is_partitioned(module)
    )
  if outcome == Outcome():
    where, reason = "the program", "no loop of it runs most of its products"
    outcome += Outcome(refusals=(Refusal(where=where, reason=reason),))
  return outcome


def _rotate_in(
  operation: ir.Operation, half_flops: float, is_partitioned: bool
) -> Outcome:
  """Rotates the outermost loop under an operation that can be."""
  outcome = Outcome()
  for region in operation.regions:
    for block in region.blocks:
      for inner in [op.operation for op in block.operations]:
        if not inner.regions:
          continue
        if inner.name == "stablehlo.while":
          if product_flops.flops(inner) <= half_flops:
            continue
          outcome += _rotate_if_possible(inner, is_partitioned)
        if outcome.actions:
          return outcome
        per_trip = half_flops / max(product_flops.num_trips(inner), 1)
        outcome += _rotate_in(inner, per_trip, is_partitioned)
  return outcome


def _rotate_if_possible(
  operation: ir.Operation, is_partitioned: bool
) -> Outcome:
  where = f"the loop at {place.of_operation(operation)}"
  loop = _loop_to_rotate(operation, is_partitioned)
  stages = loop if isinstance(loop, str) else stages_lib.cut(loop)
  if isinstance(loop, str) or isinstance(stages, str):
    return Outcome(refusals=(Refusal(where=where, reason=str(stages)),))
  num_shared = rotated_loop.rotate(loop, stages)
  return Outcome(
    actions=(
      f"{where[0].upper()}{where[1:]} ({loop.num_trips} trips) was rotated, so"
      " that the end of a trip runs beside the beginning of the next, which"
      f" keeps {stages.crossing.num_bytes} bytes for its own end;"
      f" {num_shared} pairs of inner loops became one.",
    )
  )


def _loop_to_rotate(
  operation: ir.Operation, is_partitioned: bool
) -> counted_loops.CountedLoop | str:
  """A loop whose trips may be cut, or why not."""
  loop = counted_loops.read(operation)
  if isinstance(loop, str):
    return loop
  if loop.num_trips < 2:
    return "it makes no more than 1 trip, and only two can overlap"
  effect = effects.first_effect(operation)
  if effect is not None:
    return f"in it is {effect}"
  if not is_partitioned and not communication.is_in(operation):
    return "nothing in it communicates"
  return loop
