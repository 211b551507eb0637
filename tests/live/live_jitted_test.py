# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""A step that is tuned while it trains is still the jitted function."""

from __future__ import annotations

from collections.abc import Iterator
import functools
import pickle
import threading
from typing import Any

from flax import nnx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jitted_steps import add_one
from jitted_steps import assert_identical
from jitted_steps import assert_looks_jitted
import lagom_xla
import live_step


@pytest.fixture(autouse=True)
def proposer() -> Iterator[live_step.Proposer]:
  with live_step.proposed_again() as proposer:
    yield proposer


def test_transformations_see_the_jitted_step_in_every_state():
  def squares(x: jax.Array) -> jax.Array:
    return jnp.sum(x**2, axis=-1)

  jitted = jax.jit(squares)
  step: Any = lagom_xla.tune(jax.jit(squares))
  x = live_step.batch(0)

  def transformed(f: Any) -> list[Any]:
    return [
      jax.jit(f)(x),
      jax.vmap(f)(x),
      jax.grad(lambda x: jnp.sum(f(x)))(x),
      jax.jit(lambda y: y + jnp.sum(f(x)))(x),
      jax.lax.map(f, x),
    ]

  expected = transformed(jitted)
  for number in range(live_step.NUM_CALLS):
    if number % 20 == 0:
      assert_identical(transformed(step), expected)
    assert_identical(step(x), jitted(x))
  assert step.report().count("squares: ") == 1


def test_it_still_looks_jitted():
  tuned: Any = lagom_xla.tune(add_one)
  x = live_step.batch(0)
  tuned(x)
  assert_looks_jitted(tuned, add_one, x)
  public = {name for name in dir(add_one) if not name.startswith("_")}
  assert public | {"report"} <= set(dir(tuned))
  tuned.clear_cache()
  assert_identical(tuned(x), x + 1)


def test_a_method_is_tuned_like_a_function():
  class Trainer:
    @lagom_xla.tune
    @functools.partial(jax.jit, static_argnums=0)
    def step(self, x: jax.Array) -> jax.Array:
      return x + 1

  trainer, x = Trainer(), live_step.batch(0)
  for _ in range(live_step.NUM_CALLS):
    assert_identical(trainer.step(x), x + 1)
  # JAX keeps what is static, so the trainer, and its step with it.
  jax.clear_caches()


def test_a_bound_method_is_tuned_on_its_object():
  class Scale:
    by = 3

    @functools.partial(jax.jit, static_argnums=0)
    def step(self, x: jax.Array) -> jax.Array:
      return self.by * x

  tuned = lagom_xla.tune(Scale().step)
  x = live_step.batch(0)
  for _ in range(live_step.NUM_CALLS):
    assert_identical(tuned(x), 3 * x)


@jax.jit
def _module_step(x: jax.Array) -> jax.Array:
  return x + 1


def test_it_pickles_no_worse_than_jit():
  with pytest.raises(Exception) as theirs:
    pickle.dumps(_module_step)
  with pytest.raises(type(theirs.value)) as ours:
    pickle.dumps(lagom_xla.tune(_module_step))
  assert str(ours.value) == str(theirs.value)


@pytest.mark.parametrize("ordered", [False, True])
def test_effects_happen_once_a_call(ordered: bool):
  seen: list[float] = []

  @jax.jit
  def step(x: jax.Array) -> jax.Array:
    jax.debug.callback(lambda v: seen.append(float(v)), x, ordered=ordered)
    return x + 1

  tuned = lagom_xla.tune(step)
  x = jnp.float32(0)
  for _ in range(live_step.NUM_CALLS):
    x = tuned(x)
  jax.effects_barrier()
  assert sorted(seen) == list(range(live_step.NUM_CALLS))


def test_threads_may_call_it_at_the_same_time():
  step = lagom_xla.tune(jax.jit(lambda x: x * 3))
  batches = [live_step.batch(0, num_rows) for num_rows in (2, 2, 4, 4)]
  barrier = threading.Barrier(4)
  failures: list[BaseException] = []

  def call(x: jax.Array) -> None:
    barrier.wait()
    try:
      for _ in range(200):
        np.testing.assert_array_equal(step(x), np.asarray(x) * 3)
    except BaseException as error:
      failures.append(error)

  threads = [threading.Thread(target=call, args=(x,)) for x in batches]
  for thread in threads:
    thread.start()
  for thread in threads:
    thread.join()
  assert failures == []


def test_nans_are_found_as_under_jit():
  step = lagom_xla.tune(jax.jit(jnp.log))
  x = jnp.ones(16)
  for number in range(live_step.NUM_CALLS):
    step(x)
    if number % 30 == 0:
      with jax.debug_nans(True), pytest.raises(FloatingPointError):
        step(-x)


def test_a_step_of_nnx_is_tuned_like_one_of_jax():
  # One proposal alone: noise may reject it, and another would be begun.
  proposer = live_step.Proposer({"again 0": live_step.again})

  def loss_of(model: nnx.Linear, x: jax.Array) -> jax.Array:
    return jnp.mean(model(x) ** 2)

  def train(model: nnx.Linear, x: jax.Array) -> jax.Array:
    loss, grads = nnx.value_and_grad(loss_of)(model, x)
    nnx.update(
      model,
      jax.tree.map(lambda p, g: p - 0.1 * g, nnx.state(model), grads),
    )
    return loss

  jitted = nnx.jit(train, donate_argnums=0)
  step: Any = lagom_xla.tune(nnx.jit(train, donate_argnums=0))
  ours, theirs = (nnx.Linear(16, 16, rngs=nnx.Rngs(0)) for _ in range(2))
  with live_step.proposed_by(proposer):
    for number in range(live_step.NUM_CALLS):
      x = live_step.batch(number)
      np.testing.assert_array_equal(step(ours, x), jitted(theirs, x))
  np.testing.assert_array_equal(ours.kernel[...], theirs.kernel[...])
  assert proposer.compiled == ["again 0"]
  assert step._repr_html_().startswith("<pre>train: ")
