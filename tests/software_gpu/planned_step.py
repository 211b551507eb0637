# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""A step whose plan has options, a cap on channels and NCCL settings.

Layers are sharded over all devices (FSDP), except for the last one, whose
gradient is so small that XLA reduces it in its own kernel.
"""

from __future__ import annotations

from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np

_NUM_LAYERS, _SIZE, _NUM_OUTPUTS, _NUM_ROWS = 4, 2048, 256, 4096
LAYER_BYTES = 2 * _SIZE**2


def train_step(
  devices: Sequence[jax.Device],
) -> tuple[jax.stages.Wrapped, tuple[list[jax.ShapeDtypeStruct], ...]]:
  """The jitted step, and what it takes: weights and a batch."""
  mesh = jax.sharding.Mesh(np.asarray(devices), ("data",))
  spec = jax.sharding.PartitionSpec
  sharded = jax.sharding.NamedSharding(mesh, spec("data"))
  whole = jax.sharding.NamedSharding(mesh, spec())

  def like(
    *shape: int, sharding: jax.sharding.NamedSharding = sharded
  ) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(shape, jnp.bfloat16, sharding=sharding)

  def loss(weights: list[jax.Array], x: jax.Array) -> jax.Array:
    for weight in weights:
      x = jnp.tanh(x @ weight)
    return (x.astype(jnp.float32) ** 2).sum()

  def step(weights: list[jax.Array], batch: list[jax.Array]) -> list[jax.Array]:
    gradients = jax.grad(loss)(weights, batch[0])
    return [w - g for w, g in zip(weights, gradients, strict=True)]

  weights = [like(_SIZE, _SIZE) for _ in range(_NUM_LAYERS)]
  weights.append(like(_SIZE, _NUM_OUTPUTS, sharding=whole))
  batch = [like(_NUM_ROWS * len(devices), _SIZE)]
  kept = [weight.sharding for weight in weights]
  return jax.jit(step, out_shardings=kept), (weights, batch)


def zeros(
  likes: tuple[list[jax.ShapeDtypeStruct], ...],
) -> tuple[list[jax.Array], ...]:
  """Arrays that are like these, on their devices."""
  places = jax.tree.map(lambda like: like.sharding, likes)
  fill = jax.jit(
    lambda: jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), likes),
    out_shardings=places,
  )
  return fill()
