# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Scanned layers: the smallest steps that have what large ones have.

Scans over layers in bfloat16, trained by plain gradient descent, which XLA
schedules in about a second, so that they can be compiled hundreds of times.

Of two-layer perceptrons weights and rows are sharded over one axis of a mesh
and gathered for use (FSDP), hidden units over the other (TP). With experts a
device sends every other one an equal part of its rows, for its experts, and
gets back what they make of them, as if a router were balanced; what is sent
takes a normalization, and what comes back a residual: all-to-alls are on its
way.
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


_AXIS = "expert"


def lower_experts(
  devices: Sequence[jax.Device],
  *,
  num_layers: int,
  width: int,
  hidden: int,
  rows_per_device: int,
) -> jax.stages.Lowered:
  """Lowers one step, with an expert per device in each layer.

  Args:
    devices: what it is laid out over.
    num_layers: iterations of the scan.
    width: of the residual stream.
    hidden: hidden units of each expert.
    rows_per_device: rows on each device; a multiple of the devices.
  """
  mesh = Mesh(np.array(devices), (_AXIS,))
  num_devices = len(devices)

  def layer(h: jax.Array, weights: Any) -> tuple[jax.Array, None]:
    scale = jax.lax.rsqrt(jnp.mean(jnp.square(h), axis=-1, keepdims=True))
    sent = (h * scale).reshape(num_devices, -1, width)
    rows = _exchanged(sent).reshape(-1, width)
    # One expert is here.
    made = jax.nn.relu(rows @ weights["up"][0]) @ weights["down"][0]
    back = _exchanged(made.reshape(num_devices, -1, width))
    return h + back.reshape(h.shape), None

  def loss(params: Any, h: jax.Array) -> jax.Array:
    h, _ = jax.lax.scan(layer, h, params)
    mean = jnp.mean(jnp.square(h.astype(jnp.float32)))
    return jax.lax.pmean(mean, _AXIS)

  def step(params: Any, h: jax.Array) -> Any:
    value, grads = jax.value_and_grad(loss)(params, h)
    rate = jnp.bfloat16(0.01)
    return jax.tree.map(lambda p, g: p - rate * g, params, grads), value

  of_params = PartitionSpec(None, _AXIS)
  of_rows = PartitionSpec(_AXIS)

  def shape(spec: PartitionSpec, *sizes: int) -> jax.ShapeDtypeStruct:
    sharding = NamedSharding(mesh, spec)
    return jax.ShapeDtypeStruct(sizes, jnp.bfloat16, sharding=sharding)

  params = {
    "up": shape(of_params, num_layers, num_devices, width, hidden),
    "down": shape(of_params, num_layers, num_devices, hidden, width),
  }
  rows = shape(of_rows, num_devices * rows_per_device, width)
  local = jax.shard_map(
    step,
    mesh=mesh,
    in_specs=(of_params, of_rows),
    out_specs=(of_params, PartitionSpec()),
  )
  return jax.jit(local, donate_argnums=0).lower(params, rows)


def _exchanged(rows: jax.Array) -> jax.Array:
  """What all devices send here: one part of the first dimension from each."""
  return jax.lax.all_to_all(rows, _AXIS, 0, 0)
