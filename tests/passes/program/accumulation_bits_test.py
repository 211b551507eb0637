# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Gradient accumulation computes the same bits, rotated or paired."""

from __future__ import annotations

import functools
from typing import Any, cast

from flax import linen as nn
import hypothesis
from hypothesis import strategies as st
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import accumulating_step
from lagom_xla.passes.program.form import Form
import rewritten

_AXIS = accumulating_step.AXIS
_WIDTH = accumulating_step.WIDTH
_HIDDEN = accumulating_step.HIDDEN
_CLASSES = accumulating_step.CLASSES
ROTATED = Form(strands="rotated")
PAIRED = Form(strands="paired")
P = jax.sharding.PartitionSpec


def _on_two(value: Any, spec: Any) -> jax.Array:
  """The same on two devices only, where it is the loop that matters."""
  mesh = jax.sharding.Mesh(np.array(jax.devices()[:2]), (_AXIS,))
  return jax.device_put(value, jax.sharding.NamedSharding(mesh, spec))


# Unrolled, recomputed, micro-batches, donated; strands_training_test.py has
# the other layouts.
_VARIANTS = ((False, True, 3, True), (True, False, 2, False))


class TestBits:
  @pytest.mark.parametrize("form", [ROTATED, PAIRED])
  @pytest.mark.parametrize(("unroll", "remat", "num", "donate"), _VARIANTS)
  def test_training_steps_keep_every_bit(
    self, form: Form, unroll: bool, remat: bool, num: int, donate: bool
  ):
    layout = "shard_map"
    step = jax.jit(
      accumulating_step.step_of(layout, unroll=unroll, remat=remat),
      donate_argnums=0 if donate else (),
    )
    batches = accumulating_step.batches(num)
    lowered = step.lower(accumulating_step.params(layout), batches)
    compiled, outcome = rewritten.compile_rewritten(lowered, form)
    assert outcome.actions
    results = []
    for executable in (lowered.compile(), compiled):
      params = accumulating_step.params(layout)
      losses = []
      for _ in range(3):
        before = params
        params, loss = executable(params, batches)
        losses.append(loss)
        assert before["up"].is_deleted() == donate
      results.append((params, losses))
    jax.tree.map(np.testing.assert_array_equal, *results)

  def test_dropout_draws_what_it_drew(self):
    def step(params: Any, batches: jax.Array) -> Any:
      def add(carry: Any, batch: jax.Array) -> Any:
        key, sums, count = carry
        key, now = jax.random.split(key)

        def loss(params: Any) -> jax.Array:
          kept = jax.random.bernoulli(now, 0.5, batch.shape)
          rows = jnp.where(kept, batch, 0)
          return accumulating_step.loss_of(
            "fsdp", params, rows, unroll=False, remat=True
          )

        sums = jax.tree.map(jnp.add, sums, jax.grad(loss)(params))
        return (key, sums, count + 1), None

      zeros = jax.tree.map(jnp.zeros_like, params)
      carry = (jax.random.PRNGKey(0), zeros, 0)
      return jax.lax.scan(add, carry, batches)[0]

    outcome = rewritten.assert_same_bits(
      step, ROTATED, accumulating_step.params(), accumulating_step.batches(3)
    )
    assert outcome.actions

  def test_a_sum_over_gradients_differs_by_its_order_at_most(self):
    """XLA may fuse the sum with the last layer's part, which stands alone."""
    loss = functools.partial(
      accumulating_step.loss_of, "fsdp", unroll=False, remat=False
    )

    def step(params: Any, batches: jax.Array) -> Any:
      def add(norms: jax.Array, batch: jax.Array) -> Any:
        gradients = jax.grad(loss)(params, batch)
        return norms + optax.tree.norm(gradients), None

      return jax.lax.scan(add, jnp.zeros(()), batches)[0]

    args = accumulating_step.params(), accumulating_step.batches(3)
    lowered = jax.jit(step).lower(*args)
    compiled, outcome = rewritten.compile_rewritten(lowered, ROTATED)
    assert outcome.actions
    # Four times the rounding of a float32.
    np.testing.assert_allclose(
      compiled(*args), lowered.compile()(*args), rtol=4 * 2**-23
    )

  def test_a_fori_loop_is_a_loop(self):
    gradient = jax.grad(
      functools.partial(
        accumulating_step.loss_of, "fsdp", unroll=False, remat=True
      )
    )

    def step(params: Any, batches: jax.Array) -> Any:
      def add(i: jax.Array, sums: Any) -> Any:
        return jax.tree.map(jnp.add, sums, gradient(params, batches[i]))

      zeros = jax.tree.map(jnp.zeros_like, params)
      return jax.lax.fori_loop(0, 4, add, zeros)

    outcome = rewritten.assert_same_bits(
      step, ROTATED, accumulating_step.params(), accumulating_step.batches(4)
    )
    assert outcome.actions

  def test_flax_and_optax_accumulate_as_before(self):
    model = nn.Sequential([nn.Dense(_HIDDEN), nn.relu, nn.Dense(_CLASSES)])
    optimizer = optax.MultiSteps(optax.adam(0.1), every_k_schedule=3)

    def step(params: Any, batches: jax.Array) -> Any:
      def loss(params: Any, batch: jax.Array) -> jax.Array:
        return jnp.mean(jnp.square(cast(jax.Array, model.apply(params, batch))))

      def add(state: Any, batch: jax.Array) -> Any:
        gradients = jax.grad(loss)(params, batch)
        updates, state = optimizer.update(gradients, state, params)
        return state, updates

      return jax.lax.scan(add, optimizer.init(params), batches)

    params = model.init(jax.random.key(0), jnp.zeros((1, _WIDTH)))
    params = jax.tree.map(lambda p: accumulating_step.placed(p, P()), params)
    outcome = rewritten.assert_same_bits(
      step, ROTATED, params, accumulating_step.batches(3)
    )
    assert outcome.actions

  @hypothesis.settings(max_examples=7)
  @hypothesis.given(data=st.data())
  def test_any_loop_that_accumulates_keeps_its_bits(self, data: st.DataObject):
    num_trips = data.draw(st.integers(2, 4), label="trips")
    num_layers = data.draw(st.integers(1, 3), label="layers")
    in_loop = data.draw(st.booleans(), label="layers in a loop")
    remat = data.draw(st.booleans(), label="remat")
    keyed = data.draw(st.booleans(), label="a key of its own")
    stacked = data.draw(st.booleans(), label="stacks losses")
    delayed = data.draw(st.booleans(), label="carries the last loss")
    reverse = data.draw(st.booleans(), label="backwards")
    form = data.draw(st.sampled_from([ROTATED, PAIRED]), label="form")

    def layer(h: jax.Array, w: jax.Array) -> tuple[jax.Array, None]:
      return jnp.sin(h @ w), None

    if remat:
      layer = jax.checkpoint(layer)

    def loss(weights: jax.Array, rows: jax.Array) -> jax.Array:
      if in_loop:
        rows = jax.lax.scan(layer, rows, weights)[0]
      else:
        for weight in weights:
          rows, _ = layer(rows, weight)
      return jnp.sum(jnp.square(rows @ weights[0]))

    def step(weights: jax.Array, batches: jax.Array) -> Any:
      def add(carry: Any, rows: jax.Array) -> Any:
        key, sums, last, seen = carry
        if keyed:
          # Numerical Recipes' generator; jax.random takes long to compile.
          key = key * jnp.uint32(1664525) + jnp.uint32(1013904223)
          rows = rows + key.astype(jnp.float32) / 2.0**32
        value, gradient = jax.value_and_grad(loss)(weights, rows)
        seen = seen + (last if delayed else jnp.max(rows))
        carry = key, sums + gradient, value, seen
        return carry, value if stacked else None

      start = jnp.uint32(1), jnp.zeros_like(weights), 0.0, 0.0
      return jax.lax.scan(add, start, batches, reverse=reverse)

    random = np.random.default_rng(num_layers)
    shape = (num_layers, _WIDTH, _WIDTH)
    weights = random.normal(scale=0.3, size=shape).astype(np.float32)
    rows = random.normal(size=(num_trips, 8, _WIDTH)).astype(np.float32)
    outcome = rewritten.assert_same_bits(
      step, form, _on_two(weights, P()), _on_two(rows, P(None, _AXIS))
    )
    assert outcome.actions
