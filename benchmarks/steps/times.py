# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Predicted times of real steps.

*From measured parts*: replays the schedule with every kernel's lone time, the
median gap between kernels, and every collective's time as it ran, including
waits and slowdown by kernels. A collective's bytes are spread over that time,
and only the slowdown of kernels is predicted. Each step of each rank is
replayed with its own collectives and its own colliding scatters, because a rank
whose scatter ends early waits in the next collective. Medians of both would not
match.

*From another rank's parts*: uses lone times of kernels from one rank for the
steps of the others.

*From module and spec*: predicts everything except colliding scatters, whose
times depend on the data. The ids of the MaxText step are all 0, so its scatter
is predicted for that case, and compared separately. The step is compared with
the scatter, and without it and the waits in the next collective for ranks whose
scatter took longer.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
import dataclasses
import functools
import statistics

from benchmarks import groups as groups_lib
from benchmarks.steps import traced_step
from lagom_xla.costs import collective as collective_lib
from lagom_xla.costs import contention
from lagom_xla.costs import fusion
from lagom_xla.costs import kernel as kernel_lib
from lagom_xla.costs import measured as measured_lib
from lagom_xla.costs.replay import timeline
from lagom_xla.passes import kernels as kernels_lib
from lagom_xla.profiling import events as events_lib

# Times of kernels that ran alone, by name.
_LoneTimes = Mapping[str, Sequence[float]]


def groups(trace: traced_step.TracedStep) -> Iterator[groups_lib.Group]:
  """The comparisons of a step."""
  step, title = trace.step, f"{trace.name}: step time from"
  yield groups_lib.of_comparisons(
    f"{title} measured parts",
    [
      _compared("step", ran, _from_parts_us(trace, ran, trace.profile.lone_us))
      for ran in trace.steps
    ],
  )
  if len(trace.ranks) > 1:
    yield groups_lib.of_comparisons(
      f"{title} another rank's lone kernels", list(_across_ranks(trace))
    )
  scatters = trace.colliding_scatters
  rest_us = step.timeline(step.default).step_time_us - sum(
    step.kernel_cost(k).time_us * k.executions for k in scatters
  )
  worst_us = {k.name: _worst_us(trace, k) for k in scatters}
  whole_us = rest_us + sum(worst_us[k.name] * k.executions for k in scatters)
  if scatters:
    yield groups_lib.of_comparisons(
      f"{trace.name}: colliding scatters",
      [
        groups_lib.Comparison(f"{name} in us", trace.median_us[name], us)
        for name, us in worst_us.items()
      ],
    )
  compared = groups_lib.Comparison("step in us", trace.step_time_us, whole_us)
  yield groups_lib.of_comparisons(f"{title} module and spec", [compared])
  if scatters:
    measured_us = trace.step_time_less_scatters_us
    compared = groups_lib.Comparison("step in us", measured_us, rest_us)
    yield groups_lib.of_comparisons(
      f"{title} module and spec, less colliding scatters", [compared]
    )


def _compared(
  what: str, ran: Sequence[events_lib.Event], predicted_us: float
) -> groups_lib.Comparison:
  return groups_lib.Comparison(
    f"{what} in us", traced_step.span_us(ran), predicted_us
  )


def _across_ranks(
  trace: traced_step.TracedStep,
) -> Iterator[groups_lib.Comparison]:
  """Comparisons of each rank's steps, with lone times from another rank."""
  for rank in range(len(trace.ranks)):
    of_rank = [s for s in trace.profile.steps if s.device == rank]
    lone_us = dataclasses.replace(trace.profile, steps=of_rank).lone_us
    for other, steps in enumerate(trace.ranks):
      for step in steps if other != rank else ():
        predicted_us = _from_parts_us(trace, step, lone_us)
        what = f"step of rank {other}, by rank {rank},"
        yield _compared(what, step, predicted_us)


def _worst_us(
  trace: traced_step.TracedStep, kernel: kernels_lib.Kernel
) -> float:
  """Time of a scatter whose indices are all the same."""
  gpu = trace.step.cluster.gpu
  assert kernel.scatter is not None
  moved_us = fusion.time_us(fusion.fitted(gpu), kernel, gpu)
  return moved_us + fusion.worst_scatter_us(kernel.scatter, gpu)


def _from_parts_us(
  trace: traced_step.TracedStep,
  ran: Sequence[events_lib.Event],
  known_us: _LoneTimes,
) -> float:
  """A replay of a rank's step with its measured kernels and collectives."""
  step, gap_us = trace.step, trace.profile.gap_us or 0.0
  scatters = {kernel.name for kernel in trace.colliding_scatters}
  ran_us = traced_step.median_us(ran)

  @functools.cache
  def kernel_cost(name: str) -> kernel_lib.KernelCost:
    predicted = trace.kernel_cost(trace.kernels[name])
    lone_us = ran_us.get(name) if name in scatters else None
    lone_us = lone_us or _lone_us(trace, known_us, name)
    return dataclasses.replace(
      predicted,
      time_us=lone_us + gap_us,
      memory_us=lone_us * predicted.memory_us / predicted.time_us,
      threads_us=lone_us * predicted.threads_us / predicted.time_us,
      source="measured",
    )

  def beside(
    kernel: kernel_lib.KernelCost, collective: collective_lib.CollectiveCost
  ) -> contention.Beside:
    found = contention.beside(kernel, collective, step.cluster.gpu)
    return dataclasses.replace(found, collective_factor=1.0, wait_us=0.0)

  costs = timeline.Costs(
    kernel=lambda kernel: kernel_cost(kernel.name),
    collective=lambda c: trace.collective_as_it_ran(c.name, ran_us.get(c.name)),
    copy=step.copy_cost,
    beside=beside,
    together=step.prices.together,
  )
  return timeline.replay(step.program, costs).step_time_us


def _lone_us(
  trace: traced_step.TracedStep, known_us: _LoneTimes, name: str
) -> float:
  """A kernel's lone time, or its class's if it never ran alone."""
  if name in known_us:
    return statistics.median(known_us[name])
  work = measured_lib.work_of(trace.kernels[name])
  alike = [
    us
    for other, times in known_us.items()
    if measured_lib.work_of(trace.kernels[other]) == work
    for us in times
  ]
  if alike:
    return statistics.median(alike)
  return trace.kernel_cost(trace.kernels[name]).time_us
