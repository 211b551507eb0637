# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""A train step that offloads one activation of every layer to its host."""

from __future__ import annotations

from collections.abc import Sequence

import jax
from jax import lax
from jax.ad_checkpoint import checkpoint_name
import jax.numpy as jnp

import sgd_step

LAYERS = 4
ROWS = 2048  # On each device.
WIDTH = 256
HIDDEN = 1024
# What a layer moves to the host in the forward pass, and back in the backward.
LAYER_BYTES = ROWS * HIDDEN * 2

_POLICY = jax.checkpoint_policies.save_and_offload_only_these_names(
  names_which_can_be_saved=[],
  names_which_can_be_offloaded=["hidden"],
  offload_src="device",
  offload_dst="pinned_host",
)


def lower(devices: Sequence[jax.Device], *, unroll: bool) -> jax.stages.Lowered:
  """Lowers one step of SGD, with layers in a scan or one after the other."""

  def layer(x: jax.Array, weights: sgd_step.Weights) -> tuple[jax.Array, None]:
    up, down = weights
    hidden = checkpoint_name(x @ up, "hidden")
    return x + jax.nn.silu(hidden) @ down, None

  offloading = jax.checkpoint(layer, policy=_POLICY)

  def loss(weights: sgd_step.Weights, x: jax.Array) -> jax.Array:
    if unroll:
      for i in range(LAYERS):
        x, _ = offloading(x, (weights[0][i], weights[1][i]))
    else:
      x, _ = lax.scan(offloading, x, weights)
    return jnp.mean(x.astype(jnp.float32) ** 2)

  return sgd_step.lower(
    loss, devices, layers=LAYERS, rows=ROWS, width=WIDTH, hidden=HIDDEN
  )
