# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""A train step with tensor and sequence parallelism, written in three ways.

Once with collectives in a `shard_map`, and twice with sharding constraints,
from which XLA's partitioner makes the collectives.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
from jax import lax
import jax.numpy as jnp
from jax.sharding import AxisType
from jax.sharding import Mesh
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P
import numpy as np

LAYERS = 2
BATCH = 4
TOKENS = 64
WIDTH = 16
HIDDEN = 32

Weights = dict[str, jax.Array]
Layer = Callable[[jax.Array, Weights], tuple[jax.Array, None]]

_SPLIT = P(None, "tp", None)
_SPECS = {"up": P(None, None, "tp"), "down": P(None, "tp", None)}


def _written_out(mesh: Mesh) -> Layer:
  del mesh  # That of the shard_map.

  def layer(x: jax.Array, weights: Weights) -> tuple[jax.Array, None]:
    whole = lax.all_gather(jnp.tanh(x), "tp", axis=1, tiled=True)
    out = jax.nn.silu(whole @ weights["up"]) @ weights["down"]
    split = lax.psum_scatter(out, "tp", scatter_dimension=1, tiled=True)
    return x + split, None

  return layer


def _constrained(mesh: Mesh, *entry: str | None) -> Layer:
  """A layer with a constraint on the products' inputs: whole or split."""

  def constrain(x: jax.Array, *spec: str | None) -> jax.Array:
    return lax.with_sharding_constraint(x, NamedSharding(mesh, P(*spec)))

  def layer(x: jax.Array, weights: Weights) -> tuple[jax.Array, None]:
    normal = constrain(jnp.tanh(x), None, *entry, None)
    hidden = jax.nn.silu(normal @ weights["up"])
    # Without it, propagation would gather the weights instead of tokens.
    hidden = constrain(hidden, None, None, "tp")
    return x + constrain(hidden @ weights["down"], None, "tp", None), None

  return layer


_LAYERS: dict[str, Callable[[Mesh], Layer]] = {
  "shard_map": _written_out,
  "whole at entry": lambda mesh: _constrained(mesh, None),
  "split at entry": lambda mesh: _constrained(mesh, "tp"),
}
KINDS = tuple(_LAYERS)


def lower(
  kind: str,
  *,
  unrolled: bool = False,
  remat: bool = False,
  tokens: int = TOKENS,
  width: int = WIDTH,
  hidden: int = HIDDEN,
  dtype: Any = jnp.float32,
  devices: Sequence[jax.Device] | None = None,
) -> jax.stages.Lowered:
  """Lowers a step (weights, x, target) -> (weights, loss), donating weights."""
  mesh = Mesh(
    np.array(devices or jax.devices()[:8]),
    ("tp",),
    axis_types=(AxisType.Auto,),
  )
  layer = _LAYERS[kind](mesh)
  layer = jax.checkpoint(layer) if remat else layer

  def forward(x: jax.Array, weights: Weights) -> jax.Array:
    if not unrolled:
      return lax.scan(layer, x, weights)[0]
    for i in range(LAYERS):
      x, _ = layer(x, {name: w[i] for name, w in weights.items()})
    return x

  if kind == "shard_map":
    forward = jax.shard_map(
      forward,
      mesh=mesh,
      in_specs=(_SPLIT, _SPECS),
      out_specs=_SPLIT,
      check_vma=False,
    )

  def loss_of(weights: Weights, x: jax.Array, target: jax.Array) -> jax.Array:
    return jnp.mean(jnp.square(forward(x, weights) - target))

  def step(weights: Weights, x: jax.Array, target: jax.Array) -> Any:
    loss, grads = jax.value_and_grad(loss_of)(weights, x, target)
    return jax.tree.map(lambda w, g: w - 0.5 * g, weights, grads), loss

  def spec(shape: tuple[int, ...], spec: P) -> jax.ShapeDtypeStruct:
    sharding = NamedSharding(mesh, spec)
    return jax.ShapeDtypeStruct(shape, dtype, sharding=sharding)

  weights = {
    "up": spec((LAYERS, width, hidden), _SPECS["up"]),
    "down": spec((LAYERS, hidden, width), _SPECS["down"]),
  }
  rows = spec((BATCH, tokens, width), _SPLIT)
  shardings = jax.tree.map(lambda leaf: leaf.sharding, weights)
  jitted = jax.jit(
    step,
    donate_argnums=0,
    out_shardings=(shardings, NamedSharding(mesh, P())),
  )
  return jitted.lower(weights, rows, rows)
