# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Train steps on stacks of perceptrons, in layouts for strands.

FSDP, tensor parallelism with the sequence sharded between products, and expert
parallelism; layers scanned or unrolled, recomputed or not; micro-batches
accumulated in a loop, or written side by side.
"""

from __future__ import annotations

from collections.abc import Callable
import dataclasses
import functools
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np

import lagom_xla

P = jax.sharding.PartitionSpec

NUM_LAYERS, WIDTH, HIDDEN = 3, 16, 32
NUM_SEQUENCES, SEQ_LEN = 16, 8
NUM_STEPS = 10


Layout = Literal["fsdp", "tp_sp", "ep"]
Layers = Literal["scan", "unroll"]


@dataclasses.dataclass(frozen=True)
class Case:
  """A train step: its layout, how it is written, and its form."""

  layout: Layout
  layers: Layers = "scan"
  remat: bool = True
  num_accumulated: int = 1
  strands: Literal["merged", "staggered", "rotated", "paired"] = "rotated"


class Training:
  """A train step, its initial state and its batches."""

  def __init__(self, case: Case):
    shape = {"fsdp": (8, 1), "tp_sp": (2, 4), "ep": (8, 1)}[case.layout]
    self._case = case
    self._mesh = jax.sharding.Mesh(
      np.array(jax.devices()).reshape(shape), ("data", "model")
    )
    rng = np.random.default_rng(0)
    up, down = {
      "fsdp": (P(None, "data"), P(None, "data")),
      "tp_sp": (P(None, None, "model"), P(None, "model")),
      "ep": (P(None, "data"), P(None, "data")),
    }[case.layout]
    experts = (8,) if case.layout == "ep" else ()
    self._shardings = {"up": self._sharding(up), "down": self._sharding(down)}
    shapes = {
      "up": (NUM_LAYERS, *experts, WIDTH, HIDDEN),
      "down": (NUM_LAYERS, *experts, HIDDEN, WIDTH),
    }
    self._initial = {
      name: rng.normal(size=shape).astype(np.float32) / 4
      for name, shape in shapes.items()
    }
    rows = rng.normal(
      size=(
        NUM_STEPS,
        case.num_accumulated,
        NUM_SEQUENCES,
        SEQ_LEN,
        WIDTH,
      )
    )
    sequence = "model" if case.layout == "tp_sp" else None
    self.batches = jax.device_put(
      rows.astype(np.float32),
      self._sharding(P(None, None, "data", sequence)),
    )

  def state(self) -> Any:
    """New parameters and momentum."""
    params = jax.device_put(self._initial, self._shardings)
    return params, jax.tree.map(jnp.zeros_like, params)

  def step(self, state: Any, rows: jax.Array) -> Any:
    """A step with momentum on a batch of accumulated micro-batches."""
    params, momentum = state
    loss, gradients = self._value_and_grad(params, rows)
    momentum = jax.tree.map(lambda m, g: 0.9 * m + g, momentum, gradients)
    params = jax.tree.map(lambda p, m: p - 0.1 * m, params, momentum)
    return (params, momentum), loss

  def _value_and_grad(self, params: Any, rows: jax.Array) -> Any:
    if self._case.strands in ("rotated", "paired"):
      of_one: Callable[..., Any] = jax.value_and_grad(self._loss)
    else:
      of_one = lagom_xla.micro_batches(self._loss, num=2)
    if self._case.num_accumulated == 1:
      return of_one(params, rows[0])

    def add(sums: Any, micro_batch: jax.Array) -> tuple[Any, jax.Array]:
      loss, gradients = of_one(params, micro_batch)
      return jax.tree.map(jnp.add, sums, gradients), loss

    zeros = jax.tree.map(jnp.zeros_like, params)
    gradients, losses = jax.lax.scan(add, zeros, rows)
    return jnp.mean(losses), gradients

  def _loss(self, params: Any, rows: jax.Array) -> jax.Array:
    layer = self._layer
    if self._case.remat:
      scanned = self._case.layers == "scan"
      layer = jax.checkpoint(layer, prevent_cse=not scanned)
    if self._case.layers == "scan":
      rows, _ = jax.lax.scan(layer, rows, params)
    else:
      for i in range(NUM_LAYERS):
        rows, _ = layer(rows, jax.tree.map(lambda p, i=i: p[i], params))
    return jnp.mean(jnp.square(rows - 1))

  def _layer(self, x: jax.Array, weights: Any) -> tuple[jax.Array, None]:
    unit = x * jax.lax.rsqrt(jnp.mean(x * x, -1, keepdims=True) + 1e-5)
    if self._case.layout == "ep":
      return x + self._experts(unit, weights["up"], weights["down"]), None
    sequence, hidden = P("data", "model"), P("data", None, "model")
    if self._case.layout == "fsdp":
      sequence = hidden = P("data")
    products = self._constrain(jnp.tanh(unit @ weights["up"]), hidden)
    return self._constrain(x + products @ weights["down"], sequence), None

  def _experts(self, x: jax.Array, up: jax.Array, down: jax.Array) -> jax.Array:
    """Sends every device's rows to the experts and back."""

    @functools.partial(
      jax.shard_map,
      mesh=self._mesh,
      in_specs=(P("data"), P("data"), P("data")),
      out_specs=P("data"),
    )
    def run(x: jax.Array, up: jax.Array, down: jax.Array) -> jax.Array:
      rows = x.reshape(8, -1, WIDTH)
      sent = jax.lax.all_to_all(rows, "data", 0, 0, tiled=True)
      done = jnp.tanh(sent @ up[0]) @ down[0]
      back = jax.lax.all_to_all(done, "data", 0, 0, tiled=True)
      return back.reshape(x.shape)

    return run(x, up, down)

  def _constrain(self, x: jax.Array, axes: P) -> jax.Array:
    return jax.lax.with_sharding_constraint(x, self._sharding(axes))

  def _sharding(self, axes: P) -> jax.sharding.NamedSharding:
    return jax.sharding.NamedSharding(self._mesh, axes)
