# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Steps whose micro-batches are written one after the other."""

from __future__ import annotations

from collections.abc import Callable, Sequence
import functools
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import AxisType
from jax.sharding import Mesh
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P
import numpy as np

NUM_LAYERS = 3
WIDTH, HIDDEN, NUM_ROWS = 64, 128, 256

_Layer = Callable[[jax.Array, Any], jax.Array]


def tp_layer(x: jax.Array, weights: Any) -> jax.Array:
  """Rows sharded (sequence parallel) around a pair of sharded products."""
  rows = jax.lax.all_gather(jnp.tanh(x), "x", axis=0, tiled=True)
  partial = jax.nn.relu(rows @ weights["up"]) @ weights["down"]
  return x + jax.lax.psum_scatter(partial, "x", scatter_dimension=0, tiled=True)


def fsdp_layer(x: jax.Array, weights: Any) -> jax.Array:
  """Weights sharded, and gathered for use."""
  gather = functools.partial(
    jax.lax.all_gather, axis_name="x", axis=0, tiled=True
  )
  return x + jax.nn.relu(x @ gather(weights["up"])) @ gather(weights["down"])


def lower(
  devices: Sequence[jax.Device],
  *,
  layer: _Layer = tp_layer,
  num_micro_batches: int = 2,
  scan: bool = True,
  remat: bool = True,
  dtype: Any = jnp.bfloat16,
) -> jax.stages.Lowered:
  """A step of gradient descent, one micro-batch written after the other."""
  is_tp = layer is tp_layer
  mesh = Mesh(np.array(devices), ("x",))
  specs = {
    "up": P(None, None, "x") if is_tp else P(None, "x", None),
    "down": P(None, "x", None),
  }
  rows_spec = P(None, "x", None)

  def loss(weights: Any, x: jax.Array) -> jax.Array:
    each = jax.checkpoint(layer, prevent_cse=not scan) if remat else layer
    if scan:
      x, _ = jax.lax.scan(lambda x, w: (each(x, w), None), x, weights)
    else:
      for i in range(NUM_LAYERS):
        x = each(x, jax.tree.map(lambda w, i=i: w[i], weights))
    return jnp.sum(jnp.square(x.astype(jnp.float32)))

  def step(weights: Any, rows: jax.Array) -> Any:
    each = [jax.grad(loss)(weights, rows[m]) for m in range(num_micro_batches)]
    sums = functools.reduce(lambda a, b: jax.tree.map(jnp.add, a, b), each)
    return jax.tree.map(lambda w, g: w - dtype(1e-3) * g, weights, sums)

  def shape(spec: P, *sizes: int) -> jax.ShapeDtypeStruct:
    sharding = NamedSharding(mesh, spec)
    return jax.ShapeDtypeStruct(sizes, dtype, sharding=sharding)

  sharded = jax.shard_map(
    step, mesh=mesh, in_specs=(specs, rows_spec), out_specs=specs
  )
  return jax.jit(sharded).lower(
    {
      "up": shape(specs["up"], NUM_LAYERS, WIDTH, HIDDEN),
      "down": shape(specs["down"], NUM_LAYERS, HIDDEN, WIDTH),
    },
    shape(rows_spec, num_micro_batches, NUM_ROWS, WIDTH),
  )


def lower_gspmd(devices: Sequence[jax.Device]) -> jax.stages.Lowered:
  """Two unrolled micro-batches whose collectives XLA has yet to place."""
  mesh = jax.make_mesh((8,), ("x",), (AxisType.Auto,), devices=devices)

  def sharded(*spec: str | None) -> NamedSharding:
    return NamedSharding(mesh, P(*spec))

  def loss(weights: Any, x: jax.Array) -> jax.Array:
    for _ in range(2):
      x = jax.nn.relu(x @ weights["up"]) @ weights["down"]
      x = jax.lax.with_sharding_constraint(x, sharded(None, None))
    return jnp.sum(x)

  def step(weights: Any, rows: jax.Array) -> Any:
    first, second = (jax.grad(loss)(weights, rows[m]) for m in range(2))
    return jax.tree.map(jnp.add, first, second)

  def shape(spec: NamedSharding, *sizes: int) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(sizes, jnp.bfloat16, sharding=spec)

  weights = {
    "up": shape(sharded(None, "x"), WIDTH, HIDDEN),
    "down": shape(sharded("x", None), HIDDEN, WIDTH),
  }
  return jax.jit(step).lower(
    weights, shape(sharded(None, None, None), 2, NUM_ROWS, WIDTH)
  )
