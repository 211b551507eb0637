# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Random numbers of micro-batches: each draws its own."""

from __future__ import annotations

from typing import Any

from flax import nnx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import lagom_xla
from micro_batch_model import assert_close
from micro_batch_model import batch_of
from micro_batch_model import loss_of
from micro_batch_model import params_of


def noise_loss(params: Any, batch: Any, rngs: Any) -> Any:
  drawn = jax.tree.map(lambda key: jax.random.normal(key, (3,)), rngs)
  return loss_of(params, batch), [*jax.tree.leaves(drawn)]


@pytest.mark.parametrize("kind", ["typed", "legacy", "by name"])
def test_each_micro_batch_draws_its_own_numbers(kind: str) -> None:
  make = jax.random.PRNGKey if kind == "legacy" else jax.random.key
  halves = lagom_xla.micro_batches(
    noise_loss,
    has_aux=True,
    aux="batch",
    rng_argnums=2 if kind == "legacy" else (),
  )
  rngs = {"dropout": make(3)}
  args = params_of(), batch_of()
  if kind == "by name":
    (_, (drawn,)), _ = halves(*args, rngs=rngs)
  else:
    (_, (drawn,)), _ = halves(*args, rngs)
  first, second = drawn[::2], drawn[1::2]
  assert not np.isin(first, second).any()


def test_legacy_keys_by_name_draw_what_typed_keys_draw() -> None:
  args = params_of(), batch_of()
  halves = lagom_xla.micro_batches(
    noise_loss, has_aux=True, aux="batch", rng_argnames="rngs"
  )
  legacy = halves(*args, rngs=jax.random.PRNGKey(7))[0][1][0]
  typed = halves(*args, rngs=jax.random.key(7))[0][1][0]
  np.testing.assert_array_equal(legacy, typed)


def test_keys_that_are_elements_of_the_batch_are_split_like_it() -> None:
  def loss(params: Any, batch: Any) -> Any:
    rows, keys = batch
    drawn = jax.vmap(jax.random.normal)(keys)
    return jnp.mean(params * rows * drawn), drawn

  args = (
    jnp.float32(2),
    (jnp.arange(8.0), jax.random.split(jax.random.key(0), 8)),
  )
  halves = lagom_xla.micro_batches(loss, 4, has_aux=True)
  assert_close(halves(*args), jax.value_and_grad(loss, has_aux=True)(*args))


def test_dropout_of_an_nnx_model_differs_between_micro_batches() -> None:
  model = nnx.Dropout(0.5, rngs=nnx.Rngs(0))
  graphdef, rest = nnx.split(model)

  def loss(scale: jax.Array, rest: Any, batch: jax.Array) -> Any:
    dropped = nnx.merge(graphdef, rest, copy=True)(scale * batch)
    return jnp.mean(dropped), dropped

  halves = lagom_xla.micro_batches(loss, batch_argnums=2, has_aux=True)
  (_, dropped), _ = halves(jnp.float32(1), rest, jnp.ones(64))
  assert (dropped[::2] != dropped[1::2]).any()
