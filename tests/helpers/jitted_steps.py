# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Steps for tests of the decorator, and comparisons of results."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import lagom_xla
from lagom_xla.compile import compiler
from lagom_xla.compile import config as config_lib

CLUSTER = "1x8xh100"

NUM_LAYERS = 3

WIDTH = 64

State = dict[str, Any]


# Tunes on predictions alone, for a node of eight H100s.
tune_predicted = functools.partial(
  lagom_xla.tune, cluster=CLUSTER, measure=False
)


@functools.cache
def mesh() -> jax.sharding.Mesh:
  return jax.make_mesh(
    (8,), ("fsdp",), axis_types=(jax.sharding.AxisType.Auto,)
  )


def rows() -> jax.sharding.NamedSharding:
  return jax.sharding.NamedSharding(mesh(), jax.sharding.PartitionSpec("fsdp"))


def whole() -> jax.sharding.NamedSharding:
  return jax.sharding.NamedSharding(mesh(), jax.sharding.PartitionSpec())


def sharded(*shape: int, seed: int = 0) -> jax.Array:
  values = np.random.default_rng(seed).normal(size=shape)
  return jax.device_put(values.astype(np.float32), rows())


def fsdp_step() -> Any:
  """Momentum on a few layers, each gathered for use; donates its state."""

  def loss_of(weights: list[jax.Array], x: jax.Array) -> jax.Array:
    for w in weights:
      x = jnp.tanh(x @ jax.lax.with_sharding_constraint(w, whole()))
    return jnp.mean(x**2)

  def step(state: State, x: jax.Array) -> tuple[State, jax.Array]:
    loss, grads = jax.value_and_grad(loss_of)(state["weights"], x)
    momenta = [
      0.9 * m + g for m, g in zip(state["momenta"], grads, strict=True)
    ]
    weights = [
      w - 0.1 * m for w, m in zip(state["weights"], momenta, strict=True)
    ]
    return {"weights": weights, "momenta": momenta}, loss

  return jax.jit(step, donate_argnums=0, out_shardings=(rows(), whole()))


def fresh_state() -> State:
  layers = range(NUM_LAYERS)
  return {
    "weights": [sharded(WIDTH, WIDTH, seed=1 + n) for n in layers],
    "momenta": [sharded(WIDTH, WIDTH, seed=9 + n) for n in layers],
  }


def assert_identical(ours: Any, theirs: Any) -> None:
  """Checks for the same bits, types, weak types and shardings."""

  def facts(leaf: jax.Array) -> tuple[Any, ...]:
    values = np.asarray(leaf).tobytes()
    return values, leaf.aval, leaf.sharding, leaf.committed

  assert jax.tree.map(facts, ours) == jax.tree.map(facts, theirs)


def configs_compiled(
  monkeypatch: pytest.MonkeyPatch,
) -> list[config_lib.XlaConfig]:
  """The configs of all complete compiles from now on."""
  asked: list[config_lib.XlaConfig] = []
  real = compiler.compile

  def compile_(
    step: Any, config: config_lib.XlaConfig, *, must_begin: bool
  ) -> Any:
    asked.append(config)
    return real(step, config, must_begin=must_begin)

  monkeypatch.setattr(compiler, "compile", compile_)
  return asked
