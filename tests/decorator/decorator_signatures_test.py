# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""A step under `lagom_xla.tune` is called as the jitted step is."""

from __future__ import annotations

from collections.abc import Callable
import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jitted_steps import CLUSTER
from jitted_steps import add_one
from jitted_steps import assert_identical
from jitted_steps import assert_looks_jitted
from jitted_steps import rows
from jitted_steps import sharded
from jitted_steps import tune_predicted
from jitted_steps import whole
import lagom_xla
from lagom_xla import cluster as cluster_lib
from lagom_xla.live import proposals

_CHANGES: dict[str, Callable[[], Any]] = {
  "shape": lambda: sharded(24),
  "dtype": lambda: sharded(16).astype(jnp.bfloat16),
  "weak type": lambda: jax.device_put(jnp.asarray(2.0), whole()),
  "sharding": lambda: jax.device_put(sharded(16), whole()),
  "structure": lambda: [sharded(16)],
}


@pytest.mark.parametrize("change", _CHANGES)
def test_a_new_signature_is_tuned_and_a_known_one_is_not(
  change: str, tuned_names: list[str]
):
  def double(x: Any) -> Any:
    return jax.tree.map(lambda leaf: leaf * 2, x)

  jitted = jax.jit(double)
  step = tune_predicted(jax.jit(double))
  before = sharded(16)
  if change == "weak type":
    before = jax.device_put(np.float32(2.0), whole())
  after = _CHANGES[change]()
  for x in (before, after, before, after):
    assert_identical(step(x), jitted(x))
  # What XLA compiles is the same for a weak type: so is the plan.
  num_searches = 1 if change == "weak type" else 2
  assert tuned_names == ["double"] * num_searches
  assert len(step.tunings) == num_searches


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
def test_each_static_value_is_tuned(
  statics: dict[str, Any], tuned_names: list[str]
):
  jitted = jax.jit(_raised, **statics)
  step = tune_predicted(jax.jit(_raised, **statics))
  x = sharded(16)
  for power in (2, 3, 2):
    assert_identical(step(x, power), jitted(x, power))
  assert len(tuned_names) == 2


def test_keyword_arguments_static_or_not_are_as_in_jit():
  def make() -> Any:
    return jax.jit(_raised, static_argnames="power", donate_argnames="x")

  jitted, step = make(), tune_predicted(make())
  for _ in range(2):
    ours, theirs = sharded(16), sharded(16)
    assert_identical(step(x=ours, power=3), jitted(x=theirs, power=3))
    assert ours.is_deleted() and theirs.is_deleted()
  assert_identical(step(power=3, x=sharded(16)), jitted(sharded(16), power=3))


@pytest.mark.parametrize(
  "scale",
  [2, 2.5, True, np.float32(3), np.float64(3), np.arange(4), 1j],
  ids=lambda scale: type(scale).__name__,
)
def test_numbers_and_numpy_arrays_are_taken_as_by_jit(scale: Any):
  def scaled(x: jax.Array, scale: Any) -> tuple[jax.Array, Any]:
    return x[:4] * scale, scale * 2

  jitted = jax.jit(scaled)
  step = tune_predicted(jax.jit(scaled))
  x = sharded(16)
  for _ in range(2):
    assert_identical(step(x, scale), jitted(x, scale))


def test_what_is_committed_elsewhere_goes_where_the_step_takes_it():
  def make() -> Any:
    return jax.jit(
      lambda x, scale: x * scale,
      in_shardings=(rows(), whole()),
      donate_argnums=1,
    )

  jitted, step = make(), tune_predicted(make())
  for device in (1, 1, 2):
    ours, theirs = (
      jax.device_put(np.ones(4, np.float32), jax.devices()[device])
      for _ in range(2)
    )
    x = sharded(16, 4)
    assert_identical(step(x, ours), jitted(x, theirs))
    assert ours.is_deleted() == theirs.is_deleted()


def test_a_change_of_configuration_is_a_new_signature(tuned_names: list[str]):
  step = tune_predicted(jax.jit(lambda x: x @ x.T))
  x = sharded(16, 16)
  step(x)
  with jax.default_matmul_precision("highest"):
    step(x)
  step(x)
  assert len(tuned_names) == 2


def test_transformations_see_the_jitted_step(tuned_names: list[str]):
  def squares(x: jax.Array) -> jax.Array:
    return jnp.sum(x**2, axis=-1)

  step: Any = tune_predicted(jax.jit(squares))
  x = sharded(16, 4)
  for transform in (
    jax.jit,
    jax.vmap,
    lambda f: jax.grad(lambda x: jnp.sum(f(x))),
    lambda f: jax.jit(
      lambda y: y + jnp.sum(f(x))
    ),  # No tracer among f's arguments.
    lambda f: lambda x: jax.lax.map(f, x),
  ):
    assert_identical(transform(step)(x), transform(jax.jit(squares))(x))
  assert tuned_names == []
  step(x)
  assert_identical(jax.vmap(step)(x), jax.vmap(jax.jit(squares))(x))
  assert tuned_names == ["squares"]


def test_it_still_looks_jitted():
  tuned: Any = tune_predicted(add_one)
  x = sharded(16)
  assert_looks_jitted(tuned, add_one, x)
  assert type(tuned) is type(add_one)


def test_a_method_is_tuned_like_a_function():
  class Trainer:
    @tune_predicted()
    @functools.partial(jax.jit, static_argnums=0)
    def step(self, x: jax.Array) -> jax.Array:
      return x + 1

  x = sharded(16)
  assert_identical(Trainer().step(x), x + 1)


class _Scale:
  def __init__(self, by: int):
    self.by = by

  @functools.partial(jax.jit, static_argnums=0)
  def step(self, x: jax.Array, plus: int = 1) -> jax.Array:
    return self.by * x + plus


@pytest.mark.parametrize(
  "bound",
  [_Scale(3).step, functools.partial(_Scale.step, _Scale(3), plus=1)],
  ids=["method", "partial"],
)
def test_a_bound_step_is_tuned_with_what_it_is_bound_to(bound: Any):
  tuned = tune_predicted(bound)
  x = sharded(16)
  assert_identical(tuned(x), 3 * x + 1)
  assert_identical(tuned(x, plus=2), 3 * x + 2)
  assert tuned.tunings
  assert "jit_step" in tuned.report()


@pytest.mark.parametrize("cluster", [CLUSTER, cluster_lib.parse(CLUSTER)])
def test_it_decorates_with_and_without_arguments(
  cluster: str | cluster_lib.Cluster,
  tuned_names: list[str],
  monkeypatch: pytest.MonkeyPatch,
):
  # Whatever there is to tune on CPUs.
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
  with pytest.warns(RuntimeWarning, match="nothing is tuned"):
    assert_identical(without(x), x + 1)
  assert tuned_names == ["with_arguments"]
