# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""A compile gets the program in its config's form."""

from __future__ import annotations

from collections.abc import Sequence
import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import compiles
from lagom_xla import cluster as cluster_lib
from lagom_xla import errors
from lagom_xla.compile import config as config_lib
from lagom_xla.compile import target as target_lib
from lagom_xla.passes import collectives
from lagom_xla.passes import combine
from lagom_xla.passes import hlo
from lagom_xla.passes.program import form as form_lib
import strands_step
import tensor_parallel_step

_MERGED = form_lib.Form(strands="merged")


def num_loops(module: hlo.Module) -> int:
  return sum(
    i.opcode == "while"
    for c in module.computations.values()
    for i in c.instructions
  )


def _target(devices: Sequence[jax.Device]) -> target_lib.StepTarget:
  jitted, args = strands_step.lowerable(devices)
  return compiles.target(jitted.lower(*args))


@pytest.fixture(scope="module")
def on_cpus() -> target_lib.StepTarget:
  return _target(jax.devices())


@pytest.fixture(scope="module")
def for_gpus(h100s: Sequence[jax.Device]) -> target_lib.StepTarget:
  return _target(h100s)


_CONFIG = config_lib.XlaConfig(program=_MERGED)


def test_xla_schedules_the_rewritten_program_with_slices_as_memcpys(for_gpus):
  assert num_loops(for_gpus.schedule()) == 4
  module = for_gpus.schedule(_CONFIG)
  assert num_loops(module) == 2
  slices = [
    instruction
    for computation in module.computations.values()
    for instruction in computation.instructions
    if instruction.opcode in ("dynamic-slice", "dynamic-update-slice")
  ]
  assert slices
  for instruction in slices:  # XLA notes where the memcpy of a trip begins.
    assert module.backend_config(instruction).get("dynamic_slice_config")


def test_a_form_does_not_change_results_or_donations(on_cpus):
  _, args = strands_step.lowerable(jax.devices())
  plain = on_cpus.compile().compiled
  compilation = on_cpus.compile(_CONFIG)
  merged = compilation.compiled
  assert num_loops(compilation.module) < num_loops(on_cpus.compile().module)
  weights, *batches = strands_step.values(args)
  expected, _ = plain(jnp.copy(weights), *batches)
  donated = jnp.copy(weights)
  actual, _ = merged(donated, *batches)
  np.testing.assert_array_equal(actual, expected)
  assert actual.sharding == expected.sharding
  assert donated.is_deleted()


def test_combine_groups_apply_to_the_rewritten_program(for_gpus):
  apart = for_gpus.schedule(dataclasses.replace(_CONFIG, combine_groups=()))
  reduces = sorted(
    label
    for labels in combine.labels(apart).values()
    for label in labels
    if "reduce" in label
  )
  groups = (tuple(reduces[:2]),)
  config = dataclasses.replace(_CONFIG, combine_groups=groups)
  held = combine.labels(for_gpus.schedule(config), groups).values()
  assert groups[0] in held


def test_a_module_is_rewritten_like_a_step(for_gpus):
  module = for_gpus.identity()
  target = target_lib.of_module(module, compiles.H100S, name="step.hlo")
  assert num_loops(target.schedule()) == 4
  assert num_loops(target.schedule(_CONFIG)) == 2
  assert target.outcome(_MERGED).actions


def test_the_actions_of_a_form_are_known_without_a_compile(on_cpus):
  program, _ = on_cpus.lowered.rewritten(_MERGED)
  again, _ = on_cpus.lowered.rewritten(form_lib.Form(strands="merged"))
  assert again is program  # So that JAX compiles a form once.
  forward, backward = on_cpus.outcome(_MERGED).actions
  assert f"{strands_step.NUM_LAYERS} trips" in forward
  assert "strands_step.py:" in backward


def test_a_form_that_does_not_apply_raises_with_the_reason():
  def step(w: jax.Array, x: jax.Array) -> jax.Array:
    """One micro-batch: there is nothing to merge its loops with."""
    return jax.lax.scan(lambda x, w: (jnp.tanh(x @ w), None), x, w)[0]

  lowered = jax.jit(step).lower(jnp.ones((2, 8, 8)), jnp.ones((8, 8)))
  cluster = cluster_lib.parse("1x1xh100")
  single = target_lib.of_step(lowered, cluster, name="single")
  assert not single.outcome(_MERGED).actions
  with pytest.raises(errors.ProgramError) as caught:
    single.compile(_CONFIG)
  message = str(caught.value)
  assert message.startswith("jit_step cannot have strands merged (the loop at")
  assert "program_config_test.py:" in message
  assert "\n" not in message


def test_a_form_applies_completely_or_not_at_all(on_cpus):
  both = form_lib.Form(strands="merged", slices={"no such chain": 2})
  assert on_cpus.outcome(_MERGED).actions
  assert not on_cpus.outcome(both).actions
  with pytest.raises(errors.ProgramError, match="no such chain in 2 pieces"):
    on_cpus.compile(config_lib.XlaConfig(program=both))


def test_a_scheduled_module_cannot_be_rewritten(for_gpus):
  target = target_lib.of_module(
    for_gpus.schedule(), compiles.H100S, name="late.hlo"
  )
  assert not target.outcome(_MERGED).actions
  with pytest.raises(
    errors.ProgramError, match=r"late\.hlo: it is already scheduled"
  ):
    target.schedule(_CONFIG)


def test_a_form_with_slices_splits_collectives():
  target = compiles.target(tensor_parallel_step.lower("shard_map"))
  form = form_lib.Form(slices={target.chains()[0].label: 2})
  (action,) = target.outcome(form).actions
  assert "2" in action
  sliced = target.compile(config_lib.XlaConfig(program=form)).module
  whole = target.compile().module
  assert len(collectives.find(sliced)) > len(collectives.find(whole))
