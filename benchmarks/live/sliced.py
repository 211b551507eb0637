# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Training with chains of collectives and products that can be cut in pieces.

It is the step of `benchmarks.strands.wall_clock`: perceptrons, tensor-parallel
with sequence parallelism, and gradients that a loop adds up.
"""

from __future__ import annotations

from collections.abc import Sequence

import jax

from benchmarks.live import training
from benchmarks.strands.wall_clock import train_step


def build(
  devices: Sequence[jax.Device], *, num_tokens: int
) -> training.Training:
  """Makes the training.

  Args:
    devices: to train on.
    num_tokens: of a micro-batch, on all devices together.
  """
  sizes = train_step.Sizes(tokens=num_tokens, num_layers=2)
  step, (weights, batch) = train_step.train_step(
    devices, sizes, donate_argnums=training.DONATED
  )
  return training.Training(
    step=step,
    state=jax.tree.map(train_step.filled, weights),
    batches=[train_step.filled(batch)],
  )
