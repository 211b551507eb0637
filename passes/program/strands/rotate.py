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

from lagom_xla.passes.program import counted_loops
from lagom_xla.passes.program.form import Outcome
from lagom_xla.passes.program.strands import micro_batch_loop
from lagom_xla.passes.program.strands import rotated_loop
from lagom_xla.passes.program.strands import stages as stages_lib


def rotate(module: ir.Module) -> Outcome:
  """Rotates the loop over micro-batches of a program, which is changed.

  Its trips must be such that they can be cut in two stages (`stages.py`).
  """
  return micro_batch_loop.change(module, _rotate)


def _rotate(loop: counted_loops.CountedLoop) -> micro_batch_loop.Done | str:
  stages = stages_lib.cut(loop)
  if isinstance(stages, str):
    return stages
  num_shared = rotated_loop.rotate(loop, stages)
  return micro_batch_loop.Done(
    "was rotated, so that the end of a trip runs beside the beginning of the"
    f" next, which keeps {stages.crossing.num_bytes} bytes for its own end;"
    f" {num_shared} pairs of inner loops became one."
  )
