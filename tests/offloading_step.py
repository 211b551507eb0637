# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""A train step that offloads one activation of every layer to its host."""

from __future__ import annotations

from collections.abc import Sequence

import jax
from jax import lax
from jax.ad_checkpoint import checkpoint_name
import jax.numpy as jnp
from jax.sharding import Mesh
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P
import numpy as np

LAYERS = 4
ROWS = 2048  # On each device.
WIDTH = 256
HIDDEN = 1024
# What a layer moves to the host in the forward pass, and back in the backward.
LAYER_BYTES = ROWS * HIDDEN * 2

_Weights = tuple[jax.Array, jax.Array]
_POLICY = jax.checkpoint_policies.save_and_offload_only_these_names(
  names_which_can_be_saved=[],
  names_which_can_be_offloaded=["hidden"],
  offload_src="device",
  offload_dst="pinned_host",
)


def lower(devices: Sequence[jax.Device], *, unroll: bool) -> jax.stages.Lowered:
  """Lowers one step of SGD, with layers in a scan or one after the other."""
  mesh = Mesh(np.array(devices), ("x",))

  def layer(x: jax.Array, weights: _Weights) -> tuple[jax.Array, None]:
    up, down = weights
    hidden = checkpoint_name(x @ up, "hidden")
    return x + jax.nn.silu(hidden) @ down, None

  offloading = jax.checkpoint(layer, policy=_POLICY)

  def loss(weights: _Weights, x: jax.Array) -> jax.Array:
    if unroll:
      for i in range(LAYERS):
        x, _ = offloading(x, (weights[0][i], weights[1][i]))
    else:
      x, _ = lax.scan(offloading, x, weights)
    return jnp.mean(x.astype(jnp.float32) ** 2)

  def step(weights: _Weights, x: jax.Array) -> _Weights:
    up, down = jax.grad(loss)(weights, x)
    return weights[0] - up, weights[1] - down

  def shape(spec: P, *dimensions: int) -> jax.ShapeDtypeStruct:
    sharding = NamedSharding(mesh, spec)
    return jax.ShapeDtypeStruct(dimensions, jnp.bfloat16, sharding=sharding)

  sharded = P(None, "x", None)
  weights = (
    shape(sharded, LAYERS, WIDTH, HIDDEN),
    shape(sharded, LAYERS, HIDDEN, WIDTH),
  )
  rows = shape(P("x", None), ROWS * len(devices), WIDTH)
  return jax.jit(step, donate_argnums=0).lower(weights, rows)
