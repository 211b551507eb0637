# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""A small train step that two hosts share: perceptrons, TP 2, accumulation.

Every product is split over the hosts. Tokens are gathered before the first of a
layer's two products and scattered after the second, as Megatron-LM does with
sequence parallelism, and a scan over layers has the usual loop bodies.
"""

from __future__ import annotations

from collections.abc import Sequence
import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

_AXIS = "model"
_P = jax.sharding.PartitionSpec


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Sizes:
  """The step's sizes, on both hosts together; a loop adds up micro-batches."""

  tokens: int
  width: int = 512
  hidden: int = 2048
  num_layers: int = 4
  num_microbatches: int = 4


def train_step(
  devices: Sequence[jax.Device],
  sizes: Sizes,
  *,
  donate_argnums: tuple[int, ...] = (),
) -> tuple[jax.stages.Wrapped, tuple[Any, ...]]:
  """The jitted step (weights, batch) -> (weights, loss), and its arguments."""
  mesh = jax.sharding.Mesh(np.array(devices), (_AXIS,))
  rows = _P(None, _AXIS)
  specs = {"up": _P(None, None, _AXIS), "down": _P(None, _AXIS)}

  def shape(spec: Any, *size: int) -> jax.ShapeDtypeStruct:
    sharding = jax.sharding.NamedSharding(mesh, spec)
    return jax.ShapeDtypeStruct(size, jnp.float32, sharding=sharding)

  step = jax.shard_map(
    lambda w, x: _local_step(sizes, w, x),
    mesh=mesh,
    in_specs=(specs, rows),
    out_specs=(specs, _P()),
    check_vma=False,
  )
  step.__name__ = "train_step"
  arguments = (
    {
      "up": shape(specs["up"], sizes.num_layers, sizes.width, sizes.hidden),
      "down": shape(specs["down"], sizes.num_layers, sizes.hidden, sizes.width),
    },
    shape(rows, sizes.num_microbatches, sizes.tokens, sizes.width),
  )
  return jax.jit(step, donate_argnums=donate_argnums), arguments


def _layer(x: jax.Array, weights: Any) -> tuple[jax.Array, None]:
  whole = jax.lax.all_gather(x, _AXIS, axis=0, tiled=True)
  hidden = jax.nn.relu(whole @ weights["up"])
  out = jax.lax.psum_scatter(
    hidden @ weights["down"], _AXIS, scatter_dimension=0, tiled=True
  )
  return x + out, None


def _loss(weights: Any, x: jax.Array) -> jax.Array:
  x, _ = jax.lax.scan(jax.checkpoint(_layer), x, weights)
  return jnp.mean(jnp.square(x))


def _local_step(sizes: Sizes, weights: Any, batch: jax.Array) -> Any:
  """What one host runs."""
  zeros = (jnp.float32(0), jax.tree.map(jnp.zeros_like, weights))

  def add(sums: Any, x: jax.Array) -> tuple[Any, None]:
    more = jax.value_and_grad(_loss)(weights, x)
    return jax.tree.map(jnp.add, sums, more), None

  (loss, gradients), _ = jax.lax.scan(add, zeros, batch)
  rate = 1e-3 / sizes.num_microbatches
  stepped = jax.tree.map(lambda w, g: w - rate * g, weights, gradients)
  return stepped, jax.lax.psum(loss, _AXIS)


def filled(spec: jax.ShapeDtypeStruct) -> jax.Array:
  """An array of small numbers, the same on both hosts."""
  rng = np.random.default_rng(0)
  whole = rng.normal(scale=0.02, size=spec.shape).astype(spec.dtype)
  return jax.make_array_from_callback(
    spec.shape, spec.sharding, lambda index: whole[index]
  )
