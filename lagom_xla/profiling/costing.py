# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Costs of a profile: measurements, and how they compare with predictions.

    costed = costing.of_profile(profile, cluster)
    with measured.pricing(costed.measured):
      ...

Parts that the trace lacks keep their predictions, scaled by measurements of
their kind.

*Variation* between steps gives the error of these costs. Each step gives one
ratio: the time of all its kernels over the sum of their medians. So common
changes count in full, and independent ones cancel as in a step. Given n ratios
whose logarithms have mean m and standard deviation s, the logarithm of the next
is in m +- t s sqrt(1 + 1/n) with probability 0.9. Here t is the 95th percentile
of Student's distribution with n - 1 degrees of freedom. All ranges include 1,
the median itself.

*Collectives* that overlapped kernels took longer. A replay slows them down
again, so their predicted loss is subtracted.

*Slowdowns* correct the contention model. Its loss of kernels of equal work,
beside collectives of one tuning key, is multiplied by

    (n r + n_0) / (n + n_0)    with n_0 = 2

where n is the number of such kernel runs and r their total loss over the
model's. So few runs count little. A pair that was not traced keeps the model's
loss: the loss of one kernel predicts neither that of another kernel, nor its
own beside other collectives (`python -m benchmarks.steps.corrected`).
"""

from __future__ import annotations

import bisect
import collections
from collections.abc import Iterable, Iterator, Mapping, Sequence
import dataclasses
import functools
import math
import statistics

from scipy import special

from lagom_xla import cluster as cluster_lib
from lagom_xla import errors
from lagom_xla.costs import collective as collective_lib
from lagom_xla.costs import contention
from lagom_xla.costs import measured as measured_lib
from lagom_xla.costs import routes
from lagom_xla.costs import step as step_lib
from lagom_xla.costs import xla_kernels
from lagom_xla.profiling import events as events_lib
from lagom_xla.profiling import profile as profile_lib


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Ratio:
  """Ratios of measured to predicted time, for one kind.

  Attributes:
    kind: the kind of kernel or collective.
    n: number of these in the module that were measured.
    measured_us: their measured lone time per step.
    predicted_us: their predicted lone time per step.
    low: the smallest ratio of measured to predicted time.
    median: the median ratio.
    high: the largest ratio.
  """

  kind: str
  n: int
  measured_us: float
  predicted_us: float
  low: float
  median: float
  high: float


def _ratios(
  pairs: Iterable[tuple[str, int, float, float]],
) -> Iterator[Ratio]:
  """Ratios of measured to predicted time, by kind.

  Each of `pairs` has the kind of a kernel or collective, its runs per step, and
  the measured and predicted time of one run.
  """
  by_kind = collections.defaultdict(list)
  for kind, num, *times_us in pairs:
    if all(times_us):
      by_kind[kind].append([us * num for us in times_us])
  for kind, alike in sorted(by_kind.items()):
    ratios = [measured_us / predicted_us for measured_us, predicted_us in alike]
    yield Ratio(
      kind=kind,
      n=len(alike),
      measured_us=sum(measured_us for measured_us, _ in alike),
      predicted_us=sum(predicted_us for _, predicted_us in alike),
      low=min(ratios),
      median=statistics.median(ratios),
      high=max(ratios),
    )


def range_of(ratios: Sequence[float]) -> measured_lib.Factors | None:
  """The range of the next ratio with probability 0.9, larger end first.

  `ratios` are measurements over their representative value. Returns None for
  fewer than two.
  """
  if len(ratios) < 2:
    return None
  logarithms = [math.log(ratio) for ratio in ratios]
  mean = statistics.fmean(logarithms)
  t = float(special.stdtrit(len(ratios) - 1, 0.95))
  away = t * statistics.stdev(logarithms) * math.sqrt(1 + 1 / len(ratios))
  return math.exp(max(mean + away, 0.0)), math.exp(min(mean - away, 0.0))


def _kernel_factors(
  profile: profile_lib.Profile,
) -> measured_lib.Factors | None:
  """The range of a device step's lone kernel time over the profile's cost.

  Excludes scatters: their times depend on their indices, and differ more
  between ranks than those of all other kernels (benchmarks/steps/times.py).
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
  return range_of(ratios)


def _collective_factors(
  profile: profile_lib.Profile,
) -> measured_lib.Factors | None:
  """The range of a step's collective time over the medians, without rank waits.

  Returns None also if ranks are missing, because their waits are unknown.
  """
  if not all(instance.has_all_ranks for instance in profile.instances):
    return None
  took_us: Mapping[int, list[float]] = collections.defaultdict(list)
  expected_us: Mapping[int, list[float]] = collections.defaultdict(list)
  for instance in profile.instances:
    took_us[instance.step].append(instance.own_us)
    expected_us[instance.step].append(profile.own_us[instance.name])
  return range_of(
    [
      sum(us) / sum(expected_us[step])
      for step, us in took_us.items()
      if sum(us) and sum(expected_us[step])
    ]
  )


def _predicted_cost(
  step: step_lib.Step, profile: profile_lib.Profile, name: str
) -> collective_lib.CollectiveCost:
  """The predicted lone cost of a collective with NCCL's own choice."""
  setting = step.default[step.key_of[name]]
  return step.cost_of(profile.collectives[name], setting)


def _lone_collective_us(
  profile: profile_lib.Profile, step: step_lib.Step
) -> dict[str, float]:
  """The median lone time of each collective, by name."""
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
  """The predicted loss of a collective to the kernels that it overlapped.

  `kernels` are those of the same step and device, by start time. None ran
  longer than `longest_us`.
  """
  cost = _predicted_cost(step, profile, run.name)
  if not run.time_us or not cost.time_us:
    return 0.0
  as_it_ran = cost.lasting(run.time_us)
  lost_us = 0.0
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


_PRIOR_RUNS = 2
# Largest factor on the model's loss; more is noise.
_MOST = 4.0


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Met:
  """A kernel run beside a collective: measured, lone and predicted time."""

  time_us: float
  lone_us: float
  predicted_us: float


def predicted_beside_us(lone_us: float, share: float, slowdown: float) -> float:
  """The time of a kernel that a collective overlaps for part of it.

  `share` is that part of its time, 0 to 1. `slowdown` is its time over its lone
  time if the collective overlaps all of it.
  """
  return lone_us / (1 - share * (1 - 1 / slowdown))


def slowdown_factor(met: Sequence[Met]) -> float:
  """The factor on the model's loss of these kernel runs."""
  lost_us = sum(m.time_us - m.lone_us for m in met)
  model_us = sum(m.predicted_us - m.lone_us for m in met)
  if model_us <= 0:
    return 1.0
  ratio = min(max(lost_us / model_us, 0.0), _MOST)
  return (len(met) * ratio + _PRIOR_RUNS) / (len(met) + _PRIOR_RUNS)


def _slowdown_factors(
  profile: profile_lib.Profile, step: step_lib.Step
) -> Mapping[measured_lib.Pair, float]:
  """The factors of all pairs whose loss the trace shows.

  `step` must be priced by the measured lone costs.
  """
  took_us: dict[str, list[float]] = collections.defaultdict(list)
  for device_step in profile.steps:
    for event in device_step.collectives:
      took_us[event.name].append(event.time_us)

  @functools.cache
  def slowdown(kernel_name: str, collective_name: str) -> float:
    found = step.kernel_cost(profile.kernels[kernel_name])
    kernel = dataclasses.replace(found, time_us=found.run_us, gap_us=0.0)
    cost = _predicted_cost(step, profile, collective_name)
    # A wait for ranks draws no bandwidth, so the bytes are spread over its
    # whole time.
    as_it_ran = cost.lasting(statistics.median(took_us[collective_name]))
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
        predicted_us=predicted_beside_us(
          lone_us, run.share, slowdown(run.name, run.collective)
        ),
      )
    )
  return {pair: slowdown_factor(of_pair) for pair, of_pair in met.items()}


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Costing:
  """The costs of a profile.

  Attributes:
    measured: the costs, for steps.
    ratios: by kind of kernel, then by kind of collective.
    never_alone: kernels that ran only beside collectives, like all kernels of
      equal work. Their costs are predictions, scaled like their kind.
    not_run: kernels and collectives of the module that the trace lacks.
    has_waits: collectives whose times may include waits for ranks that the
      trace lacks.
  """

  measured: measured_lib.Measured
  ratios: tuple[Ratio, ...]
  never_alone: tuple[str, ...]
  not_run: tuple[str, ...]
  has_waits: tuple[str, ...]


def of_profile(
  profile: profile_lib.Profile,
  cluster: cluster_lib.Cluster,
  *,
  max_channels: int | None = None,
  switches: xla_kernels.Switches = xla_kernels.AS_BY_DEFAULT,
  asked: routes.Asked = routes.NOTHING,
) -> Costing:
  """The costs of a profile.

  Args:
    profile: the profile of a run.
    cluster: the cluster of the run.
    max_channels: XLA's cap on channels in the run; None for none.
    switches: which of XLA's own kernels could run.
    asked: other effects of XLA's options on the process.

  Raises:
    TraceError: the run was on CPUs.
  """
  if profile.trace.platform != "GPU":
    raise errors.TraceError(
      f"The trace is of {profile.trace.platform}s, not of {cluster.name}: trace"
      " the step on its GPUs. `lagom-xla profile` shows what the trace has."
    )
  with measured_lib.pricing(None):
    step = step_lib.Step(
      profile.analysis,
      cluster,
      max_channels=max_channels,
      switches=switches,
      asked=asked,
    )
  collective_us = _lone_collective_us(profile, step)
  kernels, collectives = profile.kernels, profile.collectives
  of_kernels = tuple(
    _ratios(
      (
        kernels[name].category,
        kernels[name].executions,
        us,
        step.kernel_cost(kernels[name]).run_us,
      )
      for name, us in profile.kernel_us.items()
    )
  )
  of_collectives = _ratios(
    (
      collectives[name].kind,
      collectives[name].executions,
      us,
      _predicted_cost(step, profile, name).time_us,
    )
    for name, us in collective_us.items()
  )
  ran = {event.name for s in profile.steps for event in s.kernels}
  return Costing(
    measured=_measured(profile, step, collective_us, of_kernels),
    ratios=(*of_kernels, *of_collectives),
    never_alone=tuple(
      name
      for name, kernel in profile.kernels.items()
      if name in ran and measured_lib.work_of(kernel) not in profile.work_us
    ),
    not_run=(
      *(name for name in profile.kernels if name not in ran),
      *(name for name in profile.collectives if name not in collective_us),
    ),
    has_waits=tuple(
      sorted({i.name for i in profile.instances if not i.has_all_ranks})
    ),
  )


def _measured(
  profile: profile_lib.Profile,
  step: step_lib.Step,
  collective_us: Mapping[str, float],
  of_kernels: Sequence[Ratio],
) -> measured_lib.Measured:
  """Measured costs: lone costs, then losses, then whole steps.

  Losses are relative to lone costs, and whole steps to both.
  """
  by_key = collections.defaultdict(list)
  for name, us in collective_us.items():
    predicted_us = _predicted_cost(step, profile, name).time_us
    if us > 0 and predicted_us:
      by_key[step.key_of[name]].append(us / predicted_us)
  keys = {key: statistics.median(ratios) for key, ratios in by_key.items()}
  reaches = collections.defaultdict(list)
  for key, ratio in keys.items():
    if key not in step.untuned:  # Untuned ones do not run in NCCL's kernels.
      reaches[key.kind, key.num_nodes > 1].append(ratio)
  alone = measured_lib.Measured(
    kernel_us=profile.kernel_us,
    work_of={
      name: measured_lib.work_of(profile.kernels[name])
      for name in profile.kernel_us
    },
    work_us=profile.work_us,
    categories={ratio.kind: ratio.median for ratio in of_kernels},
    gap_us=profile.gap_us,
    routed=frozenset(step.routes),
    keys=keys,
    reaches={reach: statistics.median(own) for reach, own in reaches.items()},
    run=measured_lib.Run(
      name=profile.trace.processes[0].name,
      began_ns=profile.trace.begin_ns,
      num_steps=len(profile.whole_steps),
      num_devices=len(profile.trace.devices),
    ),
    kernel_factors=_kernel_factors(profile),
    collective_factors=_collective_factors(profile),
  )
  losses = _slowdown_factors(profile, dataclasses.replace(step, measured=alone))
  together = dataclasses.replace(alone, losses=losses)
  priced = dataclasses.replace(step, measured=together)
  replayed_us = priced.timeline(priced.default).step_time_us
  whole_us = [s.end_us - s.begin_us for s in profile.whole_steps]
  factors = range_of([us / replayed_us for us in whole_us if replayed_us])
  return dataclasses.replace(together, step_factors=factors)


def num_priced(costed: Costing, step: step_lib.Step) -> tuple[int, int, int]:
  """The numbers of a step's kernels priced by name, by work, and by kind."""
  measured, kernels = costed.measured, step.analysis.kernels.values()
  by_name = by_work = 0
  for kernel in kernels:
    work = measured_lib.work_of(kernel)
    if measured.work_of.get(kernel.name) == work:
      by_name += 1
    elif work in measured.work_us:
      by_work += 1
  return by_name, by_work, len(kernels) - by_name - by_work
