# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""A cap on all channels is the highest of the best."""

from __future__ import annotations

import dataclasses

import gather_steps
from gather_steps import MIB
from gather_steps import ONE_WAVE
from lagom_xla.search.nccl import channel_cap


def test_a_cap_is_the_highest_of_the_best():
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


def test_there_is_no_cap_where_none_helps():
  step = gather_steps.step(gather_steps.module([64 * MIB], kernels_us=3.0))
  cap = channel_cap.best(step)
  assert cap.max_channels is None
  assert cap.configuration == step.default


def test_there_is_no_cap_without_collectives():
  assert (
    channel_cap.best(gather_steps.step(gather_steps.module())).max_channels
    is None
  )
