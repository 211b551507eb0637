# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""XLA is told which GPUs of a cluster NVLinks join."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lagom_xla import cluster as cluster_lib
from lagom_xla.compile import compiler
from lagom_xla.compile import config as config_lib
from lagom_xla.compile import devices as devices_lib
from lagom_xla.compile import lowered
from lagom_xla.passes import kernels


@pytest.mark.parametrize(
  ("cluster", "shape"),
  [
    ("1x8xh100", "1x1x8"),
    ("4x8xh100", "4x1x8"),
    ("4x4xgb300", "1x4x4"),
    ("36x4xgb300", "2x18x4"),
    ("20x4xgb300", "10x2x4"),
  ],
)
def test_a_shape_has_domains_and_the_nodes_in_each(
  cluster: str, shape: str
) -> None:
  assert devices_lib.shape(cluster_lib.parse(cluster)) == shape


def _estimated_us(cluster: str, width: int) -> float:
  """What XLA's scheduler takes an all-gather of a square matrix to need."""
  parsed = cluster_lib.parse(cluster)
  mesh = jax.sharding.Mesh(np.array(devices_lib.devices(parsed)), ("x",))
  rows = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("x"))
  weight = jax.ShapeDtypeStruct((width, width), jnp.bfloat16, sharding=rows)
  product = jax.jit(lambda w, x: x @ w, out_shardings=rows)
  module = compiler.schedule(
    lowered.LoweredStep(product.lower(weight, weight), parsed),
    config_lib.XlaConfig(options={compiler.ESTIMATES: True}),
  )
  found = {
    kernels.sol_time_us(module.backend_config(i))
    for computation in module.computations.values()
    for i in computation.instructions
    if i.opcode.startswith("all-gather")
  }
  (time_us,) = found - {None}
  assert time_us is not None
  return time_us


def test_xla_takes_a_gather_between_nodes_for_as_long_as_it_is_large() -> None:
  within = [_estimated_us("1x8xh100", width) for width in (2048, 8192)]
  between = [_estimated_us("2x8xh100", width) for width in (2048, 8192)]

  assert between[0] > within[0] and between[1] > within[1]
  assert between[0] < between[1]
