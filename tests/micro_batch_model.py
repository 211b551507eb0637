# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""A small model whose batch is differentiated in micro-batches."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

BATCH = 24
WIDTH = 8
RELATIVE = {"float32": 1e-5, "bfloat16": 2e-2, "float16": 3e-3}


def params_of(dtype: Any = jnp.float32, seed: int = 0) -> Any:
  keys = jax.random.split(jax.random.key(seed), 2)
  return {
    "hidden": [jax.random.normal(keys[0], (WIDTH, WIDTH), dtype), None],
    "out": jax.random.normal(keys[1], (WIDTH,), dtype),
  }


def batch_of(dtype: Any = jnp.float32, size: int = BATCH) -> Any:
  rng = np.random.default_rng(1)
  return {
    "x": jnp.asarray(rng.normal(size=(size, WIDTH)), dtype),
    "label": jnp.asarray(rng.integers(WIDTH, size=size), jnp.int32),
    "scale": 0.5,
    "nothing": None,
  }


def per_element(params: Any, batch: Any) -> jax.Array:
  """The loss of each element, with some use of every leaf."""
  h = jnp.tanh(batch["x"] @ params["hidden"][0])
  picked = jnp.take_along_axis(h, batch["label"][:, None], axis=1)[:, 0]
  return batch["scale"] * jnp.square(h @ params["out"] - picked)


def loss_of(params: Any, batch: Any, reduction: str = "mean") -> jax.Array:
  reduce: Callable[..., jax.Array] = getattr(jnp, reduction)
  return reduce(per_element(params, batch))


def assert_close(actual: Any, expected: Any) -> None:
  """Compares trees of arrays within the bound for their dtype."""
  assert jax.tree.structure(actual) == jax.tree.structure(expected)
  for here, there in zip(
    jax.tree.leaves(actual), jax.tree.leaves(expected), strict=True
  ):
    assert (here.dtype, here.shape) == (there.dtype, there.shape)
    if there.dtype == jax.dtypes.float0:
      continue
    here, there = np.asarray(here, np.float64), np.asarray(there, np.float64)
    bound = RELATIVE[str(jax.tree.leaves(expected)[0].dtype)]
    np.testing.assert_allclose(
      here, there, rtol=0, atol=bound * np.abs(there).max(initial=1e-3)
    )
