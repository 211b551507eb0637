# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""A train step of perceptrons that accumulates gradients, in three layouts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

AXIS = "x"
NUM_LAYERS = 3
WIDTH = 16
HIDDEN = 32
ROWS = 32
CLASSES = 8
PRODUCTS_PER_LAYER = 2
P = jax.sharding.PartitionSpec
Step = Callable[..., Any]


def _mesh() -> jax.sharding.Mesh:
  return jax.sharding.Mesh(np.array(jax.devices()), (AXIS,))


def _constrained(value: jax.Array, *spec: str | None) -> jax.Array:
  sharding = jax.sharding.NamedSharding(_mesh(), P(*spec))
  return jax.lax.with_sharding_constraint(value, sharding)


def _fsdp(h: jax.Array, weights: Any) -> tuple[jax.Array, None]:
  up, down = (_constrained(w, None, None) for w in weights)
  return _constrained(h + jax.nn.relu(h @ up) @ down, AXIS, None), None


def _tp(h: jax.Array, weights: Any) -> tuple[jax.Array, None]:
  """Tensor and sequence parallelism: rows are gathered, sums scattered."""
  up, down = weights
  hidden = _constrained(
    jax.nn.relu(_constrained(h, None, None) @ up), None, AXIS
  )
  return _constrained(h + hidden @ down, AXIS, None), None


def explicit_tp(h: jax.Array, weights: Any) -> tuple[jax.Array, None]:
  """The same under shard_map."""
  up, down = weights
  rows = jax.lax.all_gather(h, AXIS, axis=0, tiled=True)
  partial = jax.nn.relu(rows @ up) @ down
  return h + jax.lax.psum_scatter(
    partial, AXIS, scatter_dimension=0, tiled=True
  ), None


_SPECS: Mapping[str, tuple[Any, Any]] = {
  "fsdp": (P(None, AXIS, None), P(None, AXIS, None)),
  "tp": (P(None, None, AXIS), P(None, AXIS, None)),
  "shard_map": (P(None, None, AXIS), P(None, AXIS, None)),
}
_LAYER = {"fsdp": _fsdp, "tp": _tp, "shard_map": explicit_tp}


def loss_of(
  layout: str, params: Any, rows: jax.Array, *, unroll: bool, remat: bool
) -> jax.Array:
  """The loss of a micro-batch, a mean."""
  layer = jax.checkpoint(_LAYER[layout]) if remat else _LAYER[layout]
  h, weights = rows, (params["up"], params["down"])
  if unroll:
    for i in range(NUM_LAYERS):
      h, _ = layer(h, (weights[0][i], weights[1][i]))
  else:
    h, _ = jax.lax.scan(layer, h, weights)
  loss = jnp.mean(jnp.square(h @ params["head"]))
  return jax.lax.pmean(loss, AXIS) if layout == "shard_map" else loss


def accumulated(
  loss: Callable[..., jax.Array], params: Any, batches: jax.Array
) -> tuple[Any, jax.Array]:
  """Sums of gradients, and each micro-batch's loss."""

  def add(sums: Any, batch: jax.Array) -> tuple[Any, jax.Array]:
    value, gradients = jax.value_and_grad(loss)(params, batch)
    return jax.tree.map(jnp.add, sums, gradients), value

  return jax.lax.scan(add, jax.tree.map(jnp.zeros_like, params), batches)


def step_of(layout: str, *, unroll: bool = False, remat: bool = False) -> Step:
  """A step of SGD, (parameters, micro-batches) -> (parameters, losses)."""
  loss = functools.partial(loss_of, layout, unroll=unroll, remat=remat)

  def step(params: Any, batches: jax.Array) -> tuple[Any, jax.Array]:
    sums, losses = accumulated(loss, params, batches)
    return jax.tree.map(lambda p, g: p - 0.1 * g, params, sums), losses

  if layout != "shard_map":
    return step
  specs = _specs(layout)
  return jax.shard_map(
    step,
    mesh=_mesh(),
    in_specs=(specs, P(None, AXIS, None)),
    out_specs=(specs, P()),
    check_vma=False,
  )


def _specs(layout: str) -> dict[str, Any]:
  up, down = _SPECS[layout]
  return {"up": up, "down": down, "head": P()}


def placed(value: Any, spec: Any) -> jax.Array:
  """The value, laid out over all devices."""
  sharding = jax.sharding.NamedSharding(_mesh(), spec)
  return jax.device_put(value, sharding)


def params(layout: str = "fsdp") -> dict[str, jax.Array]:
  """Parameters as a layout has them, the same each time."""
  random = np.random.default_rng(0)
  shapes = {
    "up": (NUM_LAYERS, WIDTH, HIDDEN),
    "down": (NUM_LAYERS, HIDDEN, WIDTH),
    "head": (WIDTH, CLASSES),
  }
  return {
    name: placed(
      random.normal(scale=0.3, size=shape).astype(np.float32),
      _specs(layout)[name],
    )
    for name, shape in shapes.items()
  }


def batches(num: int) -> jax.Array:
  """So many micro-batches, the same each time."""
  random = np.random.default_rng(1)
  rows = random.normal(size=(num, ROWS, WIDTH)).astype(np.float32)
  return placed(rows, P(None, AXIS, None))
