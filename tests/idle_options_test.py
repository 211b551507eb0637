# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Options without which a schedule is the same are not in its plan."""

from __future__ import annotations

import fake_target
import hlo_text
from lagom_xla import cluster as cluster_lib
from lagom_xla import tuner
from lagom_xla.compile import config as config_lib
from lagom_xla.passes import hlo
from lagom_xla.verify import effects as effects_lib
from lagom_xla.verify import idle_options
from lagom_xla.verify import verification

_ACTING = "xla_gpu_enable_while_loop_double_buffering"
_LAUNCHES = "xla_gpu_enable_command_buffer"
_H100S = cluster_lib.parse("1x8xh100")


def _step(num_kernels: int) -> hlo.Module:
  start, done = hlo_text.all_gather("all-gather", 256 * 2**10)
  kernels = [hlo_text.kernel(f"k{i}", 1000.0) for i in range(num_kernels)]
  lines = "\n".join(["p = f32[256,256] parameter(0)", start, done, *kernels])
  return hlo_text.load(f"{lines}\nROOT end = () tuple()")


def _schedule(config: config_lib.XlaConfig) -> hlo.Module:
  """Shorter with both of two options that each published recipe has."""
  return _step(1 if {_ACTING, _LAUNCHES} <= config.options.keys() else 4)


def test_a_plan_from_a_recipe_has_only_what_acts_and_is_verified() -> None:
  target = fake_target.FakeTarget(
    name="step", cluster=_H100S, scheduled=_schedule
  )
  tuning = tuner.tune(target)
  assert len(tuning.kept.config.options) > 3
  kept = set(tuning.plan.xla.options)
  # The third is about what comes after the schedule.
  assert kept - {"xla_disable_hlo_passes"} == {_ACTING, _LAUNCHES}
  assert kept == {effect.knob for effect in tuning.effects}
  assert verification.verify(tuning.plan, target).all_acted


def test_options_that_stand_in_for_each_other_all_stay() -> None:
  plan = tuner.tune(
    fake_target.FakeTarget(name="step", cluster=_H100S, scheduled=_schedule)
  ).plan
  either = fake_target.FakeTarget(
    name="step",
    cluster=_H100S,
    scheduled=lambda config: _step(1 if config.options else 4),
  )
  alone = [
    effects_lib.Effect(knob=name, value="", acted=False, evidence="")
    for name in plan.xla.options
  ]
  assert idle_options.left_out(plan, either, alone) == plan
