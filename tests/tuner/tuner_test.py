# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""From a target to a plan that compiles, fits and was seen to act."""

from __future__ import annotations

from collections.abc import Callable
import functools
from unittest import mock

import jax
import jax.numpy as jnp
import pytest

import fake_target
import hlo_text
from lagom_xla import cluster as cluster_lib
from lagom_xla import errors
from lagom_xla import plan as plan_lib
from lagom_xla.compile import config as config_lib
from lagom_xla.compile import devices as devices_lib
from lagom_xla.compile import lowered
from lagom_xla.compile import target as target_lib
from lagom_xla.costs import uncertainty
from lagom_xla.passes import hlo
from lagom_xla.passes import registry
from lagom_xla.search.nccl import problem as problem_lib
from lagom_xla.search.xla import candidates
from lagom_xla.search.xla import knobs
from lagom_xla.tuner import tuner
from lagom_xla.tuner import tuning as tuning_lib

H100 = cluster_lib.parse("1x8xh100")
_GATHER = knobs.OPTIONS["all-gather"]
_GIB = 2**30


@functools.cache
def _module(num_gathers: int, num_operands: int) -> hlo.Module:
  """Exposed all-gathers of 64 KiB operands."""
  lines = [
    line
    for i in range(num_gathers)
    for line in hlo_text.all_gather(
      f"all-gather.{i}", *[64 * 2**10] * num_operands
    )
  ]
  return hlo_text.load("\n".join([*lines, "ROOT end = () tuple()"]))


_APART = _module(8, 1)
_TOGETHER = _module(1, 8)


def _combined(config: config_lib.XlaConfig) -> hlo.Module:
  return _TOGETHER if _GATHER in config.options else _APART


def _target(
  compile_fully: Callable[[config_lib.XlaConfig], lowered.Compilation] | None,
  cluster: cluster_lib.Cluster = H100,
) -> fake_target.FakeTarget:
  return fake_target.FakeTarget(
    name="step",
    cluster=cluster,
    scheduled=_combined,
    compiled=compile_fully,
  )


def _needing(
  default_bytes: int, tuned_bytes: int
) -> Callable[[config_lib.XlaConfig], lowered.Compilation]:
  def compile_fully(config: config_lib.XlaConfig) -> lowered.Compilation:
    return lowered.Compilation(
      module=_combined(config),
      compiled=None,
      peak_bytes=tuned_bytes if config.options else default_bytes,
    )

  return compile_fully


def test_a_plan_says_for_what_it_is_and_what_each_part_gains():
  tuning = tuner.tune(_target(_needing(_GIB, 2 * _GIB)))
  plan, prediction = tuning.plan, tuning.plan.prediction
  assert plan.module_fingerprint == plan_lib.fingerprint(_APART)
  assert plan.cluster == H100
  assert plan.xla.options == {_GATHER: 128 * 2**20}
  assert prediction.default_us == tuning.timeline_before.step_time_us
  assert prediction.nccl_settings_us == tuning.timeline_after.step_time_us
  assert prediction.xla_us < prediction.default_us
  assert prediction.nccl_env_us <= prediction.xla_us
  assert tuning.peak_bytes_before == _GIB
  assert tuning.peak_bytes_after == 2 * _GIB


def test_trials_are_counted_over_all_that_was_scheduled():
  tuning = tuner.tune(_target(None))
  assert tuning.kept is not tuning.search.default
  assert tuning.num_trials > tuning.search.default.num_trials > 0


def test_options_are_checked_on_the_fully_compiled_module():
  tuning = tuner.tune(_target(_needing(_GIB, _GIB)))
  (effect,) = [e for e in tuning.effects if e.knob == _GATHER]
  assert effect.acted
  assert effect.evidence.startswith("8 all-gathers became 1")


def test_an_option_that_the_full_compile_ignores_is_reported():
  def compile_fully(config: config_lib.XlaConfig) -> lowered.Compilation:
    return lowered.Compilation(module=_APART, compiled=None, peak_bytes=_GIB)

  tuning = tuner.tune(_target(compile_fully))
  (effect,) = [e for e in tuning.effects if e.knob == _GATHER]
  assert not effect.acted
  assert effect.evidence.startswith("no effect")


@pytest.mark.parametrize(
  ("default_bytes", "tuned_bytes", "is_kept"),
  [
    (70 * _GIB, 75 * _GIB, True),
    (70 * _GIB, 90 * _GIB, False),
    # It did not fit before either, and needs less now.
    (95 * _GIB, 90 * _GIB, True),
    (90 * _GIB, 95 * _GIB, False),
  ],
)
def test_options_that_do_not_fit_the_device_are_dropped(
  default_bytes, tuned_bytes, is_kept
):
  tuning = tuner.tune(_target(_needing(default_bytes, tuned_bytes)))
  assert bool(tuning.plan.xla.options) == is_kept
  assert tuning.peak_bytes_after == (tuned_bytes if is_kept else default_bytes)


def test_options_that_do_not_compile_fully_are_dropped():
  def compile_fully(config: config_lib.XlaConfig) -> lowered.Compilation:
    if config.options:
      raise errors.CompileError("XLA could not compile")
    return _needing(_GIB, _GIB)(config)

  tuning = tuner.tune(_target(compile_fully))
  assert tuning.plan.xla.options == {}
  assert tuning.kept is tuning.search.default
  assert tuning.compiled is tuning.compiled_before
  refused = [c for c in tuning.candidates if isinstance(c, candidates.Refused)]
  assert refused[0].reason == "XLA could not compile"


def test_a_gpu_that_nothing_can_be_compiled_for_is_tuned_by_its_schedule():
  def compile_fully(config: config_lib.XlaConfig) -> lowered.Compilation:
    raise AssertionError("There is no compiler for it.")

  v100 = cluster_lib.parse("1x8xv100")
  tuning = tuner.tune(_target(compile_fully, v100))
  assert tuning.compiled is None
  assert tuning.peak_bytes_after is None
  assert tuning.plan.xla.options
  assert tuning.effects[0].acted


def test_what_is_expected_ends_with_the_compiles_of_the_plan():
  expected: list[float] = []
  tuning = tuner.tune(_target(None), expect=expected.append)
  assert tuning.plan.xla.options
  # Without each option alone, and all of the plan.
  *_, of_plan, after = expected
  assert of_plan > len(tuning.plan.xla.options)
  assert after == 0


# A real step: FSDP over a scanned stack of layers.

_NUM_LAYERS = 6


@pytest.fixture(scope="module")
def fsdp_target() -> target_lib.Target:
  if registry.plugin_path() is None:
    pytest.skip("JAX's CUDA plugin is not installed (extra aot)")
  devices = devices_lib.devices(H100)
  mesh = jax.sharding.Mesh(devices, ("fsdp",))
  along = functools.partial(jax.sharding.NamedSharding, mesh)
  spec = jax.sharding.PartitionSpec

  @functools.partial(
    jax.jit, donate_argnums=0, out_shardings=along(spec(None, "fsdp"))
  )
  def step(weights: jax.Array, batch: jax.Array) -> jax.Array:
    def loss(weights: jax.Array) -> jax.Array:
      def layer(x: jax.Array, w: jax.Array) -> tuple[jax.Array, None]:
        w = jax.lax.with_sharding_constraint(w, along(spec()))
        return jnp.tanh(x @ w), None

      return jnp.sum(jax.lax.scan(layer, batch, weights)[0] ** 2)

    return weights - 0.1 * jax.grad(loss)(weights)

  size = 4096
  weights = jax.ShapeDtypeStruct(
    (_NUM_LAYERS, size, size), jnp.bfloat16, sharding=along(spec(None, "fsdp"))
  )
  batch = jax.ShapeDtypeStruct(
    (8 * size, size), jnp.bfloat16, sharding=along(spec("fsdp"))
  )
  target = target_lib.of_step(
    step.lower(weights, batch), H100, name="fsdp step"
  )
  return fake_target.schedule_only(target)


def test_a_real_step_gathers_every_layer(fsdp_target):
  step = tuner.inspect(fsdp_target)
  gathers = [c for c in step.analysis.collectives if c.kind == "all-gather"]
  moved = sum(c.executions * c.result_bytes for c in gathers)
  assert moved >= _NUM_LAYERS * 4096 * 4096 * 2
  assert step.keys


def test_a_real_step_is_accounted_for_to_the_microsecond(fsdp_target):
  step = tuner.inspect(fsdp_target)
  whole = step.timeline(step.default)
  assert whole.step_time_us == pytest.approx(
    whole.kernel_us
    + whole.total_slowdown_us
    + whole.total_exposed_us
    + whole.total_copy_slowdown_us  # JAX 0.12 moves slices asynchronously.
    + whole.total_copy_wait_us
  )
  assert whole.kernel_us == pytest.approx(
    sum(
      kernel.executions * step.kernel_cost(kernel).time_us
      for kernel in step.analysis.kernels.values()
    )
  )
  assert whole.collective_us == pytest.approx(
    sum(
      step.predict(key, step.default[key]).time_us * executions
      for key, executions in step.executions.items()
    )
  )
  # In a profile collectives take what they take beside the kernels.
  profiles = [
    problem_lib.profile(step, problem, step.default)
    for problem in problem_lib.problems(step)
  ]
  assert sum(p.communication_us for p in profiles) == pytest.approx(
    whole.collective_us + whole.total_delay_us
  )


@pytest.fixture(scope="module")
def fsdp_tuning(fsdp_target: target_lib.Target) -> tuning_lib.Tuning:
  """With the cost model taken to be right, so that settings are chosen."""
  with mock.patch.object(uncertainty, "scenarios", return_value=()):
    return tuner.tune(fsdp_target)


def test_a_plan_has_the_calls_that_nccl_makes_of_a_real_step(fsdp_tuning):
  assert fsdp_tuning.plan.nccl_settings
  for entry in fsdp_tuning.plan.nccl_settings:
    (call,) = entry.calls
    assert call.num_arrays == 1
    assert call.num_bytes == entry.key.num_bytes
    # A layer's weights, gathered in bf16, or several layers' together.
    assert call.num_bytes % (2 * 4096 * 4096) == 0
