# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Times of collectives alone, from a trace in which they ran beside kernels.

A collective that ran beside kernels took longer for that. A replay slows it by
kernels again, so what it is predicted to have lost there is taken off first.
"""

from __future__ import annotations

import bisect
import collections
from collections.abc import Sequence
import dataclasses
import statistics

from lagom_xla.costs import collective as collective_lib
from lagom_xla.costs import contention
from lagom_xla.costs import step as step_lib
from lagom_xla.profiling import events as events_lib
from lagom_xla.profiling import profile as profile_lib


def predicted(step: step_lib.Step, name: str) -> collective_lib.CollectiveCost:
  """What a collective is predicted to take alone, as NCCL runs it by itself."""
  key = step.key_of[name]
  return step.predict(key, step.default[key])


def times_us(
  profile: profile_lib.Profile, step: step_lib.Step
) -> dict[str, float]:
  """Median time of each collective alone, by name."""
  kernels = {(s.device, s.number): s.kernels for s in profile.steps}
  longest_us = max(k.time_us for s in profile.steps for k in s.kernels)
  times = collections.defaultdict(list)
  for instance in profile.instances:
    device = min(instance.runs, key=lambda d: instance.runs[d].time_us)
    run = instance.runs[device]
    beside = kernels.get((device, instance.step), ())
    lost_us = _lost_us(profile, step, run, beside, longest_us)
    times[instance.name].append(run.time_us - lost_us)
  return {name: statistics.median(us) for name, us in times.items()}


def _lost_us(
  profile: profile_lib.Profile,
  step: step_lib.Step,
  run: events_lib.Event,
  kernels: Sequence[events_lib.Event],
  longest_us: float,
) -> float:
  """What a collective is predicted to have lost to kernels.

  Args:
    profile: of the run.
    step: with predicted costs.
    run: the collective as it ran.
    kernels: of the same step and device, by their start.
    longest_us: that any of them ran.
  """
  cost = predicted(step, run.name)
  if not run.time_us or not cost.time_us:
    return 0.0
  as_it_ran = dataclasses.replace(
    cost,
    time_us=run.time_us,
    memory_gbps=cost.memory_gbps * cost.time_us / run.time_us,
  )
  lost_us = 0.0
  # Kernels are by their start.
  until = bisect.bisect_left(kernels, run.end_us, key=lambda k: k.begin_us)
  for kernel in reversed(kernels[:until]):
    if kernel.begin_us + longest_us <= run.begin_us:
      break
    if common_us := run.common_us(kernel):
      beside = contention.beside(
        step.kernel_cost(profile.kernels[kernel.name]),
        as_it_ran,
        step.cluster.gpu,
      )
      lost_us += common_us * (1 - 1 / beside.collective_factor)
  return lost_us
