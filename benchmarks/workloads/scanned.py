# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Scanned perceptrons: the smallest step that has what large ones have.

A scan over two-layer perceptrons in bfloat16, trained by plain gradient
descent. Weights and rows are sharded over one axis of a mesh and gathered for
use (FSDP), hidden units over the other (TP). XLA schedules it in about a
second, so that it can be compiled hundreds of times.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import Mesh
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec
import numpy as np


def lower(
  devices: Sequence[jax.Device],
  *,
  data: int,
  num_layers: int,
  width: int,
  hidden: int,
  rows_per_device: int,
  recomputes: bool = False,
) -> jax.stages.Lowered:
  """Lowers one step.

  Args:
    devices: what it is laid out over.
    data: devices that weights and rows are sharded over; the others of them
      shard hidden units.
    num_layers: iterations of the scan.
    width: of the residual stream.
    hidden: hidden units of each layer.
    rows_per_device: rows on each device.
    recomputes: whether the backward pass computes each layer again, so that
      the forward pass has nothing to keep, nor to hide collectives behind.
  """
  mesh = Mesh(np.reshape(devices, (data, -1)), ("data", "model"))

  def sharded(*spec: str | None) -> NamedSharding:
    return NamedSharding(mesh, PartitionSpec(*spec))

  def stacked(*shape: int, spec: tuple[str, str]) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(
      (num_layers, *shape), jnp.bfloat16, sharding=sharded(None, *spec)
    )

  def layer(h: jax.Array, weights: Any) -> tuple[jax.Array, None]:
    up, down = (
      jax.lax.with_sharding_constraint(weights[name], sharded(*spec))
      for name, spec in (("up", (None, "model")), ("down", ("model", None)))
    )
    h += jax.nn.relu(h @ up) @ down
    return jax.lax.with_sharding_constraint(h, sharded("data", None)), None

  def loss(params: Any, h: jax.Array) -> jax.Array:
    h, _ = jax.lax.scan(
      jax.checkpoint(layer) if recomputes else layer, h, params
    )
    return jnp.mean(jnp.square(h.astype(jnp.float32)))

  def step(params: Any, h: jax.Array) -> Any:
    value, grads = jax.value_and_grad(loss)(params, h)
    rate = jnp.bfloat16(0.01)
    return jax.tree.map(lambda p, g: p - rate * g, params, grads), value

  params = {
    "up": stacked(width, hidden, spec=("data", "model")),
    "down": stacked(hidden, width, spec=("model", "data")),
  }
  out = {name: shape.sharding for name, shape in params.items()}
  rows = jax.ShapeDtypeStruct(
    (data * rows_per_device, width),
    jnp.bfloat16,
    sharding=sharded("data", None),
  )
  jitted = jax.jit(step, donate_argnums=0, out_shardings=(out, sharded()))
  return jitted.lower(params, rows)
