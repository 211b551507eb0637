# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""A cap on all channels is the highest of the fastest, or surest, caps."""

from __future__ import annotations

import dataclasses

import pytest

import gather_steps
from gather_steps import MIB
from gather_steps import ONE_WAVE
from lagom_xla import cluster as cluster_lib
from lagom_xla.costs import step as step_lib
from lagom_xla.costs import uncertainty
from lagom_xla.passes import hlo
from lagom_xla.search.nccl import channel_cap


def test_the_best_cap_is_the_highest_of_the_fastest_caps():
  step = gather_steps.step(
    gather_steps.module([16 * MIB], kernels_us=400.0, size=ONE_WAVE)
  )
  cap = channel_cap.best(step)
  ((key, default),) = step.default.items()
  times_us = {}
  for max_channels in range(1, default.num_channels + 1):
    setting = dataclasses.replace(default, num_channels=max_channels)
    times_us[max_channels] = step.timeline({key: setting}).step_time_us
  least_us = min(times_us.values())
  assert cap.step_time_us == least_us
  assert cap.max_channels == max(
    n for n, us in times_us.items() if us == least_us
  )
  # The kernel's blocks leave 4 of 132 SMs idle.
  assert cap.max_channels is not None and cap.max_channels <= 4
  assert cap.configuration == {
    key: dataclasses.replace(default, num_channels=cap.max_channels)
  }


@pytest.mark.parametrize("gathers", [[[64 * MIB]], []])
def test_no_cap_is_set_if_none_helps(gathers: list[list[int]]):
  step = gather_steps.step(gather_steps.module(*gathers, kernels_us=3.0))
  cap = channel_cap.best(step)
  assert cap.max_channels is None
  assert cap.configuration == step.default


# Caps by their assured gain.


def _assured_us(step: step_lib.Step) -> dict[int, float]:
  """The sure part of each cap's gain."""
  default = uncertainty.times(step, step.default)
  most = max(setting.num_channels for setting in step.default.values())
  found = {}
  for max_channels in range(1, most):
    capped = channel_cap.capped(step, max_channels)
    times = uncertainty.times(step, capped)
    found[max_channels] = uncertainty.gain(default, times).low
  return found


@pytest.mark.parametrize(("mib", "kernels_us"), [(16, 300.0), (64, 1000.0)])
def test_the_surest_cap_is_the_highest_with_the_largest_assured_gain(
  mib: int, kernels_us: float
):
  module = gather_steps.module(
    [mib * MIB], kernels_us=kernels_us, size=ONE_WAVE
  )
  step = gather_steps.step(module)
  assured_us = _assured_us(step)
  most_us = max(assured_us.values())
  assert most_us > 0
  assert channel_cap.surest(step).max_channels == max(
    n for n, us in assured_us.items() if us == most_us
  )


def test_no_cap_of_a_compiled_step_has_a_larger_assured_gain(
  fsdp_unrolled: hlo.Module,
):
  step = step_lib.of_module(fsdp_unrolled, cluster_lib.parse("1x8xh100"))
  default = uncertainty.times(step, step.default)
  kept = uncertainty.times(step, channel_cap.surest(step).configuration)
  most_us = max(_assured_us(step).values())
  assert uncertainty.gain(default, kept).low == max(most_us, 0.0)
