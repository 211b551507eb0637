# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Schedules already have the fusions that XLA gives to Triton afterwards."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec
import numpy as np
import pytest

from lagom_xla import cluster as cluster_lib
from lagom_xla.compile import compiler
from lagom_xla.compile import lowered as lowered_lib
from lagom_xla.costs import step as step_lib
from lagom_xla.passes import hlo

_CLUSTER = cluster_lib.parse("1x8xh100")
# Attention scores with grouped heads, as MaxText transposes them, and
# transposes of each other kind: shape, permutation, type, kind of the fusion
# that runs.
_TRANSPOSES = [
  ((8, 2, 256, 256, 2), (0, 1, 4, 3, 2), "float32", "kCustom"),
  ((64, 96, 7), (2, 1, 0), "float32", "kCustom"),
  ((4, 8, 16, 32, 2), (4, 1, 2, 3, 0), "bfloat16", "kCustom"),
  ((4, 1, 16, 32, 2), (4, 1, 2, 3, 0), "float32", "kCustom"),
  ((4, 256, 256, 2), (0, 3, 2, 1), "complex64", "kLoop"),
  ((8, 256, 256, 64), (0, 3, 2, 1), "float32", "kInput"),
  ((512, 768), (1, 0), "bfloat16", "kInput"),
]


@pytest.fixture(scope="module")
def step(h100s) -> lowered_lib.LoweredStep:
  mesh = jax.sharding.Mesh(np.array(h100s), ("x",))
  whole = NamedSharding(mesh, PartitionSpec())

  def transposed(arrays):
    found = [
      jnp.transpose(array, order)
      for array, (_, order, *_) in zip(arrays, _TRANSPOSES, strict=True)
    ]
    return jax.lax.optimization_barrier(found)

  arrays = [
    jax.ShapeDtypeStruct(shape, dtype, sharding=whole)
    for shape, _, dtype, _ in _TRANSPOSES
  ]
  return lowered_lib.LoweredStep(jax.jit(transposed).lower(arrays), _CLUSTER)


def _kinds(module: hlo.Module) -> dict[str, str]:
  fusions = (i for i in module.entry.instructions if i.fusion_kind)
  return {fusion.name: fusion.fusion_kind for fusion in fusions}


def test_scheduled_fusions_have_the_kinds_that_they_are_compiled_to(step):
  scheduled = _kinds(compiler.schedule(step))
  assert scheduled == _kinds(compiler.compile(step).module)
  assert sorted(scheduled.values()) == sorted(kind for *_, kind in _TRANSPOSES)


def test_a_schedule_costs_the_same_as_its_compiled_module(step):
  scheduled, ran = (
    step_lib.of_module(module, _CLUSTER)
    for module in (compiler.schedule(step), compiler.compile(step).module)
  )
  expected_us = ran.timeline(ran.default).step_time_us
  step_us = scheduled.timeline(scheduled.default).step_time_us
  assert step_us == pytest.approx(expected_us)
