# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Ten steps of training come to the same numbers in every form.

A stack of two-layer perceptrons on eight CPU devices, laid out as FSDP, as
tensor parallelism with the sequence sharded between products, and with experts
that rows are sent to; layers scanned and unrolled, recomputed and not; micro-
batches accumulated in a loop, or written side by side. Where layers are in a
loop, every bit is the same.
"""

from __future__ import annotations

from collections.abc import Callable
import dataclasses
import functools
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import lagom_xla

P = jax.sharding.PartitionSpec

_NUM_LAYERS, _WIDTH, _HIDDEN = 3, 16, 32
_NUM_SEQUENCES, _SEQ_LEN = 16, 8
_NUM_STEPS = 10


_Layout = Literal["fsdp", "tp_sp", "ep"]
_Layers = Literal["scan", "unroll"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Case:
  """A train step: how it is laid out and written, and its form."""

  layout: _Layout
  layers: _Layers = "scan"
  remat: bool = True
  num_accumulated: int = 1
  strands: Literal["merged", "staggered", "rotated", "paired"] = "rotated"


_ROTATED_STEPS: list[tuple[_Layout, _Layers, bool, int]] = [
  ("fsdp", "scan", True, 2),
  ("fsdp", "scan", False, 3),
  ("fsdp", "unroll", True, 8),
  ("fsdp", "unroll", False, 2),
  ("tp_sp", "scan", True, 8),
  ("tp_sp", "scan", False, 2),
  ("tp_sp", "unroll", True, 3),
  ("tp_sp", "unroll", False, 8),
  ("ep", "scan", True, 3),
  ("ep", "scan", False, 8),
  ("ep", "unroll", True, 2),
  ("ep", "unroll", False, 3),
]
_ROTATED = [
  _Case(layout=layout, layers=layers, remat=remat, num_accumulated=number)
  for layout, layers, remat, number in _ROTATED_STEPS
]
_HALVES = [
  _Case(layout="fsdp", strands="merged"),
  _Case(layout="fsdp", strands="staggered", remat=False),
  _Case(layout="tp_sp", strands="merged", remat=False),
  _Case(layout="tp_sp", strands="staggered"),
  _Case(layout="ep", strands="merged"),
  _Case(layout="ep", strands="staggered", remat=False),
  # Halves of each accumulated micro-batch.
  _Case(layout="tp_sp", strands="merged", num_accumulated=2),
]

_PAIRED = [
  _Case(layout="fsdp", num_accumulated=3, strands="paired"),
  _Case(layout="fsdp", layers="unroll", num_accumulated=8, strands="paired"),
  _Case(layout="tp_sp", num_accumulated=8, strands="paired"),
  _Case(layout="tp_sp", remat=False, num_accumulated=3, strands="paired"),
  _Case(layout="tp_sp", layers="unroll", num_accumulated=2, strands="paired"),
  _Case(layout="ep", num_accumulated=2, strands="paired"),
]
# Loops keep XLA from fusing across layers. Unrolled layers it may fuse with
# other neighbours than before, and then adds in another order: a rounding of
# the largest number in each step.
_FUSED_ANEW = _NUM_STEPS * 2.0**-23


class _Training:
  """A train step, its first state and its batches."""

  def __init__(self, case: _Case):
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
      "up": (_NUM_LAYERS, *experts, _WIDTH, _HIDDEN),
      "down": (_NUM_LAYERS, *experts, _HIDDEN, _WIDTH),
    }
    self._initial = {
      name: rng.normal(size=shape).astype(np.float32) / 4
      for name, shape in shapes.items()
    }
    rows = rng.normal(
      size=(
        _NUM_STEPS,
        case.num_accumulated,
        _NUM_SEQUENCES,
        _SEQ_LEN,
        _WIDTH,
      )
    )
    sequence = "model" if case.layout == "tp_sp" else None
    self.batches = jax.device_put(
      rows.astype(np.float32),
      self._sharding(P(None, None, "data", sequence)),
    )

  def state(self) -> Any:
    """Parameters and momentum, anew."""
    params = jax.device_put(self._initial, self._shardings)
    return params, jax.tree.map(jnp.zeros_like, params)

  def step(self, state: Any, rows: jax.Array) -> Any:
    """Momentum's step on a batch of accumulated micro-batches."""
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
      for i in range(_NUM_LAYERS):
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
    """Each expert's share of every device's rows, there and back."""

    @functools.partial(
      jax.shard_map,
      mesh=self._mesh,
      in_specs=(P("data"), P("data"), P("data")),
      out_specs=P("data"),
    )
    def run(x: jax.Array, up: jax.Array, down: jax.Array) -> jax.Array:
      rows = x.reshape(8, -1, _WIDTH)
      sent = jax.lax.all_to_all(rows, "data", 0, 0, tiled=True)
      done = jnp.tanh(sent @ up[0]) @ down[0]
      back = jax.lax.all_to_all(done, "data", 0, 0, tiled=True)
      return back.reshape(x.shape)

    return run(x, up, down)

  def _constrain(self, x: jax.Array, axes: P) -> jax.Array:
    return jax.lax.with_sharding_constraint(x, self._sharding(axes))

  def _sharding(self, axes: P) -> jax.sharding.NamedSharding:
    return jax.sharding.NamedSharding(self._mesh, axes)


def _train(
  step: Callable[..., Any], training: _Training, state: Any = None
) -> Any:
  """The last state and all losses, as NumPy arrays."""
  state, losses = state or training.state(), []
  for batch in training.batches:
    state, loss = step(state, batch)
    losses.append(loss)
  return jax.tree.map(np.asarray, (state, losses))


def _as_written(case: _Case) -> Any:
  """What a case's step comes to in no form."""
  are_whole = case.strands in ("rotated", "paired")
  strands = "rotated" if are_whole else "merged"
  return _trained_as_written(dataclasses.replace(case, strands=strands))


@functools.cache
def _trained_as_written(case: _Case) -> Any:
  training = _Training(case)
  return _train(jax.jit(training.step), training)


@pytest.mark.parametrize("case", [*_ROTATED, *_PAIRED, *_HALVES], ids=repr)
def test_ten_steps_take_their_state_and_come_to_the_same_numbers(case):
  training = _Training(case)
  state = training.state()
  donating = jax.jit(training.step, donate_argnums=0)
  stranded = lagom_xla.strands(
    donating, form=lagom_xla.Form(strands=case.strands)
  )
  actual = _train(stranded, training, state)
  expected = _as_written(case)
  assert stranded.outcomes[0].actions
  assert all(leaf.is_deleted() for leaf in jax.tree.leaves(state))
  most = _FUSED_ANEW if case.layers == "unroll" else 0

  def check(actual: np.ndarray, expected: np.ndarray) -> None:
    difference = np.max(np.abs(actual - expected))
    assert difference <= most * np.max(np.abs(expected))

  jax.tree.map(check, actual, expected)


def test_unrolled_halves_stay_as_they_are_and_train_alike():
  case = _Case(layout="tp_sp", layers="unroll", strands="merged")
  training = _Training(case)
  stranded = lagom_xla.strands(
    jax.jit(training.step), form=lagom_xla.Form(strands="merged")
  )
  with pytest.warns(RuntimeWarning, match="no loop with products"):
    actual = _train(stranded, training)
  expected = _train(jax.jit(training.step), training)
  jax.tree.map(np.testing.assert_array_equal, actual, expected)
