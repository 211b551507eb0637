# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Training of perceptrons in Flax, data-parallel, with SGD of Optax."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from flax import linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax

from benchmarks.live import training

_AXIS = "data"
_NUM_BATCHES = 4


class Perceptrons(nn.Module):
  """Layers of equal width, [rows, width] to [rows, width]."""

  num_layers: int
  width: int

  @nn.compact
  def __call__(self, x: jax.Array) -> jax.Array:
    """Feeds rows through all layers."""
    for _ in range(self.num_layers):
      x = nn.relu(nn.Dense(self.width)(x))
    return x


def build(
  devices: Sequence[jax.Device], *, num_layers: int, width: int, num_rows: int
) -> training.Training:
  """Makes the training.

  Args:
    devices: to train on.
    num_layers: each with two arrays of parameters.
    width: of all layers.
    num_rows: of a batch, on all devices together.
  """
  mesh = training.mesh(devices, _AXIS)
  model = Perceptrons(num_layers, width)
  optimizer = optax.sgd(1e-2)
  params = model.init(jax.random.key(0), jnp.zeros((1, width)))
  state = {"params": params, "opt": optimizer.init(params)}
  state = jax.tree.map(
    lambda leaf: training.placed(np.asarray(leaf), mesh), state
  )

  def loss_of(params: Any, batch: Any) -> jax.Array:
    predicted = cast(jax.Array, model.apply(params, batch["inputs"]))
    return jnp.mean(jnp.square(predicted - batch["targets"]))

  batches = [
    {
      name: training.filled(
        (num_rows, width), mesh, _AXIS, seed=2 * n + of, scale=1.0
      )
      for of, name in enumerate(("inputs", "targets"))
    }
    for n in range(_NUM_BATCHES)
  ]
  return training.of_loss(loss_of, optimizer, state, batches, mesh)
