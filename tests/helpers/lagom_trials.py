# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Trials of Lagom's search on made-up overlaps, recorded."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from lagom_xla.costs import collective as collective_lib
from lagom_xla.costs import nccl
from lagom_xla.search.nccl import problem as problem_lib
from lagom_xla.search.nccl import searcher as searcher_lib
from lagom_xla.search.nccl.lagom import Lagom
from searcher_trials import H100
from searcher_trials import Trial

LAGOM = Lagom()


def overlap_of(
  problem: problem_lib.Problem,
  kernels_us: float,
  *,
  time_us: Callable[[Any, nccl.Setting], float] | None = None,
  lost_us: Callable[[Any, nccl.Setting], float] = lambda key, setting: 0.0,
) -> searcher_lib.ProfileFn:
  """A hand-made overlap: max(X, Y), where Y grows by what each key takes."""
  alone_us = time_us or (
    lambda key, setting: collective_lib.predict(key, setting, H100).time_us
  )

  def profile(configuration: problem_lib.Configuration) -> problem_lib.Profile:
    key_us = {key: alone_us(key, configuration[key]) for key in problem.keys}
    communication_us = sum(key_us.values())
    slowdown_us = {
      key: lost_us(key, configuration[key]) for key in problem.keys
    }
    computation_us = kernels_us + sum(slowdown_us.values())
    return problem_lib.Profile(
      key_us=key_us,
      exposed_us={},
      slowdown_us=slowdown_us,
      overlap_us=(),
      communication_us=communication_us,
      computation_us=computation_us,
      total_us=max(communication_us, computation_us),
    )

  return profile


def loss_by_channels(
  us_per_channel: float,
) -> Callable[[Any, nccl.Setting], float]:
  return lambda key, setting: us_per_channel * setting.num_channels


def raises_of(trials: list[Trial]) -> list[Trial]:
  """The trials from that on which has all keys at their minimum."""
  at_minimum = next(
    i
    for i, trial in enumerate(trials)
    if all(s.num_channels == 1 for s in trial.asked.values())
  )
  return trials[at_minimum:]


def time_by_channels(
  times_us: Mapping[int, float],
) -> Callable[[Any, nccl.Setting], float]:
  """Times by number of channels; the last holds for all above."""
  return lambda key, setting: times_us.get(
    setting.num_channels, times_us[max(times_us)]
  )
