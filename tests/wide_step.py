# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""A train step that keeps all activations, some 20 GB of them on each GPU."""

from __future__ import annotations

from collections.abc import Sequence

import jax
import jax.numpy as jnp

import sgd_step

LAYERS = 8
ROWS = 2**17  # On each device.
WIDTH = 1024
HIDDEN = 4096


def lower(devices: Sequence[jax.Device]) -> jax.stages.Lowered:
  """Lowers one step of SGD, layers one after the other."""

  def loss(weights: sgd_step.Weights, x: jax.Array) -> jax.Array:
    for up, down in zip(*weights, strict=True):
      hidden = x @ up
      x = x + (jax.nn.silu(hidden) * jnp.tanh(hidden)) @ down
    return jnp.mean(x.astype(jnp.float32) ** 2)

  return sgd_step.lower(
    loss, devices, layers=LAYERS, rows=ROWS, width=WIDTH, hidden=HIDDEN
  )
