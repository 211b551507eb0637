# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Products that XLA merges are found, and knobs can keep them apart."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lagom_xla import cluster as cluster_lib
from lagom_xla.costs import step as step_lib
from lagom_xla.passes import hlo
from lagom_xla.passes import kernels as kernels_lib
from lagom_xla.search.xla import knobs

Scheduled = Callable[..., hlo.Module]
Lower = Callable[[int], jax.stages.Lowered]

_OPTION = "xla_gpu_dot_merger_threshold_mb"


@pytest.fixture(scope="module")
def lower(h100s) -> Lower:
  """Two micro-batches multiplied with one weight, then gathered."""
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
  module, kernels = step.analysis.module, step.analysis.kernels
  found = kernels_lib.merged_products(module, kernels)
  return [merged.kernel.num_bytes for merged in found]


def _offered(step: step_lib.Step) -> list[object]:
  values = [v.options.get(_OPTION) for v in knobs.worth_trying(step)]
  return [value for value in values if value is not None]


def test_the_offered_limit_separates_merged_micro_batch_products(
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


def test_the_offered_limit_adapts_to_the_bytes_of_the_products(
  scheduled, lower
):
  # 2 MiB of rows, 1 MiB of results and 16 MiB of weight.
  lowered = lower(256)
  merged = _step(scheduled(lowered))
  assert len(_merged(merged)) == 1
  (limit_mib,) = _offered(merged)
  assert _merged(_step(scheduled(lowered, **{_OPTION: limit_mib}))) == []


def test_a_concatenation_in_the_program_is_not_taken_for_a_merge(
  scheduled, h100s
):
  sharding = jax.sharding.SingleDeviceSharding(h100s[0])
  operand = jax.ShapeDtypeStruct((4096, 4096), jnp.bfloat16, sharding=sharding)
  step = jax.jit(lambda a, b, w: jnp.tanh(jnp.concatenate([a, b]) @ w))
  lowered = step.lower(operand, operand, operand)
  step = _step(scheduled(lowered))
  assert _products(step) == [160 * 2**20]
  assert _merged(step) == _offered(step) == []


def test_products_of_a_plain_step_are_not_taken_for_merged(fsdp_scan):
  step = _step(fsdp_scan)
  assert _products(step)
  assert _merged(step) == _offered(step) == []
