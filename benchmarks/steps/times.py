# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Real steps: their times, predicted.

*From measured parts.* The timeline replays the schedule with every kernel's own
lone time, the median gap between kernels, and every collective's time as it
ran. What kernels cost collectives is in those times already, so only the
slowdown of kernels is predicted. The bytes of a collective that took long
because it waited for other ranks are spread over the time that it took. Each
step of each rank is replayed with its own collectives, and with its own
scatters where those collide: where a rank's scatter ends 40 ms early it waits
those 40 ms in the next collective, so medians of either say little together.

*From another rank's parts.* The same, but with lone times of kernels from one
rank's steps alone, for the steps of the others: whether what a profile measured
foretells what it did not see.

*From module and spec.* Everything is predicted, but for what a scatter costs
whose indices repeat: that depends on data that no module has. The ids of the
MaxText step are all 0 (its synthetic data), so its scatter is predicted for
that case (costs/fusion.py), and compared apart. The step is compared with it,
and without it: less the scatter, and less what the first collective after it
waits for the ranks where it took longer.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
import dataclasses
import functools
import pathlib
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


def groups(folder: pathlib.Path) -> Iterator[groups_lib.Group]:
  """The comparisons of the step in a folder."""
  trace = traced_step.TracedStep(folder)
  module_us = from_module(trace).step_time_us
  yield groups_lib.of_comparisons(
    f"{trace.name}: step time from measured parts",
    [
      groups_lib.Comparison(
        what="step in us",
        measured=traced_step.span_us(step),
        predicted=from_parts(trace, step).step_time_us,
      )
      for step in trace.steps
    ],
  )
  if len(trace.ranks) > 1:
    yield groups_lib.of_comparisons(
      f"{trace.name}: step time from another rank's lone kernels",
      list(_across_ranks(trace)),
    )
  scatters = trace.colliding_scatters
  rest_us = module_us - sum(
    trace.step.kernel_cost(k).time_us * k.executions for k in scatters
  )
  worst_us = {k.name: _worst_us(trace, k) for k in scatters}
  with_scatters_us = rest_us + sum(
    worst_us[k.name] * k.executions for k in scatters
  )
  compared = [("module and spec", trace.step_time_us, with_scatters_us)]
  if scatters:
    compared.append(
      (
        "module and spec, less colliding scatters",
        trace.step_time_less_scatters_us,
        rest_us,
      )
    )
    yield groups_lib.of_comparisons(
      f"{trace.name}: colliding scatters",
      [
        groups_lib.Comparison(
          what=f"{k.name} in us",
          measured=statistics.median(trace.run_us(k.name)),
          predicted=worst_us[k.name],
        )
        for k in scatters
      ],
    )
  for name, measured_us, predicted_us in compared:
    comparison = groups_lib.Comparison(
      what="step in us", measured=measured_us, predicted=predicted_us
    )
    yield groups_lib.of_comparisons(
      f"{trace.name}: step time from {name}", [comparison]
    )


def _across_ranks(
  trace: traced_step.TracedStep,
) -> Iterator[groups_lib.Comparison]:
  """Steps of each rank, with lone times of kernels from another one."""
  for number, calibrating in enumerate(trace.ranks):
    lone_us = trace.lone_us_in(calibrating)
    for other, steps in enumerate(trace.ranks):
      if other == number:
        continue
      for step in steps:
        yield groups_lib.Comparison(
          what=f"step of rank {other} in us, by rank {number}",
          measured=traced_step.span_us(step),
          predicted=from_parts(trace, step, lone_us).step_time_us,
        )


def _worst_us(
  trace: traced_step.TracedStep, kernel: kernels_lib.Kernel
) -> float:
  """Time of a scatter whose indices are all the same."""
  gpu = trace.step.cluster.gpu
  assert kernel.scatter is not None
  moved_us = fusion.time_us(fusion.fitted(gpu), kernel, gpu)
  return moved_us + fusion.worst_scatter_us(kernel.scatter, gpu)


def from_parts(
  trace: traced_step.TracedStep,
  ran: Sequence[events_lib.Event],
  lone_us: traced_step.LoneTimes | None = None,
) -> timeline.Timeline:
  """Replays a step of a rank with what its kernels and collectives took.

  Args:
    trace: of the step.
    ran: one of its `steps`.
    lone_us: of kernels; None for those of all steps.
  """
  step = trace.step
  gpu = step.cluster.gpu
  known_us = trace.lone_us if lone_us is None else lone_us
  scatters_us = traced_step.median_us(
    ran, {k.name for k in trace.colliding_scatters}
  )
  collectives_us = traced_step.median_us(ran, trace.collectives)

  @functools.cache
  def kernel_cost(name: str) -> kernel_lib.KernelCost:
    predicted = traced_step.without_gap(step.kernel_cost(trace.kernels[name]))
    lone_us = scatters_us.get(name) or _lone_us(trace, known_us, name)
    return dataclasses.replace(
      predicted,
      time_us=lone_us + trace.gap_us,
      memory_us=lone_us * predicted.memory_us / predicted.time_us,
      threads_us=lone_us * predicted.threads_us / predicted.time_us,
      source="measured",
    )

  def beside(
    kernel: kernel_lib.KernelCost, collective: collective_lib.CollectiveCost
  ) -> contention.Beside:
    found = contention.beside(kernel, collective, gpu)
    return dataclasses.replace(found, collective_factor=1.0, wait_us=0.0)

  costs = timeline.Costs(
    kernel=lambda kernel: kernel_cost(kernel.name),
    collective=lambda c: trace.collective_as_it_ran(
      c.name, collectives_us.get(c.name)
    ),
    copy=step.copy_cost,
    beside=beside,
  )
  return timeline.replay(step.program, costs)


def from_module(trace: traced_step.TracedStep) -> timeline.Timeline:
  """Replays the step with nothing measured."""
  return trace.step.timeline(trace.step.default)


def _lone_us(
  trace: traced_step.TracedStep, known_us: traced_step.LoneTimes, name: str
) -> float:
  """A kernel's lone time; its class's where it never ran alone."""
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
  return traced_step.without_gap(
    trace.step.kernel_cost(trace.kernels[name])
  ).time_us
