# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Slowdowns of kernels beside collectives in real steps.

Kernels of equal work form a class, whose lone time is the median of runs
without a collective. Classes shorter than 8 us are mostly launch and are
skipped. There are two comparisons: *pairs*, the time of a class beside one
collective over its lone time, from runs that the collective covers for 95 %;
and *sums*, the total time of all kernels that meet a collective.

Predictions use `contention.beside` with predicted costs, but with the measured
times of collectives. Several of these mostly wait for late ranks (in the A100
step, a reduce-scatter takes 2,293 to 2,600 us, and about 270 for its bytes). A
waiting collective holds SMs but uses no bandwidth, and a module does not show
the wait. So a collective's bytes are spread over its measured time.
"""

from __future__ import annotations

import collections
from collections.abc import Iterator, Sequence
import dataclasses
import functools
import statistics

from benchmarks import groups as groups_lib
from benchmarks.steps import traced_step
from lagom_xla.costs import contention
from lagom_xla.costs import measured as measured_lib
from lagom_xla.profiling import costing
from lagom_xla.profiling import events as events_lib
from lagom_xla.profiling import profile as profile_lib

_LEAST_LONE_US = 8.0
_LEAST_SAMPLES = 2


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Meeting:
  """A kernel that ran beside a collective.

  Attributes:
    run: the run of the kernel.
    rank: its rank.
    class_: the name of its class.
    category: the kernel's category.
    kind: the collective's kind.
    lone_us: the lone time of its class.
    slowdown: predicted time over lone time, if the two run side by side from
      start to end.
  """

  run: events_lib.KernelRun
  rank: int
  class_: str
  category: str
  kind: str
  lone_us: float
  slowdown: float

  @property
  def predicted_us(self) -> float:
    """Predicted time, given the collective's share of the run."""
    return costing.predicted_beside_us(
      self.lone_us, self.run.share, self.slowdown
    )


def groups(trace: traced_step.TracedStep) -> Iterator[groups_lib.Group]:
  """The comparisons of a step."""
  found = meetings(trace)
  if not found:
    return
  name = f"{trace.name}: kernels beside collectives"
  yield groups_lib.of_comparisons(
    name,
    [
      groups_lib.Comparison(
        f"{alike[0].class_} beside {alike[0].run.collective}",
        statistics.median(m.run.time_us for m in alike) / alike[0].lone_us,
        alike[0].slowdown,
      )
      for alike in pairs(found)
      if len(alike) >= _LEAST_SAMPLES
    ],
  )
  yield groups_lib.of_comparisons(f"{name}, summed", [_summed("all", found)])
  yield groups_lib.of_comparisons(
    f"{trace.name}: the same by category and collective",
    [
      _summed(value, [m for m in found if getattr(m, field) == value])
      for field in ("category", "kind")
      for value in sorted({getattr(m, field) for m in found})
    ],
  )


def meetings(trace: traced_step.TracedStep) -> list[Meeting]:
  """Kernels that ran beside collectives, of classes that also ran alone."""
  alone = collections.defaultdict(list)
  for name, times in trace.profile.lone_us.items():
    alone[measured_lib.work_of(trace.kernels[name])].extend(times)
  lone_us = {
    class_: statistics.median(times)
    for class_, times in alone.items()
    if len(times) >= _LEAST_SAMPLES
  }

  @functools.cache
  def slowdown(kernel_name: str, collective_name: str) -> float:
    kernel = trace.kernel_cost(trace.kernels[kernel_name])
    collective = trace.collective_as_it_ran(collective_name)
    gpu = trace.step.cluster.gpu
    slowed = contention.beside(kernel, collective, gpu)
    return slowed.kernel_us / kernel.time_us

  names: dict[measured_lib.Work, str] = {}
  found = []
  for rank in range(len(trace.ranks)):
    for run in trace.runs(rank):
      kernel = trace.kernels[run.name]
      class_ = measured_lib.work_of(kernel)
      if run.is_lone or lone_us.get(class_, 0.0) < _LEAST_LONE_US:
        continue
      found.append(
        Meeting(
          run=run,
          rank=rank,
          class_=names.setdefault(class_, kernel.name),
          category=kernel.category,
          kind=trace.collectives[run.collective].kind,
          lone_us=lone_us[class_],
          slowdown=slowdown(run.name, run.collective),
        )
      )
  return found


def pairs(found: Sequence[Meeting]) -> list[list[Meeting]]:
  """Meetings that a collective covers, by class and collective."""
  beside = collections.defaultdict(list)
  for meeting in found:
    if meeting.run.share >= profile_lib.COVERED:
      beside[meeting.class_, meeting.run.collective].append(meeting)
  return list(beside.values())


def _summed(what: str, found: Sequence[Meeting]) -> groups_lib.Comparison:
  """Total time of kernels, over their lone times."""
  lone_us = sum(m.lone_us for m in found)
  measured = sum(m.run.time_us for m in found) / lone_us
  predicted = sum(m.predicted_us for m in found) / lone_us
  return groups_lib.Comparison(what, measured, predicted)
