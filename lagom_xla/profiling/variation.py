# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Variation from step to step: by how much what was measured may be wrong.

A measured cost is the median of a run's. Another step takes more or less:
clocks, neighbours on the network, the data. What all kernels of a step took
over the sum of their medians is one figure, so what is common to a step counts
whole, and what differs from kernel to kernel cancels as it does in a step. Of n
such figures, in logarithms with mean m and deviation s, the next one is within

    m +- t s sqrt(1 + 1/n)

9 times in 10, t being the 95th percentile of Student's distribution with n - 1
degrees of freedom. A range here holds 1, the median itself, too.
"""

from __future__ import annotations

import collections
from collections.abc import Mapping, Sequence
import math
import statistics

from scipy import special

from lagom_xla.costs import measured as measured_lib
from lagom_xla.profiling import events as events_lib
from lagom_xla.profiling import profile as profile_lib


def factors(ratios: Sequence[float]) -> measured_lib.Factors | None:
  """What the next figure is within 9 times in 10, the larger end first.

  Args:
    ratios: measured figures over what stands for all of them, above 0.

  Returns:
    None if there are fewer than two.
  """
  if len(ratios) < 2:
    return None
  logarithms = [math.log(ratio) for ratio in ratios]
  mean = statistics.fmean(logarithms)
  t = float(special.stdtrit(len(ratios) - 1, 0.95))
  away = t * statistics.stdev(logarithms) * math.sqrt(1 + 1 / len(ratios))
  return math.exp(max(mean + away, 0.0)), math.exp(min(mean - away, 0.0))


def of_kernels(profile: profile_lib.Profile) -> measured_lib.Factors | None:
  """Lone kernels of a device's step, over what they cost by the profile.

  But for scatters: how long one takes depends on its indices, and differs from
  rank to rank by more than all other kernels do (benchmarks/steps/times.py).
  """
  median_us = {
    name: us
    for name, us in profile.kernel_us.items()
    if profile.kernels[name].scatter is None
  }
  ratios = []
  for step in profile.steps:
    runs = events_lib.kernel_runs(step.kernels, step.collectives)
    lone = [run for run in runs if run.is_lone and run.name in median_us]
    expected_us = sum(median_us[run.name] for run in lone)
    if expected_us:
      ratios.append(sum(run.time_us for run in lone) / expected_us)
  return factors(ratios)


def of_collectives(profile: profile_lib.Profile) -> measured_lib.Factors | None:
  """Collectives of a step without waits for ranks, over their medians.

  None also where ranks are missing, whose waits nobody can take off.
  """
  if not all(instance.has_all_ranks for instance in profile.instances):
    return None
  took_us: Mapping[int, list[float]] = collections.defaultdict(list)
  expected_us: Mapping[int, list[float]] = collections.defaultdict(list)
  for instance in profile.instances:
    took_us[instance.step].append(instance.own_us)
    expected_us[instance.step].append(profile.own_us[instance.name])
  return factors(
    [
      sum(us) / sum(expected_us[step])
      for step, us in took_us.items()
      if sum(us) and sum(expected_us[step])
    ]
  )


def of_steps(
  profile: profile_lib.Profile, replayed_us: float
) -> measured_lib.Factors | None:
  """Whole steps of all devices, over a replay of the step."""
  if not replayed_us:
    return None
  return factors(
    [
      (step.end_us - step.begin_us) / replayed_us
      for step in profile.whole_steps
    ]
  )
