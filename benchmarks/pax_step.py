# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""A real FSDP step on four A100s: its slowdowns and its step time.

Three things are predicted of the step that benchmarks/pax_trace.py reads:

*Kernels beside collectives.* Kernels that are alike in all that the cost model
sees are a class. Measured is the median time of a class beside one collective,
over its median time beside none; predicted is `contention.beside` of predicted
costs. Classes shorter than 8 us are mostly launch, and left out.

*The step from measured parts.* The timeline replays the schedule with every
kernel's own lone time, the median gap between kernels, and every collective's
time as it ran. What kernels cost collectives is in those times already, so only
the slowdown of kernels is predicted. The bytes of a collective that took long
because it waited for other ranks are spread over the time that it took.

*The step from module and spec alone.* Everything is predicted.

Several collectives of this step spend most of their time on waiting for ranks
that come late: the all-gather of 28 MB that starts the step takes 374 to
2,225 us, the first reduce-scatter 2,293 to 2,600 us, against some 120 and 270
for their bytes. What waits takes SMs but draws no bandwidth, and a module
does not show what waits. So kernels beside them are slowed less than predicted,
by up to the collective's share of the bandwidth, a third.

Products lose more than predicted: 1.55 to 2.12 times their lone time beside
all-gathers of 24 channels, where their waves (10 for 8, or 14 for 11) and the
bytes that they must move make 1.25 to 1.31. What kernels bound by memory lose
beside two of these all-gathers is 1.13 and 1.56; a product beside the same two
loses 1.50 and 1.36 times that. So products are slowed as if memory took all
their time. A likely reason, which this data cannot prove, is that their tiles
come from L2 several times each, while the model counts bytes of HBM only.
"""

from __future__ import annotations

import collections
from collections.abc import Iterator, Mapping, Sequence
import dataclasses
import functools
import itertools
import pathlib
import statistics

from benchmarks import groups as groups_lib
from benchmarks import pax_trace
from lagom_xla import cluster as cluster_lib
from lagom_xla.costs import collective as collective_lib
from lagom_xla.costs import contention
from lagom_xla.costs import kernel as kernel_lib
from lagom_xla.costs import step as step_lib
from lagom_xla.costs.replay import streams
from lagom_xla.costs.replay import timeline
from lagom_xla.passes import collectives as collectives_lib
from lagom_xla.passes import kernels as kernels_lib
from lagom_xla.passes import overlap as overlap_lib

_LEAST_LONE_US = 8.0
_LEAST_SAMPLES = 2
# A kernel counts as beside a collective that runs for this share of it.
_COVERED = 0.95

_Class = tuple[object, ...]


def groups(folder: pathlib.Path) -> Iterator[groups_lib.Group]:
  """The three comparisons of the step in the folder pax_a100."""
  trace = Trace(folder)
  yield groups_lib.of_comparisons(
    "A100 step: kernels beside collectives", slowdowns(trace)
  )
  for name, predicted_us in (
    ("measured parts", from_parts(trace).step_time_us),
    ("module and spec", from_module(trace).step_time_us),
  ):
    comparison = groups_lib.Comparison(
      what="step in us", measured=trace.step_time_us, predicted=predicted_us
    )
    yield groups_lib.of_comparisons(
      f"A100 step: step time from {name}", [comparison]
    )


class Trace:
  """The step's module with its predicted costs, and how it ran.

  Attributes:
    step: the module on its cluster.
  """

  def __init__(self, folder: pathlib.Path):
    analysis = overlap_lib.analyze(pax_trace.module(folder))
    cluster = cluster_lib.parse(pax_trace.CLUSTER)
    self.step = step_lib.Step(analysis, cluster)
    self._steps = pax_trace.steady_steps(folder, analysis.module)

  @property
  def step_time_us(self) -> float:
    """Median of the steady steps of all ranks."""
    return statistics.median(
      max(event.end_us for event in step) - step[0].begin_us
      for step in self._steps
    )

  @functools.cached_property
  def kernels(self) -> Mapping[str, kernels_lib.Kernel]:
    """The module's kernels, by name."""
    return {k.name: k for k in self.step.analysis.kernels.values()}

  @functools.cached_property
  def collectives(self) -> Mapping[str, collectives_lib.Collective]:
    """The module's collectives, by name."""
    return {c.name: c for c in self.step.analysis.collectives}

  @functools.cached_property
  def collective_us(self) -> Mapping[str, float]:
    """Median time of each collective as it ran, by name."""
    times = collections.defaultdict(list)
    for event in itertools.chain.from_iterable(self._steps):
      if event.name in self.collectives:
        times[event.name].append(event.time_us)
    return {name: statistics.median(us) for name, us in times.items()}

  @functools.cached_property
  def lone_us(self) -> Mapping[str, Sequence[float]]:
    """Times of each kernel where it ran beside nothing, by name."""
    times = collections.defaultdict(list)
    for run in self._kernel_runs:
      if run.is_lone:
        times[run.name].append(run.time_us)
    return times

  @functools.cached_property
  def beside_us(self) -> Mapping[tuple[str, str], Sequence[float]]:
    """Times of kernels beside collectives, by the names of both."""
    times = collections.defaultdict(list)
    for run in self._kernel_runs:
      if run.share >= _COVERED:
        times[run.name, run.collective].append(run.time_us)
    return times

  @functools.cached_property
  def gap_us(self) -> float:
    """Median time between one kernel's end and the next one's start."""
    return statistics.median(
      max(run.gap_us, 0.0)
      for run in self._kernel_runs
      if run.gap_us is not None
    )

  @functools.cached_property
  def _kernel_runs(self) -> Sequence[pax_trace.KernelRun]:
    """The kernels of all steps as they ran."""
    return [
      run
      for step in self._steps
      for run in pax_trace.kernel_runs(
        [event for event in step if event.name in self.kernels],
        [event for event in step if event.name in self.collectives],
      )
    ]


def slowdowns(trace: Trace) -> list[groups_lib.Comparison]:
  """Time of each class beside each collective, over its lone time."""
  step = trace.step
  alone = collections.defaultdict(list)
  example = {}
  for name, times in trace.lone_us.items():
    class_ = _class_of(trace.kernels[name])
    alone[class_].extend(times)
    example[class_] = trace.kernels[name]
  beside = collections.defaultdict(list)
  for (kernel, collective), times in trace.beside_us.items():
    beside[_class_of(trace.kernels[kernel]), collective].extend(times)
  comparisons = []
  for (class_, name), times in beside.items():
    lone_us = statistics.median(alone[class_] or [0.0])
    if lone_us < _LEAST_LONE_US:
      continue
    if min(len(times), len(alone[class_])) < _LEAST_SAMPLES:
      continue
    kernel = _without_gap(step.kernel_cost(example[class_]))
    slowed = contention.beside(
      kernel, _predicted(step, trace.collectives[name]), step.cluster.gpu
    )
    comparisons.append(
      groups_lib.Comparison(
        what=f"{example[class_].name} beside {name}",
        measured=statistics.median(times) / lone_us,
        predicted=slowed.kernel_us / kernel.time_us,
      )
    )
  return comparisons


def from_parts(trace: Trace) -> timeline.Timeline:
  """Replays the step with what its kernels and collectives took."""
  step = trace.step
  gpu = step.cluster.gpu

  @functools.cache
  def kernel_cost(name: str) -> kernel_lib.KernelCost:
    predicted = _without_gap(step.kernel_cost(trace.kernels[name]))
    lone_us = _lone_us(trace, name)
    return dataclasses.replace(
      predicted,
      time_us=lone_us + trace.gap_us,
      memory_us=lone_us * predicted.memory_us / predicted.time_us,
      source="measured",
    )

  @functools.cache
  def collective_cost(name: str) -> collective_lib.CollectiveCost:
    predicted = _predicted(step, trace.collectives[name])
    took_us = trace.collective_us[name]
    drawn_bytes = predicted.memory_gbps * predicted.time_us
    return dataclasses.replace(
      predicted, time_us=took_us, memory_gbps=drawn_bytes / took_us
    )

  def beside(
    kernel: kernel_lib.KernelCost, collective: collective_lib.CollectiveCost
  ) -> contention.Beside:
    found = contention.beside(kernel, collective, gpu)
    return dataclasses.replace(found, collective_factor=1.0, wait_us=0.0)

  costs = streams.Costs(
    kernel=lambda kernel: kernel_cost(kernel.name),
    collective=lambda collective: collective_cost(collective.name),
    beside=beside,
  )
  return timeline.replay(step.program, costs)


def from_module(trace: Trace) -> timeline.Timeline:
  """Replays the step with nothing measured."""
  return trace.step.timeline(trace.step.default)


def _lone_us(trace: Trace, name: str) -> float:
  """A kernel's lone time; its class's where it never ran alone."""
  if name in trace.lone_us:
    return statistics.median(trace.lone_us[name])
  class_ = _class_of(trace.kernels[name])
  alike = [
    us
    for other, times in trace.lone_us.items()
    if _class_of(trace.kernels[other]) == class_
    for us in times
  ]
  if alike:
    return statistics.median(alike)
  return _without_gap(trace.step.kernel_cost(trace.kernels[name])).time_us


def _without_gap(cost: kernel_lib.KernelCost) -> kernel_lib.KernelCost:
  """A predicted kernel without the gap after it, as a trace shows kernels."""
  gap_us = kernel_lib.fitted().launch_gap_us
  return dataclasses.replace(cost, time_us=cost.time_us - gap_us)


def _predicted(
  step: step_lib.Step, collective: collectives_lib.Collective
) -> collective_lib.CollectiveCost:
  key = step.key_of[collective.name]
  return step.predict(key, step.default[key])


def _class_of(kernel: kernels_lib.Kernel) -> _Class:
  """Equal for kernels that only their names' numbers tell apart."""
  return (
    kernel.name.rstrip("0123456789._"),
    kernel.category,
    kernel.flops,
    kernel.num_bytes,
    kernel.result_elements,
    kernel.matrix_shape,
  )
