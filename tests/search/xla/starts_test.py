# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""A search begins with published recipes, too, and is never behind one."""

from __future__ import annotations

import pytest

import arm_steps
import fake_target
import hlo_text
from lagom_xla import errors
from lagom_xla import validation
from lagom_xla.compile import config as config_lib
from lagom_xla.compile import lowered
from lagom_xla.costs import lower_bound
from lagom_xla.passes import hlo
from lagom_xla.report import results
from lagom_xla.search.xla import candidates
from lagom_xla.search.xla import joint
from lagom_xla.tuner import tuner


def test_what_is_kept_is_never_behind_an_arm():
  # No knob sets the three together, and each is a part of the gain.
  target = arm_steps.target(*arm_steps.EVERYTHING)
  found = joint.search(target)
  maxtext = found.found(found.arms[0].config)
  assert isinstance(maxtext, candidates.Candidate)
  assert found.fastest_arm is maxtext
  assert arm_steps.us(maxtext) < arm_steps.us(found.default)
  for arm in found.arms:
    other = found.found(arm.config)
    assert isinstance(other, candidates.Candidate)
    assert arm_steps.us(found.best) <= arm_steps.us(other)
    assert found.best.tuned.step_time_us <= other.tuned.step_time_us


def test_a_plan_may_beat_the_bound_of_todays_module_but_not_that_of_both():
  # Options change what the kernel takes.
  tuning = tuner.tune(arm_steps.target(*arm_steps.EVERYTHING, slow_us=400.0))
  assert tuning.timeline_after.step_time_us < lower_bound.us(tuning.before)
  assert tuning.lower_bound_us <= tuning.timeline_after.step_time_us
  predicted = validation.write(results.tuning(tuning))["predicted"]
  assert predicted["lower_bound_us"] == tuning.lower_bound_us


def test_what_is_as_fast_with_fewer_options_is_kept():
  recipe = arm_steps.arm("recipe", **{arm_steps.HEURISTIC: True, "xla_a": 1})
  found = joint.search(arm_steps.target(arm_steps.HEURISTIC), arms=[recipe])
  assert list(found.best.config.options) == [arm_steps.HEURISTIC]
  assert (
    arm_steps.us(found.best)
    == arm_steps.us(found.fastest_arm)
    < arm_steps.us(found.default)
  )


def test_options_are_searched_from_the_best_arm():
  # Only the recipe's schedule is short of memory.
  def schedule(config: config_lib.XlaConfig) -> hlo.Module:
    is_full = "xla_a" in config.options
    has_both = config.options.get(arm_steps.SLOP) == 120 and is_full
    kernels_us = 20.0 if has_both else 40.0 - 2 * is_full
    return arm_steps.step(kernels_us, is_full=is_full)

  target = fake_target.FakeTarget(
    name="step", cluster=arm_steps.H100, scheduled=schedule
  )
  alone = joint.search(target, arms=())
  assert alone.best is alone.default
  found = joint.search(target, arms=[arm_steps.arm("recipe", xla_a=1)])
  assert found.best.config.options == {"xla_a": 1, arm_steps.SLOP: 120}


def test_options_are_searched_from_the_default_where_an_arm_is_faster():
  # The recipe keeps the option from gaining.
  def schedule(config: config_lib.XlaConfig) -> hlo.Module:
    is_recipe = "xla_a" in config.options
    gains = config.options.get(arm_steps.SLOP) == 120 and not is_recipe
    return arm_steps.step(200.0 - 3 * is_recipe - 5 * gains, is_full=True)

  target = fake_target.FakeTarget(
    name="step", cluster=arm_steps.H100, scheduled=schedule
  )
  found = joint.search(target, arms=[arm_steps.arm("recipe", xla_a=1)])
  assert arm_steps.us(found.fastest_arm) < arm_steps.us(found.default)
  assert found.best.config.options == {arm_steps.SLOP: 120}


@pytest.mark.parametrize(
  ("behind_us", "is_start"),
  [(1.0, True), (10.0, False), (0.2, False)],
  ids=["as fast", "slower", "the same kernels"],
)
def test_options_are_searched_from_arms_as_fast_with_other_kernels(
  behind_us: float, is_start: bool
):
  # More memory helps the second arm only.
  def schedule(config: config_lib.XlaConfig) -> hlo.Module:
    is_second = "xla_b" in config.options
    is_arm = "xla_a" in config.options or is_second
    gains = config.options.get(arm_steps.SLOP) == 120 and is_second
    kernel_us = 500.0 - 100 * is_arm + behind_us * is_second - 40 * gains
    return arm_steps.step(kernel_us, is_full=True)

  found = joint.search(
    fake_target.FakeTarget(
      name="step", cluster=arm_steps.H100, scheduled=schedule
    ),
    arms=[
      arm_steps.arm("first", xla_a=1),
      arm_steps.arm("second", xla_b=1),
    ],
  )
  better = {"xla_b": 1, arm_steps.SLOP: 120}
  assert (found.best.config.options == better) == is_start
  assert bool(found.found(config_lib.XlaConfig(options=better))) == is_start


def test_a_default_whose_kernels_alone_take_longer_than_an_arm_is_no_start():
  tried: list[set[str]] = []

  def schedule(config: config_lib.XlaConfig) -> hlo.Module:
    tried.append(set(config.options))
    return arm_steps.step(200.0 - 100 * ("xla_a" in config.options))

  target = fake_target.FakeTarget(
    name="step", cluster=arm_steps.H100, scheduled=schedule
  )
  joint.search(target, arms=[arm_steps.arm("recipe", xla_a=1)])
  assert all("xla_a" in options for options in tried[1:])


def test_more_of_what_no_gpu_can_hold_is_not_compiled():
  tried: list[config_lib.XlaConfig] = []

  def takes(config: config_lib.XlaConfig) -> bool:
    return config.options.get(arm_steps.SLOP) == 120

  def schedule(config: config_lib.XlaConfig) -> hlo.Module:
    tried.append(config)
    return arm_steps.step(
      200.0 - 5 * (arm_steps.HEURISTIC in config.options), is_full=True
    )

  def compile_fully(config: config_lib.XlaConfig) -> lowered.Compilation:
    return lowered.Compilation(
      module=schedule(config),
      compiled=None,
      peak_bytes=arm_steps.H100.gpu.hbm_bytes * (2 if takes(config) else 1),
    )

  target = fake_target.FakeTarget(
    name="step",
    cluster=arm_steps.H100,
    scheduled=schedule,
    compiled=compile_fully,
  )
  found = joint.search(target, arms=())
  (refused,) = (c for c in found.others if isinstance(c, candidates.Refused))
  assert refused.is_too_large and takes(refused.config)
  assert arm_steps.HEURISTIC in found.best.config.options
  assert {tuple(c.options) for c in tried if takes(c)} == {(arm_steps.SLOP,)}


def test_what_is_slower_than_an_arm_is_not_compiled_to_the_end():
  compiled: list[set[str]] = []

  def schedule(config: config_lib.XlaConfig) -> hlo.Module:
    return arm_steps.step(200.0 - 5 * ("xla_a" in config.options), is_full=True)

  def compile_fully(config: config_lib.XlaConfig) -> lowered.Compilation:
    compiled.append(set(config.options))
    return lowered.Compilation(
      module=schedule(config), compiled=None, peak_bytes=2**30
    )

  target = fake_target.FakeTarget(
    name="step",
    cluster=arm_steps.H100,
    scheduled=schedule,
    compiled=compile_fully,
  )
  found = joint.search(target, arms=[arm_steps.arm("recipe", xla_a=1)])
  scheduled = [set(c.config.options) for c in found.scheduled]
  assert any("xla_a" not in options for options in scheduled[1:])
  assert set() in compiled
  assert all("xla_a" in options for options in compiled if options)


@pytest.mark.parametrize("gain_us", [2, 0, -2])
def test_what_nothing_foretells_is_compiled_again_unless_it_did_nothing(
  gain_us,
):
  tried: list[set[str]] = []

  def schedule(config: config_lib.XlaConfig) -> hlo.Module:
    tried.append(set(config.options))
    gained_us = gain_us * (arm_steps.HEURISTIC in config.options)
    # Less than what the all-gather exposes, so that no start is hopeless.
    return arm_steps.step(200.0 - gained_us - 3 * ("xla_a" in config.options))

  target = fake_target.FakeTarget(
    name="step", cluster=arm_steps.H100, scheduled=schedule
  )
  found = joint.search(target, arms=[arm_steps.arm("recipe", xla_a=1)])
  assert {arm_steps.HEURISTIC, "xla_a"} in tried
  assert ({arm_steps.HEURISTIC} in tried) == (gain_us != 0)
  wanted = {"xla_a", arm_steps.HEURISTIC} if gain_us > 0 else {"xla_a"}
  assert set(found.best.config.options) == wanted


def test_what_makes_other_kernels_is_compiled_from_both_starts():
  merging = "xla_gpu_dot_merger_threshold_mb"
  merged = hlo_text.concatenated_product("merged", 32 * arm_steps.KIB)

  def schedule(config: config_lib.XlaConfig) -> hlo.Module:
    # Beside the recipe's option it gains nothing, alone more than that.
    is_recipe, is_apart = "xla_a" in config.options, merging in config.options
    gain_us = 3 if is_recipe else 4 * is_apart
    return arm_steps.step(200.0 - gain_us, more=merged)

  target = fake_target.FakeTarget(
    name="step", cluster=arm_steps.H100, scheduled=schedule
  )
  found = joint.search(target, arms=[arm_steps.arm("recipe", xla_a=1)])
  tried = [set(candidate.config.options) for candidate in found.scheduled]
  assert {"xla_a", merging} in tried
  assert set(found.best.config.options) == {merging}


def test_what_makes_other_kernels_is_tried_again_beside_what_gained():
  merging = "xla_gpu_dot_merger_threshold_mb"
  early = "xla_gpu_experimental_collective_start_as_early_as_possible"
  merged = hlo_text.concatenated_product("merged", 32 * arm_steps.KIB)

  def schedule(config: config_lib.XlaConfig) -> hlo.Module:
    # Apart they cost what they gain once collectives start early.
    is_apart, is_early = merging in config.options, early in config.options
    gain_us = 3 * is_early + (2 if is_early else -2) * is_apart
    return arm_steps.step(200.0 - gain_us, more=merged)

  target = fake_target.FakeTarget(
    name="step", cluster=arm_steps.H100, scheduled=schedule
  )
  found = joint.search(target, arms=[])
  tried = [set(candidate.config.options) for candidate in found.scheduled]
  assert tried.index({merging}) < next(
    n for n, o in enumerate(tried) if early in o
  )
  assert {merging, early} <= set(found.best.config.options)


def test_an_arm_that_xla_refuses_or_no_gpu_can_hold_is_none():
  def schedule(config: config_lib.XlaConfig) -> hlo.Module:
    if "xla_refused" in config.options:
      raise errors.CompileError("no such luck")
    return arm_steps.step(100.0 if config.options else 200.0)

  target = fake_target.FakeTarget(
    name="step", cluster=arm_steps.H100, scheduled=schedule
  )
  refused, large = (
    arm_steps.arm("refused", xla_refused=1),
    arm_steps.arm("large", xla_large=1),
  )
  found = joint.search(target, arms=[refused, large])
  candidate = found.found(large.config)
  assert candidate is found.fastest_arm is not found.default
  assert isinstance(candidate, candidates.Candidate)
  assert found.refused(candidate, "too large").fastest_arm is found.default


def test_an_arm_that_the_device_does_not_hold_is_refused_before_it_is_best():
  def schedule(config: config_lib.XlaConfig) -> hlo.Module:
    is_large = "xla_large" in config.options
    return arm_steps.step(100.0 if is_large else 200.0, is_full=is_large)

  def compile_fully(config: config_lib.XlaConfig) -> lowered.Compilation:
    is_large = "xla_large" in config.options
    return lowered.Compilation(
      module=schedule(config),
      compiled=None,
      peak_bytes=arm_steps.H100.gpu.hbm_bytes * 2 if is_large else 2**30,
    )

  target = fake_target.FakeTarget(
    name="step",
    cluster=arm_steps.H100,
    scheduled=schedule,
    compiled=compile_fully,
  )
  arm = arm_steps.arm("large", xla_large=1)
  found = joint.search(target, arms=[arm])
  refused = found.found(arm.config)
  assert isinstance(refused, candidates.Refused)
  assert f"of {arm_steps.H100.gpu.hbm_bytes / 1e9:.1f} GB" in refused.reason
  assert found.best is found.fastest_arm is found.default
