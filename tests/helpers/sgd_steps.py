# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Steps of SGD over layers of two products."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
from jax import lax
from jax.ad_checkpoint import checkpoint_name
import jax.numpy as jnp
from jax.sharding import Mesh
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P
import numpy as np

OFFLOADING_LAYERS = 4
_ROWS, _HIDDEN = 2048, 1024  # Rows of each device.
# Bytes that a layer moves to the host in the forward pass, and back in the
# backward pass.
OFFLOADED_BYTES = _ROWS * _HIDDEN * 2

Weights = tuple[jax.Array, jax.Array]


def accumulated(
  loss: Callable[[Any, jax.Array], jax.Array],
) -> Callable[[Any, jax.Array], Any]:
  """A step that adds up the gradients of each row of a batch in a scan."""

  def step(weights: Any, batch: jax.Array) -> Any:
    def add(total: Any, micro_batch: jax.Array) -> tuple[Any, None]:
      grads = jax.grad(loss)(weights, micro_batch)
      return jax.tree.map(jnp.add, total, grads), None

    zeros = jax.tree.map(jnp.zeros_like, weights)
    grads, _ = lax.scan(add, zeros, batch)
    # As in most optimizers, the update is not linear in the sum.
    return jax.tree.map(lambda w, g: w - g * jnp.abs(g), weights, grads)

  return step


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

  The loss is of weights [layers, width, hidden] and [layers, hidden, width],
  and of x, [rows of all devices, width]; devices split rows and the weights'
  second dimension.
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


def lower_wide(devices: Sequence[jax.Device]) -> jax.stages.Lowered:
  """Lowers a step that keeps all activations, about 20 GB on each GPU."""

  def loss(weights: Weights, x: jax.Array) -> jax.Array:
    for up, down in zip(*weights, strict=True):
      hidden = x @ up
      x = x + (jax.nn.silu(hidden) * jnp.tanh(hidden)) @ down
    return jnp.mean(x.astype(jnp.float32) ** 2)

  return lower(loss, devices, layers=8, rows=2**17, width=1024, hidden=4096)


_POLICY = jax.checkpoint_policies.save_and_offload_only_these_names(
  names_which_can_be_saved=[],
  names_which_can_be_offloaded=["hidden"],
  offload_src="device",
  offload_dst="pinned_host",
)


def lower_offloading(
  devices: Sequence[jax.Device], *, unroll: bool
) -> jax.stages.Lowered:
  """Lowers a step that offloads one activation of every layer to the host.

  Its layers are in a scan, or unrolled.
  """

  def layer(x: jax.Array, weights: Weights) -> tuple[jax.Array, None]:
    up, down = weights
    hidden = checkpoint_name(x @ up, "hidden")
    return x + jax.nn.silu(hidden) @ down, None

  offloading = jax.checkpoint(layer, policy=_POLICY)

  def loss(weights: Weights, x: jax.Array) -> jax.Array:
    if unroll:
      for i in range(OFFLOADING_LAYERS):
        x, _ = offloading(x, (weights[0][i], weights[1][i]))
    else:
      x, _ = lax.scan(offloading, x, weights)
    return jnp.mean(x.astype(jnp.float32) ** 2)

  return lower(
    loss,
    devices,
    layers=OFFLOADING_LAYERS,
    rows=_ROWS,
    width=256,
    hidden=_HIDDEN,
  )
