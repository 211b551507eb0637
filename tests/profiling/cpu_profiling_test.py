# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Profiles of CPUs: JAX's own traces of a step on eight devices."""

from __future__ import annotations

import collections
import dataclasses
import json
import pathlib

import jax
import jax.numpy as jnp
import pytest

import commands
from lagom_xla import cluster as cluster_lib
from lagom_xla import errors
from lagom_xla import profiling
from lagom_xla.passes import hlo
from lagom_xla.profiling import costing as costing_lib
from lagom_xla.profiling import profile as profile_lib
import quick
import strands_step

_NUM_STEPS = 3


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
  """A jax.profiler trace of a few steps that gather and reduce."""
  jitted, shapes = strands_step.lowerable(jax.devices(), num_rows=64)
  lowered = jitted.lower(*shapes)
  step = lowered.compile(compiler_options=quick.as_users_compile())
  others = [_another_step(depth) for depth in (1, 5)]
  weights, *batches = strands_step.values(shapes)
  weights, _ = jax.block_until_ready(step(weights, *batches))
  found = tmp_path_factory.mktemp("traced")
  with jax.profiler.trace(str(found)):
    for _ in range(_NUM_STEPS):
      weights, _ = jax.block_until_ready(step(weights, *batches))
  del others
  (found / "step.hlo").write_text(step.as_text() or "")
  return found


def _another_step(depth: int) -> jax.stages.Compiled:
  """Another program with the traced one's name, in the same process."""

  @jax.jit
  def step(x: jax.Array) -> jax.Array:
    for _ in range(depth):
      x = jnp.sin(x)
    return x

  return step.lower(jnp.ones(64)).compile()


@pytest.fixture(scope="module")
def profile(folder: pathlib.Path) -> profiling.Profile:
  return profiling.read(folder)


def test_every_step_is_found_on_every_device(profile):
  assert profile.trace.platform == "CPU"
  found = sorted((step.device, step.number) for step in profile.whole_steps)
  assert found == [(d, n) for d in range(8) for n in range(_NUM_STEPS)]


def test_the_module_is_of_the_program_that_ran_among_equal_names(
  folder, profile
):
  ran = hlo.load(folder / "step.hlo")
  assert profile.analysis.module.name == ran.name
  assert profile.analysis.module.num_instructions == ran.num_instructions


def test_collectives_of_loops_are_counted(profile):
  assert {"all-gather", "all-reduce"} <= {
    c.kind for c in profile.collectives.values()
  }
  for step in profile.steps:
    times = collections.Counter(event.name for event in step.collectives)
    assert times == {c.name: c.executions for c in profile.collectives.values()}


def test_runs_of_a_collective_are_matched_over_all_ranks(profile):
  assert profile.instances
  for instance in profile.instances:
    assert instance.has_all_ranks
    # No rank ends before the last one starts.
    assert all(
      run.end_us >= instance.last_start_us for run in instance.runs.values()
    )


def test_every_instruction_that_ran_has_a_time(folder, profile):
  found = profiling.instruction_us(folder)
  ran = {event.name for step in profile.steps for event in step.kernels}
  assert found.keys() == ran | profile.collectives.keys()
  assert all(us > 0 for us in found.values())
  longest_us = max(s.end_us - s.begin_us for s in profile.steps)
  assert max(found.values()) < longest_us


def test_a_product_on_other_threads_ends_when_done_or_first_read(profile):
  module = profile.analysis.module
  (computation, product), *_ = [
    (computation, instruction)
    for computation in module.computations.values()
    for instruction in computation.instructions
    if (kernel := profile.kernels.get(instruction.name))
    and kernel.category == "gemm"
  ]
  readers = {
    i.name for i in computation.instructions if product.id in i.operand_ids
  }
  device, *others = profile.trace.devices
  index, launch = next(
    (n, it) for n, it in enumerate(device.launches) if it.hlo_op == product.name
  )
  read_us = min(
    it.begin_us
    for it in device.launches[index:]
    if it.hlo_op in readers and it.execution == launch.execution
  )

  def end_us(until_us: float) -> float:
    """The end of the product if it was done by `until_us` at the latest."""
    left = dataclasses.replace(launch, until_us=until_us)
    launches = (*device.launches[:index], left, *device.launches[index + 1 :])
    devices = (dataclasses.replace(device, launches=launches), *others)
    found = profile_lib.of_trace(
      dataclasses.replace(profile.trace, devices=devices)
    )
    return next(
      event.end_us
      for step in found.steps
      for event in step.kernels
      if (step.device, event.begin_us) == (0, launch.begin_us)
    )

  assert end_us(read_us + 1e6) == read_us
  done_us = (launch.end_us + read_us) / 2
  assert end_us(done_us) == done_us


def test_the_profile_command_names_cpus_not_gpus(folder):
  text = commands.run("profile", str(folder)).out
  assert "8 CPUs of 1 process;" in text
  assert " over 8 CPUs" in text and "GPU" not in text
  found = json.loads(commands.run("profile", str(folder), "--format=json").out)
  commands.check_schema("profile", found)
  assert found["platform"] == "CPU"
  assert len(found["devices"]) == 8


def test_a_profile_of_cpus_is_refused_for_costs_of_gpus(profile):
  with pytest.raises(errors.TraceError, match="of CPUs"):
    costing_lib.of_profile(profile, cluster_lib.parse("1x8xh100"))


def test_the_error_of_a_trace_without_instructions_names_the_option(tmp_path):
  options = jax.profiler.ProfileOptions()
  options.host_tracer_level = 0
  with jax.profiler.trace(str(tmp_path), profiler_options=options):
    jax.block_until_ready(jnp.ones(8) + 1)
  with pytest.raises(errors.TraceError, match="host_tracer_level"):
    profiling.read(tmp_path)
