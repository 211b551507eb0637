# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""A step under `lagom_xla.tune` acts like the jitted one in every mode."""

from __future__ import annotations

from collections.abc import Callable, Iterator
import dataclasses
import functools
import inspect
import pickle
import threading
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jitted_steps import CLUSTER
from jitted_steps import assert_identical
from jitted_steps import rows
from jitted_steps import sharded
from jitted_steps import tune_predicted
from jitted_steps import whole
import lagom_xla
from lagom_xla import cluster as cluster_lib
from lagom_xla.live import proposals
import live_step


@dataclasses.dataclass(frozen=True)
class _Mode:
  """How a step is tuned.

  Attributes:
    tune: the decorator.
    num_calls: enough calls to pass through all states of tuning.
  """

  tune: Callable[..., Any]
  num_calls: int

  def num_tuned(self, step: Any) -> int:
    """The number of tuned signatures."""
    return len(step.tunings) or step.report().count("  now: ")


@pytest.fixture(params=["predicted", "measured"])
def mode(request) -> Iterator[_Mode]:
  if request.param == "predicted":
    yield _Mode(tune_predicted, 3)
    return
  proposer = live_step.Proposer(
    {f"again {n}": live_step.again for n in range(99)}
  )
  with live_step.proposed_by(proposer):
    tune = functools.partial(lagom_xla.tune, cache=False)
    yield _Mode(tune, live_step.NUM_CALLS)


@jax.jit
def _add_one(x: jax.Array) -> jax.Array:
  """Adds one."""
  return x + 1


def _scaled(x: Any, scale: Any) -> tuple[Any, Any]:
  return jax.tree.map(lambda leaf: leaf * 2, x), scale * 2


def test_each_kind_of_argument_is_accepted_as_by_jit_and_tuned(mode):
  jitted, step = jax.jit(_scaled), mode.tune(jax.jit(_scaled))
  x = sharded(16)
  others = [
    (sharded(24), 2),
    (x.astype(jnp.bfloat16), np.float64(3)),
    (jax.device_put(x, whole()), np.arange(4)),
    ([x], 1j),
    (jax.device_put(jnp.asarray(2.0), whole()), True),
  ]
  if mode.num_calls > 3:
    # Predictions are for the whole cluster, not for arrays on one device.
    others += [(it, 2) for it in (np.float32(2.0), np.arange(4), 2.5, True, 1j)]
  expected = [jitted(*other) for other in others]
  for number in range(mode.num_calls):
    assert_identical(step(x, 2), jitted(x, 2))
    if number % 20 == 0:
      for other, of_jit in zip(others, expected, strict=True):
        assert_identical(step(*other), of_jit)
  assert mode.num_tuned(step) == 1 + len(others)


def _doubled(x: Any) -> Any:
  return jax.tree.map(lambda leaf: leaf * 2, x)


def test_signatures_that_xla_compiles_alike_share_one_search(tuned_names):
  step = tune_predicted(jax.jit(_doubled))
  for value in (
    np.float32(2.0),
    jnp.asarray(2.0),
  ):  # The latter's type is weak.
    x = jax.device_put(value, whole())
    assert_identical(step(x), jax.jit(_doubled)(x))
  assert tuned_names == ["_doubled"]
  assert len(step.tunings) == 1


def _raised(x: jax.Array, power: int) -> jax.Array:
  return x**power


@pytest.mark.parametrize(
  "statics", [{"static_argnums": -1}, {"static_argnames": "power"}]
)
def test_each_value_of_a_static_argument_is_tuned(statics, mode):
  jitted = jax.jit(_raised, **statics)
  step = mode.tune(jax.jit(_raised, **statics))
  x = sharded(16)
  expected = {power: jitted(x, power) for power in (2, 3)}
  for number in range(mode.num_calls):
    power = 2 + (number // 30 if mode.num_calls > 3 else number) % 2
    assert_identical(step(x, power), expected[power])
  assert mode.num_tuned(step) == 2


def test_keyword_and_donated_arguments_behave_as_under_jit(mode):
  def make() -> Any:
    return jax.jit(_raised, static_argnames="power", donate_argnames="x")

  jitted, step = make(), mode.tune(make())
  for _ in range(mode.num_calls):
    ours, theirs = sharded(16), sharded(16)
    assert_identical(step(x=ours, power=3), jitted(x=theirs, power=3))
    assert ours.is_deleted() and theirs.is_deleted()
  assert_identical(step(power=3, x=sharded(16)), jitted(sharded(16), power=3))


def test_arguments_committed_to_other_devices_are_moved_as_by_jit(mode):
  def make() -> Any:
    return jax.jit(
      lambda x, scale: x * scale,
      in_shardings=(rows(), whole()),
      donate_argnums=1,
    )

  jitted, step = make(), mode.tune(make())
  x = sharded(16, 4)
  for number in range(mode.num_calls):
    ours, theirs = (
      jax.device_put(np.ones(4, np.float32), jax.devices()[1 + number % 3 // 2])
      for _ in range(2)
    )
    assert_identical(step(x, ours), jitted(x, theirs))
    assert ours.is_deleted() == theirs.is_deleted()


def test_a_change_of_jax_config_is_a_new_signature(mode):
  jitted = jax.jit(lambda x: x @ x.T)
  step = mode.tune(jax.jit(lambda x: x @ x.T))
  x = sharded(16, 16)
  for number in range(min(mode.num_calls, 40)):
    with jax.default_matmul_precision("highest" if number % 2 else "default"):
      assert_identical(step(x), jitted(x))
  assert mode.num_tuned(step) == 2


def test_transformations_see_the_jitted_step_in_every_state(mode):
  def squares(x: jax.Array) -> jax.Array:
    return jnp.sum(x**2, axis=-1)

  jitted, step = jax.jit(squares), mode.tune(jax.jit(squares))
  x = sharded(16, 4)

  def transformed(f: Any) -> list[Any]:
    return [
      jax.jit(f)(x),
      jax.vmap(f)(x),
      jax.grad(lambda x: jnp.sum(f(x)))(x),
      jax.jit(lambda y: y + jnp.sum(f(x)))(x),  # No tracer among f's arguments.
      jax.lax.map(f, x),
    ]

  expected = transformed(jitted)
  assert_identical(transformed(step), expected)
  assert mode.num_tuned(step) == 0
  for number in range(mode.num_calls):
    assert_identical(step(x), jitted(x))
    if number % 20 == 0:
      assert_identical(transformed(step), expected)
  assert mode.num_tuned(step) == 1


def test_a_tuned_step_has_the_interface_of_a_jitted_one(mode):
  step, x = mode.tune(_add_one), sharded(16)
  assert (step.__name__, step.__doc__) == ("_add_one", "Adds one.")
  assert step.__wrapped__ is inspect.unwrap(_add_one)
  assert step.lower(x).as_text() == _add_one.lower(x).as_text()
  assert str(step.trace(x).jaxpr) == str(_add_one.trace(x).jaxpr)
  assert step.eval_shape(x) == _add_one.eval_shape(x)
  public = {name for name in dir(_add_one) if not name.startswith("_")}
  assert public | {"report"} <= set(dir(step))
  step.clear_cache()
  assert_identical(step(x), x + 1)


@pytest.mark.parametrize("tune", [tune_predicted, lagom_xla.tune])
def test_pickling_a_tuned_step_raises_jits_error(tune):
  with pytest.raises(Exception) as theirs:
    pickle.dumps(_add_one)
  with pytest.raises(type(theirs.value)) as ours:
    pickle.dumps(tune(_add_one))
  assert str(ours.value) == str(theirs.value)


class _Scale:
  def __init__(self, by: int):
    self.by = by

  @functools.partial(jax.jit, static_argnums=0)
  def step(self, x: jax.Array, plus: int = 1) -> jax.Array:
    return self.by * x + plus


def test_a_method_is_tuned_like_a_function(mode):
  class Trainer:
    step = mode.tune(_Scale.step)
    by = 3

  trainer, x = Trainer(), sharded(16)
  for _ in range(mode.num_calls):
    assert_identical(trainer.step(x), 3 * x + 1)
  # JAX keeps static arguments, and so the trainer and its step.
  jax.clear_caches()


@pytest.mark.parametrize(
  "bound", [_Scale(3).step, functools.partial(_Scale.step, _Scale(3), plus=1)]
)
def test_a_bound_step_is_tuned_with_its_bound_arguments(bound, mode):
  step, x = mode.tune(bound), sharded(16)
  for _ in range(mode.num_calls):
    assert_identical(step(x), 3 * x + 1)
  assert_identical(step(x, plus=2), 3 * x + 2)
  assert mode.num_tuned(step)
  assert "step" in step.report()
  jax.clear_caches()


@pytest.mark.parametrize("ordered", [False, True])
def test_effects_happen_once_per_call(ordered, mode):
  seen: list[float] = []

  def step(x: jax.Array) -> jax.Array:
    jax.debug.callback(lambda v: seen.append(float(v)), x, ordered=ordered)
    return x + 1

  tuned = lagom_xla.tune(jax.jit(step), cluster="1x1xh100", measure=False)
  if mode.num_calls > 3:
    tuned = mode.tune(jax.jit(step))
  x = jax.device_put(jnp.float32(0), jax.devices()[0])
  for _ in range(mode.num_calls):
    x = tuned(x)
  jax.effects_barrier()
  assert sorted(seen) == list(range(mode.num_calls))
  assert mode.num_tuned(tuned) == 1


def test_threads_may_call_a_tuned_step_concurrently(mode):
  step = mode.tune(jax.jit(lambda x: x * 3))
  batches = [sharded(num_rows) for num_rows in (8, 8, 16, 16)]
  barrier = threading.Barrier(4)
  failures: list[BaseException] = []

  def call(x: jax.Array) -> None:
    barrier.wait()
    try:
      for _ in range(mode.num_calls):
        assert_identical(step(x), 3 * x)
    except BaseException as error:
      failures.append(error)

  threads = [threading.Thread(target=call, args=(x,)) for x in batches]
  for thread in threads:
    thread.start()
  for thread in threads:
    thread.join()
  assert failures == []
  assert mode.num_tuned(step) == 2


def test_nans_are_found_as_under_jit(mode):
  step = mode.tune(jax.jit(jnp.log))
  x = jax.device_put(np.ones(16, np.float32), rows())
  for number in range(mode.num_calls):
    step(x)
    if number % 30 == 0:
      with jax.debug_nans(True), pytest.raises(FloatingPointError):
        step(-x)


@pytest.mark.parametrize("cluster", [CLUSTER, cluster_lib.parse(CLUSTER)])
def test_tune_decorates_with_and_without_arguments(
  cluster, tuned_names, monkeypatch
):
  # TPUs cannot be tuned.
  monkeypatch.setattr(proposals, "platform_of", lambda _: "tpu")

  @lagom_xla.tune(cluster=cluster, measure=False)
  @jax.jit
  def with_arguments(x: jax.Array) -> jax.Array:
    return x + 1

  @lagom_xla.tune
  @jax.jit
  def without(x: jax.Array) -> jax.Array:
    return x + 1

  x = sharded(16)
  assert_identical(with_arguments(x), x + 1)
  with pytest.warns(RuntimeWarning, match="cannot be tuned"):
    assert_identical(without(x), x + 1)
  assert tuned_names == ["with_arguments"]
