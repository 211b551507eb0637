# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Slowdowns as they were measured, over what the contention model says.

Kernels of equal work beside collectives of one tuning key lost what the trace
shows. The model's loss of such a pair is multiplied by

    (n r + n_0) / (n + n_0)    with n_0 = 2

n being how many such kernels ran and r what they lost in all over what the
model says, so that few runs say little. A pair that was not traced keeps the
model's loss: what one kernel loses foretells nothing of another kernel, nor of
the same one beside other collectives (`python -m benchmarks.steps.corrected`).
"""

from __future__ import annotations

import collections
from collections.abc import Mapping, Sequence
import dataclasses
import functools
import statistics

from lagom_xla.costs import contention
from lagom_xla.costs import measured as measured_lib
from lagom_xla.costs import step as step_lib
from lagom_xla.profiling import profile as profile_lib

_PRIOR_RUNS = 2
# What is a hundredth of the model's loss is noise, and so is a hundred times.
_MOST = 4.0


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Met:
  """A kernel that met a collective.

  Attributes:
    time_us: that it took.
    lone_us: that its work takes alone.
    predicted_us: what the model says that it took there.
  """

  time_us: float
  lone_us: float
  predicted_us: float


def predicted_us(lone_us: float, share: float, slowdown: float) -> float:
  """Time of a kernel that a collective runs beside for a share of it.

  Args:
    lone_us: alone.
    share: of its time, 0 to 1.
    slowdown: from start to end beside the collective, over its lone time.
  """
  return lone_us / (1 - share * (1 - 1 / slowdown))


def factor(met: Sequence[Met]) -> float:
  """What the model's loss of these is multiplied by."""
  lost_us = sum(m.time_us - m.lone_us for m in met)
  model_us = sum(m.predicted_us - m.lone_us for m in met)
  if model_us <= 0:
    return 1.0
  ratio = min(max(lost_us / model_us, 0.0), _MOST)
  return (len(met) * ratio + _PRIOR_RUNS) / (len(met) + _PRIOR_RUNS)


def of_profile(
  profile: profile_lib.Profile, step: step_lib.Step
) -> Mapping[measured_lib.Pair, float]:
  """The factors of all pairs of which the trace shows what they lost.

  Args:
    profile: of the run.
    step: its module, priced by what it measured alone.
  """
  took_us: dict[str, list[float]] = collections.defaultdict(list)
  for device_step in profile.steps:
    for event in device_step.collectives:
      took_us[event.name].append(event.time_us)

  @functools.cache
  def slowdown(kernel_name: str, collective_name: str) -> float:
    found = step.kernel_cost(profile.kernels[kernel_name])
    kernel = dataclasses.replace(found, time_us=found.run_us, gap_us=0.0)
    key = step.key_of[collective_name]
    cost = step.predict(key, step.default[key])
    # What waits for ranks draws no bandwidth: the bytes take all of its time.
    time_us = statistics.median(took_us[collective_name])
    as_it_ran = dataclasses.replace(
      cost,
      time_us=time_us,
      memory_gbps=cost.memory_gbps * cost.time_us / time_us,
    )
    beside = contention.beside(kernel, as_it_ran, step.cluster.gpu)
    return beside.kernel_us / kernel.time_us

  met: dict[measured_lib.Pair, list[Met]] = collections.defaultdict(list)
  for run in profile.kernel_runs:
    work = measured_lib.work_of(profile.kernels[run.name])
    lone_us = profile.work_us.get(work)
    if run.is_lone or not lone_us:
      continue
    met[work, step.key_of[run.collective]].append(
      Met(
        time_us=run.time_us,
        lone_us=lone_us,
        predicted_us=predicted_us(
          lone_us, run.share, slowdown(run.name, run.collective)
        ),
      )
    )
  return {pair: factor(of_pair) for pair, of_pair in met.items()}
