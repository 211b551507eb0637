# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Products that XLA merges are found, and knobs say how to keep them apart."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lagom_xla import cluster as cluster_lib
from lagom_xla.costs import step as step_lib
from lagom_xla.passes import hlo
from lagom_xla.passes import merged_products
from lagom_xla.search.xla import knobs

Scheduled = Callable[..., hlo.Module]
Lower = Callable[[int], jax.stages.Lowered]

_OPTION = "xla_gpu_dot_merger_threshold_mb"


@pytest.fixture(scope="module")
def lower(h100s) -> Lower:
  """Two micro-batches that are multiplied with one weight, then gathered."""
  mesh = jax.sharding.Mesh(np.array(h100s), ("x",))

  def sharded(*spec: str | None) -> jax.sharding.NamedSharding:
    return jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec(*spec))

  def lower(num_rows: int) -> jax.stages.Lowered:
    rows = jax.ShapeDtypeStruct(
      (8 * num_rows, 4096), jnp.bfloat16, sharding=sharded("x", None)
    )
    weight = jax.ShapeDtypeStruct(
      (4096, 2048), jnp.bfloat16, sharding=sharded(None, None)
    )
    step = jax.jit(
      lambda a, b, w: (jnp.tanh(a @ w), jnp.tanh(b @ w)),
      out_shardings=sharded(None, None),
    )
    return step.lower(rows, rows, weight)

  return lower


def _step(module: hlo.Module) -> step_lib.Step:
  return step_lib.of_module(module, cluster_lib.parse("1x8xh100"))


def _products(step: step_lib.Step) -> list[int]:
  """Bytes that each product moves."""
  kernels = step.analysis.kernels.values()
  return [k.num_bytes for k in kernels if k.category == "gemm"]


def _merged(step: step_lib.Step) -> list[int]:
  found = merged_products.find(step.analysis.module, step.analysis.kernels)
  return [kernel.num_bytes for kernel in found]


def _offered(step: step_lib.Step) -> list[object]:
  values = [v.options.get(_OPTION) for v in knobs.worth_trying(step)]
  return [value for value in values if value is not None]


def test_products_of_micro_batches_are_merged_or_apart_as_is_offered(
  scheduled, lower
):
  # Each moves 24 MiB of rows, 16 MiB of weight and 12 MiB of results: XLA
  # merges the two.
  lowered = lower(3072)
  merged = _step(scheduled(lowered))
  assert len(_products(merged)) == 1
  assert _merged(merged) == _products(merged)
  (limit_mib,) = _offered(merged)
  apart = _step(scheduled(lowered, **{_OPTION: limit_mib}))
  assert _products(apart) == [52 * 2**20] * 2
  assert _merged(apart) == []
  # Each moves 48 MiB of rows, 16 MiB of weight and 24 MiB of results: XLA
  # leaves them apart.
  lowered = lower(6144)
  apart = _step(scheduled(lowered))
  assert _products(apart) == [88 * 2**20] * 2
  (limit_mib,) = _offered(apart)
  merged = _step(scheduled(lowered, **{_OPTION: limit_mib}))
  assert len(_products(merged)) == len(_merged(merged)) == 1


def test_what_is_merged_at_any_limit_is_left_as_it_is(scheduled, lower):
  # 2 MiB of rows and 1 MiB of results beside the weight, merged 22 MiB.
  merged = _step(scheduled(lower(256)))
  assert _merged(merged) and max(_merged(merged)) <= 32 * 2**20
  assert _offered(merged) == []


def _gradients(
  x: jax.Array, w: jax.Array, g: jax.Array
) -> tuple[jax.Array, jax.Array]:
  return jnp.tanh(g @ w.T), jnp.tanh(x.T @ g)


@pytest.mark.parametrize(
  ("function", "shapes", "products_mib"),
  [
    # The gradients of a product share that of its result, and sum over other
    # dimensions of it.
    (_gradients, [(6144, 4096), (4096, 2048), (6144, 2048)], [88, 88]),
    # A product of another one's result waits for it.
    (lambda x, w: jnp.tanh(x @ w) @ w, [(6144, 3072), (3072, 3072)], [90, 90]),
    # This the program itself concatenates.
    (
      lambda a, b, w: jnp.tanh(jnp.concatenate([a, b]) @ w),
      [(4096, 4096)] * 3,
      [160],
    ),
  ],
)
def test_other_products_are_not_taken_for_merged_or_alike(
  scheduled, h100s, function, shapes, products_mib
):
  sharding = jax.sharding.SingleDeviceSharding(h100s[0])
  arguments = [
    jax.ShapeDtypeStruct(shape, jnp.bfloat16, sharding=sharding)
    for shape in shapes
  ]
  step = _step(scheduled(jax.jit(function).lower(*arguments)))
  assert [num_bytes / 2**20 for num_bytes in _products(step)] == products_mib
  assert _merged(step) == _offered(step) == []


def test_products_of_a_plain_step_are_not_taken_for_merged(fsdp_scan):
  step = _step(fsdp_scan)
  assert _products(step)
  assert _merged(step) == _offered(step) == []
