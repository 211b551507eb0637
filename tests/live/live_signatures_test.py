# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""A step that is tuned while it trains is called as the jitted step is."""

from __future__ import annotations

from collections.abc import Callable, Iterator
import functools
import inspect
import pickle
import threading
import time
from typing import Any

from flax import nnx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jitted_steps import assert_identical
import lagom_xla
from lagom_xla.live.calls import turns
from lagom_xla.live.loop import watch
import live_step


def _again(lowered: jax.stages.Lowered) -> jax.stages.Compiled:
  """Another executable of the same step."""
  options: Any = {"xla_cpu_enable_fast_math": False}
  return lowered.compile(compiler_options=options)


@pytest.fixture(autouse=True)
def proposer() -> Iterator[live_step.Proposer]:
  """Proposes the same step, compiled again, time after time."""
  proposer = live_step.Proposer({f"again {n}": _again for n in range(99)})
  with live_step.proposed_by(proposer):
    yield proposer


# Calls in which a step is measured, traced, and runs candidates.
_NUM_CALLS = 200


def _raised(x: jax.Array, power: int) -> jax.Array:
  return x**power


@pytest.mark.parametrize(
  "statics",
  [
    {"static_argnums": 1},
    {"static_argnums": -1},
    {"static_argnames": "power"},
  ],
)
def test_each_static_value_has_a_loop_of_its_own(statics: dict[str, Any]):
  jitted = jax.jit(_raised, **statics)
  step = lagom_xla.tune(jax.jit(_raised, **statics))
  x = live_step.batch(0)
  expected = {power: jitted(x, power) for power in (2, 3)}
  for number in range(_NUM_CALLS):
    power = 2 + number // 50 % 2
    assert_identical(step(x, power), expected[power])
  assert step.report().count("_raised: ") == 2


def test_shapes_that_alternate_have_each_a_loop_and_come_to_rest(
  proposer: live_step.Proposer,
):
  proposer.makers = {}
  jitted = jax.jit(lambda x: x * 2)
  step: Any = lagom_xla.tune(jax.jit(lambda x: x * 2))
  batches = [live_step.batch(0, num_rows) for num_rows in (4, 8)]
  expected = [jitted(x) for x in batches]
  for number in range(2 * _NUM_CALLS):
    assert_identical(step(batches[number % 2]), expected[number % 2])
  assert step.report().count("now: watch") == 2
  asked: list[Any] = []
  step._jitted = _Asking(step._jitted, asked)
  for number in range(50):
    assert_identical(step(batches[number % 2]), expected[number % 2])
  assert asked == []  # C++ knows both.


class _Asking:
  """A jitted function that notes when Python is asked about a call."""

  def __init__(self, jitted: Any, asked: list[Any]):
    self._jitted = jitted
    self._asked = asked

  def __getattr__(self, name: str) -> Any:
    self._asked.append(name)
    return getattr(self._jitted, name)


@pytest.mark.parametrize(
  "change",
  [
    lambda x: x.astype(jnp.bfloat16),
    lambda x: [x],
    lambda x: jnp.asarray(2.0),
    lambda x: np.float32(2.0),
    lambda x: 2.5,
    lambda x: True,
    lambda x: np.arange(4),
  ],
)
def test_a_call_of_another_kind_in_between_is_as_under_jit(
  change: Callable[[jax.Array], Any],
):
  def double(x: Any) -> Any:
    return jax.tree.map(lambda leaf: leaf * 2, x)

  jitted, step = jax.jit(double), lagom_xla.tune(jax.jit(double))
  x = live_step.batch(0)
  other = change(x)
  expected, expected_other = jitted(x), jitted(other)
  for number in range(_NUM_CALLS):
    assert_identical(step(x), expected)
    if number % 10 == 0:
      assert_identical(step(other), expected_other)


def test_keyword_arguments_and_donated_ones_are_as_in_jit():
  def make() -> Any:
    return jax.jit(_raised, static_argnames="power", donate_argnames="x")

  jitted, step = make(), lagom_xla.tune(make())
  for number in range(_NUM_CALLS):
    ours, theirs = live_step.batch(number), live_step.batch(number)
    assert_identical(step(x=ours, power=3), jitted(x=theirs, power=3))
    assert ours.is_deleted() and theirs.is_deleted()


def test_a_report_begins_with_the_signature_that_is_called_most():
  step = lagom_xla.tune(jax.jit(lambda x: x * 2))
  step(live_step.batch(0, num_rows=4))  # As a program's first call may be.
  for number in range(_NUM_CALLS):
    step(live_step.batch(number))
  first, *_, last, _ = step.report().splitlines()
  assert first.startswith("<lambda>: as jit runs it, ")
  assert last == "<lambda>: not measured yet"


def test_a_change_of_configuration_is_another_signature():
  jitted = jax.jit(lambda x: x @ x.T)
  step = lagom_xla.tune(jax.jit(lambda x: x @ x.T))
  x = live_step.batch(0)
  for number in range(40):
    with jax.default_matmul_precision("highest" if number % 2 else "default"):
      assert_identical(step(x), jitted(x))
  assert step.report().count("now: ") == 2


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
  for number in range(_NUM_CALLS):
    if number % 20 == 0:
      assert_identical(transformed(step), expected)
    assert_identical(step(x), jitted(x))
  assert step.report().count("squares: ") == 1


def test_it_still_looks_jitted():
  @jax.jit
  def step(x: jax.Array) -> jax.Array:
    """Adds one."""
    return x + 1

  tuned: Any = lagom_xla.tune(step)
  x = live_step.batch(0)
  tuned(x)
  assert tuned.__name__ == "step"
  assert tuned.__doc__ == "Adds one."
  assert tuned.__wrapped__ is inspect.unwrap(step)
  assert tuned.lower(x).as_text() == step.lower(x).as_text()
  assert str(tuned.trace(x).jaxpr) == str(step.trace(x).jaxpr)
  assert tuned.eval_shape(x) == step.eval_shape(x)
  public = {name for name in dir(step) if not name.startswith("_")}
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
  for _ in range(_NUM_CALLS):
    assert_identical(trainer.step(x), x + 1)


def test_a_bound_method_is_tuned_on_its_object():
  class Scale:
    by = 3

    @functools.partial(jax.jit, static_argnums=0)
    def step(self, x: jax.Array) -> jax.Array:
      return self.by * x

  tuned = lagom_xla.tune(Scale().step)
  x = live_step.batch(0)
  for _ in range(_NUM_CALLS):
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
  for _ in range(_NUM_CALLS):
    x = tuned(x)
  jax.effects_barrier()
  assert sorted(seen) == list(range(_NUM_CALLS))


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
  for number in range(_NUM_CALLS):
    step(x)
    if number % 30 == 0:
      with jax.debug_nans(True), pytest.raises(FloatingPointError):
        step(-x)


def test_a_step_of_nnx_is_tuned_like_one_of_jax():
  # One proposal alone: noise may reject it, and another would be begun.
  proposer = live_step.Proposer({"again 0": _again})

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
    for number in range(_NUM_CALLS):
      x = live_step.batch(number)
      np.testing.assert_array_equal(step(ours, x), jitted(theirs, x))
  np.testing.assert_array_equal(ours.kernel[...], theirs.kernel[...])
  assert proposer.compiled == ["again 0"]
  assert step._repr_html_().startswith("<pre>train: ")


def test_shapes_that_alternate_are_watched_now_and_then(
  proposer: live_step.Proposer, monkeypatch: pytest.MonkeyPatch
):
  # Windows of as few calls as can be, so that they end in a test.
  monkeypatch.setattr(watch, "MIN_WINDOW_S", 0.0)
  monkeypatch.setattr(watch, "MIN_CALLS", 4)
  monkeypatch.setattr(turns, "REST_CALLS", 1)
  slow_s = [0.0]

  def sleep(value: np.ndarray) -> np.ndarray:
    time.sleep(slow_s[0])
    return value

  def double(x: jax.Array) -> jax.Array:
    shape = jax.ShapeDtypeStruct(x.shape, x.dtype)
    return jax.pure_callback(sleep, shape, 2 * x)

  proposer.makers = {}
  step: Any = lagom_xla.tune(jax.jit(double))
  batches = [live_step.batch(0, num_rows) for num_rows in (4, 8)]
  num_rests, was_resting = 0, False
  for number in range(3000):
    x = batches[number % 2]
    np.testing.assert_array_equal(step(x), 2 * x)
    is_resting = step._current is None
    num_rests += is_resting and not was_resting
    was_resting = is_resting
    if num_rests == 12:
      slow_s[0] = 0.03
    if proposer.measured and proposer.measured[-1].step_s > 0.03:
      break
  assert num_rests >= 12
  # A search for each shape, and one for the drift; on a busy machine windows as
  # short as these may drift before the step does.
  first, *_, drifted = (it.step_s for it in proposer.measured)
  assert len(proposer.measured) > 2
  assert first < 0.03 < drifted
