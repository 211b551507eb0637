# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Scanned experts: the smallest step with all-to-alls on its way.

A scan over layers in bfloat16, trained by plain gradient descent. In each, a
device sends every other one an equal part of its rows, for its experts, and
gets back what they make of them, as if a router were balanced; what is sent
takes a normalization, and what comes back a residual. XLA schedules it in about
a second, so that it can be compiled hundreds of times.
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

_AXIS = "expert"


def lower(
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
