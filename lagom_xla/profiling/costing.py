# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Costs of a profile: what it measured, beside what is predicted for that.

    costed = costing.of_profile(profile, cluster)
    with measured.pricing(costed.measured):
      ...

What the trace lacks keeps its prediction, scaled by what the trace shows.
"""

from __future__ import annotations

import collections
from collections.abc import Iterator, Mapping, Sequence
import dataclasses
import statistics

from lagom_xla import cluster as cluster_lib
from lagom_xla import errors
from lagom_xla.costs import collective as collective_lib
from lagom_xla.costs import measured as measured_lib
from lagom_xla.costs import step as step_lib
from lagom_xla.profiling import lone_collectives
from lagom_xla.profiling import profile as profile_lib
from lagom_xla.profiling import ratios as ratios_lib
from lagom_xla.profiling import slowdowns
from lagom_xla.profiling import variation


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Costing:
  """What a profile says of costs.

  Attributes:
    measured: what steps are priced by.
    ratios: by kind of kernel, then of collective.
    never_alone: kernels that ran beside collectives only, and none of equal
      work ran alone: they are predicted, and scaled as their kind.
    not_run: kernels and collectives of the module that the trace lacks.
    has_waits: collectives whose times may have waits for ranks that the trace
      lacks.
  """

  measured: measured_lib.Measured
  ratios: tuple[ratios_lib.Ratio, ...]
  never_alone: tuple[str, ...]
  not_run: tuple[str, ...]
  has_waits: tuple[str, ...]


def of_profile(
  profile: profile_lib.Profile,
  cluster: cluster_lib.Cluster,
  *,
  max_channels: int | None = None,
) -> Costing:
  """The costs of a profile.

  Args:
    profile: of a run.
    cluster: that it ran on.
    max_channels: the cap on channels that XLA gave NCCL there; None for none.

  Raises:
    TraceError: the run was on CPUs.
  """
  if profile.trace.platform != "GPU":
    raise errors.TraceError(
      f"The trace is of {profile.trace.platform}s, which says nothing of"
      f" {cluster.name}: trace the step on its GPUs. `lagom-xla profile` shows"
      " what it has."
    )
  with measured_lib.pricing(None):
    step = step_lib.Step(profile.analysis, cluster, max_channels=max_channels)
  collective_us = lone_collectives.times_us(profile, step)
  of_kernels = tuple(ratios_lib.of_pairs(_kernel_pairs(profile, step)))
  of_collectives = ratios_lib.of_pairs(
    _collective_pairs(profile, step, collective_us)
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
  of_kernels: Sequence[ratios_lib.Ratio],
) -> measured_lib.Measured:
  """What steps are priced by: lone costs, then losses, then whole steps.

  Losses are judged under the lone costs, and whole steps under both.
  """
  keys = _by_key(step, collective_us)
  alone = measured_lib.Measured(
    kernel_us=profile.kernel_us,
    work_of={
      name: measured_lib.work_of(profile.kernels[name])
      for name in profile.kernel_us
    },
    work_us=profile.work_us,
    categories={ratio.kind: ratio.median for ratio in of_kernels},
    gap_us=profile.gap_us,
    keys=keys,
    reaches=_by_reach(keys),
    run=measured_lib.Run(
      name=profile.trace.processes[0].name,
      began_ns=profile.trace.begin_ns,
      num_steps=len(profile.whole_steps),
      num_devices=len(profile.trace.devices),
    ),
    kernel_factors=variation.of_kernels(profile),
    collective_factors=variation.of_collectives(profile),
  )
  losses = slowdowns.of_profile(
    profile, dataclasses.replace(step, measured=alone)
  )
  together = dataclasses.replace(alone, losses=losses)
  priced = dataclasses.replace(step, measured=together)
  replayed_us = priced.timeline(priced.default).step_time_us
  return dataclasses.replace(
    together, step_factors=variation.of_steps(profile, replayed_us)
  )


def _kernel_pairs(
  profile: profile_lib.Profile, step: step_lib.Step
) -> Iterator[ratios_lib.Pair]:
  for name, us in profile.kernel_us.items():
    kernel = profile.kernels[name]
    yield ratios_lib.Pair(
      kind=kernel.category,
      measured_us=us * kernel.executions,
      predicted_us=step.kernel_cost(kernel).run_us * kernel.executions,
    )


def _collective_pairs(
  profile: profile_lib.Profile,
  step: step_lib.Step,
  collective_us: Mapping[str, float],
) -> Iterator[ratios_lib.Pair]:
  for name, us in collective_us.items():
    collective = profile.collectives[name]
    yield ratios_lib.Pair(
      kind=collective.kind,
      measured_us=us * collective.executions,
      predicted_us=lone_collectives.predicted(step, name).time_us
      * collective.executions,
    )


def num_priced(costed: Costing, step: step_lib.Step) -> tuple[int, int, int]:
  """How many kernels of a step are priced by name, by work, by their kind."""
  measured, kernels = costed.measured, step.analysis.kernels.values()
  by_name = by_work = 0
  for kernel in kernels:
    work = measured_lib.work_of(kernel)
    if measured.work_of.get(kernel.name) == work:
      by_name += 1
    elif work in measured.work_us:
      by_work += 1
  return by_name, by_work, len(kernels) - by_name - by_work


def _by_key(
  step: step_lib.Step, collective_us: Mapping[str, float]
) -> dict[collective_lib.TuningKey, float]:
  """Measured over predicted time, by tuning key."""
  found = collections.defaultdict(list)
  for name, us in collective_us.items():
    predicted_us = lone_collectives.predicted(step, name).time_us
    if us > 0 and predicted_us:
      found[step.key_of[name]].append(us / predicted_us)
  return {key: statistics.median(ratios) for key, ratios in found.items()}


def _by_reach(
  keys: Mapping[collective_lib.TuningKey, float],
) -> dict[measured_lib.Reach, float]:
  """The median of that of all keys of a kind and reach."""
  found = collections.defaultdict(list)
  for key, ratio in keys.items():
    found[key.kind, key.num_nodes > 1].append(ratio)
  return {reach: statistics.median(ratios) for reach, ratios in found.items()}
