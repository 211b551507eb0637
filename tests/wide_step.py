# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""A train step that keeps all activations, some 20 GB of them on each GPU."""

from __future__ import annotations

from collections.abc import Sequence

import jax
import jax.numpy as jnp
from jax.sharding import Mesh
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P
import numpy as np

LAYERS = 8
ROWS = 2**17  # On each device.
WIDTH = 1024
HIDDEN = 4096

_Weights = tuple[jax.Array, jax.Array]


def lower(devices: Sequence[jax.Device]) -> jax.stages.Lowered:
  """Lowers one step of SGD, layers one after the other."""
  mesh = Mesh(np.array(devices), ("x",))

  def loss(weights: _Weights, x: jax.Array) -> jax.Array:
    for up, down in zip(*weights, strict=True):
      hidden = x @ up
      x = x + (jax.nn.silu(hidden) * jnp.tanh(hidden)) @ down
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
