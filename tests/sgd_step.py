# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""A step of SGD over layers of two products, lowered from its loss alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp
from jax.sharding import Mesh
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P
import numpy as np

Weights = tuple[jax.Array, jax.Array]


def lower(
  loss: Callable[[Weights, jax.Array], jax.Array],
  devices: Sequence[jax.Device],
  *,
  layers: int,
  rows: int,
  width: int,
  hidden: int,
) -> jax.stages.Lowered:
  """Lowers a step that donates its weights, all bfloat16.

  Args:
    loss: (weights, x) -> scalar; weights are [layers, width, hidden] and
      [layers, hidden, width], x is [rows, width].
    devices: over which rows and the weights' second dimension are split.
    layers: how many.
    rows: on each device.
    width: of x.
    hidden: between the products.
  """
  mesh = Mesh(np.array(devices), ("x",))

  def step(weights: Weights, x: jax.Array) -> Weights:
    up, down = jax.grad(loss)(weights, x)
    return weights[0] - up, weights[1] - down

  def shape(spec: P, *dimensions: int) -> jax.ShapeDtypeStruct:
    sharding = NamedSharding(mesh, spec)
    return jax.ShapeDtypeStruct(dimensions, jnp.bfloat16, sharding=sharding)

  sharded = P(None, "x", None)
  weights = (
    shape(sharded, layers, width, hidden),
    shape(sharded, layers, hidden, width),
  )
  x = shape(P("x", None), rows * len(devices), width)
  return jax.jit(step, donate_argnums=0).lower(weights, x)
