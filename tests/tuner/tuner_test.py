# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""From a target to a plan that compiles, fits and takes effect."""

from __future__ import annotations

from collections.abc import Callable
import functools

import pytest

import fake_target
import hlo_text
from lagom_xla import cluster as cluster_lib
from lagom_xla import errors
from lagom_xla import plan as plan_lib
from lagom_xla.compile import config as config_lib
from lagom_xla.compile import lowered
from lagom_xla.compile import target as target_lib
from lagom_xla.passes import hlo
from lagom_xla.search.xla import candidates
from lagom_xla.search.xla import knobs
from lagom_xla.tuner import tuner

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


def test_a_plan_has_its_module_cluster_and_the_times_of_each_part():
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


def test_trials_are_counted_over_all_scheduled_candidates():
  tuning = tuner.tune(_target(None))
  assert tuning.kept is not tuning.search.default
  assert tuning.num_trials > tuning.search.default.num_trials > 0


@pytest.mark.parametrize("fully", [_TOGETHER, _APART])
def test_options_are_judged_by_the_fully_compiled_module(fully):
  def compile_fully(config: config_lib.XlaConfig) -> lowered.Compilation:
    module = fully if config.options else _APART
    return lowered.Compilation(module=module, compiled=None, peak_bytes=_GIB)

  tuning = tuner.tune(_target(compile_fully))
  told = [e.evidence for e in tuning.effects if e.knob == _GATHER]
  assert len(told) == len(tuning.plan.xla.options) == (fully is _TOGETHER)
  assert all(t.startswith("8 all-gathers became 1") for t in told)


@pytest.mark.parametrize(
  ("default_bytes", "tuned_bytes", "is_kept"),
  [
    # JAX takes 59.3 GiB of a GPU.
    (50 * _GIB, 59 * _GIB, True),
    (50 * _GIB, 60 * _GIB, False),
    # The default does not fit, either, and the plan needs less.
    (75 * _GIB, 70 * _GIB, True),
    (70 * _GIB, 75 * _GIB, False),
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


def test_a_gpu_without_full_compiles_is_tuned_by_its_schedule():
  def compile_fully(config: config_lib.XlaConfig) -> lowered.Compilation:
    raise AssertionError("There is no compiler for it.")

  v100 = cluster_lib.parse("1x8xv100")
  tuning = tuner.tune(_target(compile_fully, v100))
  assert tuning.compiled is None
  assert tuning.peak_bytes_after is None
  assert tuning.plan.xla.options
  assert tuning.effects[0].acted


def test_expected_compiles_end_with_the_compiles_of_the_plan():
  expected: list[tuple[float, int]] = []
  tuning = tuner.tune(
    _target(None), expect=lambda left, full: expected.append((left, full))
  )
  assert tuning.plan.xla.options
  # The default, the plan without each single option, and the whole plan.
  (_, of_all), *_, of_plan, after = expected
  assert of_all == 1  # No plan is known yet.
  assert of_plan[0] >= len(tuning.plan.xla.options) and of_plan[1] == 1
  assert after == (0, 0)


def test_an_in_process_search_expects_no_compiles_before_its_end():
  expected: list[tuple[float, int]] = []
  tuner.tune(
    _target(None),
    in_process=True,
    expect=lambda left, full: expected.append((left, full)),
  )
  assert len(expected) == 2 and expected[-1] == (0, 0)


def test_the_parts_of_a_real_step_add_up_to_its_time(fsdp_scan):
  step = tuner.inspect(target_lib.of_module(fsdp_scan, H100, name="scan"))
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
