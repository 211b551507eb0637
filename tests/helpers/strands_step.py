# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""A train step with two micro-batches, whose loops can be merged."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec
import numpy as np

NUM_LAYERS = 4


def lowerable(
  devices: Any, *, width: int = 64, num_rows: int = 16, donates: bool = True
) -> tuple[Any, tuple[Any, ...]]:
  """A jitted step of two micro-batches, side by side, and its arguments.

  The arguments are shapes; `values` makes arrays of them.

  Layers are scanned, so each micro-batch has a loop for its forward pass and
  one for its backward pass. By default the step donates its weights.
  """
  mesh = jax.sharding.Mesh(np.array(devices), ("x",))
  weights = NamedSharding(mesh, PartitionSpec(None, "x"))
  rows = NamedSharding(mesh, PartitionSpec("x"))
  whole = NamedSharding(mesh, PartitionSpec())

  def loss(w: jax.Array, x: jax.Array) -> jax.Array:
    def layer(x: jax.Array, w: jax.Array) -> tuple[jax.Array, None]:
      return jnp.tanh(x @ jax.lax.with_sharding_constraint(w, whole)), None

    return jnp.mean(jax.lax.scan(layer, x, w)[0] ** 2)

  def step(w: jax.Array, a: jax.Array, b: jax.Array) -> Any:
    loss_a, grad_a = jax.value_and_grad(loss)(w, a)
    loss_b, grad_b = jax.value_and_grad(loss)(w, b)
    return w - 0.1 * (grad_a + grad_b), loss_a + loss_b

  def shape(sharding: NamedSharding, *sizes: int) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(sizes, jnp.float32, sharding=sharding)

  jitted = jax.jit(
    step,
    donate_argnums=0 if donates else (),
    out_shardings=(weights, whole),
  )
  batch = shape(rows, num_rows, width)
  return jitted, (shape(weights, NUM_LAYERS, width, width), batch, batch)


def values(args: tuple[Any, ...]) -> tuple[jax.Array, ...]:
  """Arrays instead of shapes, the same each time."""
  random = np.random.default_rng(0)
  return tuple(
    jax.device_put(
      (random.normal(size=a.shape) / 8).astype(np.float32), a.sharding
    )
    for a in args
  )
