# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Measured overlaps: waits for collectives, and slowdowns by them.

All times are measured, per step and device, averaged over complete steps of the
trace. A collective is exposed while it runs and no kernel does. Until all ranks
have started it, the exposed time is due to the late rank, not to the network.
"""

from __future__ import annotations

import bisect
import collections
from collections.abc import Iterator, Mapping, Sequence
import dataclasses
import itertools
import statistics

from lagom_xla.costs import measured as measured_lib
from lagom_xla.profiling import events as events_lib
from lagom_xla.profiling import profile as profile_lib
from lagom_xla.profiling import steps as steps_lib

# Begin and end, in microseconds.
Span = tuple[float, float]


def union(events: Sequence[events_lib.Event]) -> list[Span]:
  """The union of these events' times: disjoint spans, in order."""
  spans: list[Span] = []
  for event in sorted(events, key=lambda e: e.begin_us):
    if spans and event.begin_us <= spans[-1][1]:
      spans[-1] = spans[-1][0], max(spans[-1][1], event.end_us)
    else:
      spans.append((event.begin_us, event.end_us))
  return spans


def idle_of(step: steps_lib.DeviceStep) -> Iterator[Span]:
  """The times of a step without any kernel."""
  last = step.begin_us
  for begin, end in union(step.kernels):
    if begin > last:
      yield last, begin
    last = end
  if step.end_us > last:
    yield last, step.end_us


def common_us(spans: Sequence[Span], begin_us: float, end_us: float) -> float:
  """The time between two points that these disjoint, ordered spans cover."""
  common_us = 0.0
  first = bisect.bisect_right(spans, begin_us, key=lambda span: span[1])
  for begin, end in itertools.islice(spans, first, None):
    if begin >= end_us:
      break
    common_us += min(end, end_us) - max(begin, begin_us)
  return common_us


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class CollectiveRow:
  """The measured times of a collective.

  Attributes:
    name: the collective's name.
    kind: HLO opcode.
    runs: number of runs per step.
    num_channels: number of NCCL channels; None if unknown.
    ran_us: time of all runs.
    own_us: median time of one run without waits for ranks.
    has_all_ranks: whether the trace has all ranks that `own_us` needs.
    exposed_us: time that it ran without any kernel.
    late_ranks_us: the part of the exposed time before all traced ranks had
      started it.
    slowdown_us: time that it cost kernels beside it, as far as their lone times
      are known.
  """

  name: str
  kind: str
  runs: float
  num_channels: int | None
  ran_us: float
  own_us: float
  has_all_ranks: bool
  exposed_us: float
  late_ranks_us: float
  slowdown_us: float


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Slowdown:
  """Kernels of equal work beside a collective.

  Attributes:
    kernel: name of the first kernel.
    num_kernels: number of the module's kernels with this work.
    collective: the collective's name.
    lone_us: median lone time of the kernels.
    beside_us: their median time if the collective overlapped all of it; None if
      it never did.
    lost_us: their loss per step.
  """

  kernel: str
  num_kernels: int
  collective: str
  lone_us: float
  beside_us: float | None
  lost_us: float


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class DeviceRow:
  """The measured times of a device.

  Attributes:
    name: the device's name.
    num_steps: number of complete steps in the trace.
    step_us: median time of the complete steps.
    last: number of collectives per step that it was last to start.
    late_us: wait of the first rank for this device, per step.
  """

  name: str
  num_steps: int
  step_us: float
  last: float
  late_us: float


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Overlaps:
  """The overlaps of a profile.

  Attributes:
    step_us: median time of a step.
    kernel_us: time that kernels ran.
    exposed_us: time that a collective ran and no kernel did.
    gap_us: time that neither ran.
    slowdown_us: time that kernels lost to collectives.
    collectives: the collectives, longest exposed first.
    slowdowns: the slowdowns with known lone times, largest loss first.
    devices: the devices, in the trace's order.
  """

  step_us: float
  kernel_us: float
  exposed_us: float
  gap_us: float
  slowdown_us: float
  collectives: tuple[CollectiveRow, ...]
  slowdowns: tuple[Slowdown, ...]
  devices: tuple[DeviceRow, ...]


def of_profile(profile: profile_lib.Profile) -> Overlaps:
  """The overlaps of a profile."""
  steps = profile.whole_steps
  idle = [list(idle_of(step)) for step in steps]
  spans_us = sum(step.end_us - step.begin_us for step in steps)
  idle_us = sum(end - begin for spans in idle for begin, end in spans)
  exposed_us = sum(
    common_us(spans, *ran)
    for step, spans in zip(steps, idle, strict=True)
    for ran in union(step.collectives)
  )
  slowdowns = _slowdowns(profile)
  return Overlaps(
    step_us=profile.step_time_us,
    kernel_us=(spans_us - idle_us) / len(steps),
    exposed_us=exposed_us / len(steps),
    gap_us=(idle_us - exposed_us) / len(steps),
    slowdown_us=sum(slowdown.lost_us for slowdown in slowdowns),
    collectives=tuple(_collectives(profile, idle, slowdowns)),
    slowdowns=tuple(slowdowns),
    devices=tuple(_devices(profile)),
  )


def _collectives(
  profile: profile_lib.Profile,
  idle: Sequence[Sequence[Span]],
  slowdowns: Sequence[Slowdown],
) -> list[CollectiveRow]:
  lost_us: dict[str, float] = collections.defaultdict(float)
  for slowdown in slowdowns:
    lost_us[slowdown.collective] += slowdown.lost_us
  last_starts_us: dict[tuple[int, str, float], float] = {}
  all_ranks: Mapping[str, list[bool]] = collections.defaultdict(list)
  for instance in profile.instances:
    all_ranks[instance.name].append(instance.has_all_ranks)
    for device, run in instance.runs.items():
      key = device, instance.name, run.begin_us
      last_starts_us[key] = instance.last_start_us
  runs = collections.Counter[str]()
  ran, exposed, late = (collections.defaultdict(float) for _ in range(3))
  for step, spans in zip(profile.whole_steps, idle, strict=True):
    for run in step.collectives:
      last_us = last_starts_us[step.device, run.name, run.begin_us]
      runs[run.name] += 1
      ran[run.name] += run.time_us
      exposed[run.name] += common_us(spans, run.begin_us, run.end_us)
      until_us = min(last_us, run.end_us)
      late[run.name] += common_us(spans, run.begin_us, until_us)
  num = len(profile.whole_steps)
  rows = [
    CollectiveRow(
      name=name,
      kind=profile.collectives[name].kind,
      runs=runs[name] / num,
      num_channels=profile.num_channels.get(name),
      ran_us=ran[name] / num,
      own_us=profile.own_us[name],
      has_all_ranks=all(all_ranks[name]),
      exposed_us=exposed[name] / num,
      late_ranks_us=late[name] / num,
      slowdown_us=lost_us[name],
    )
    for name in runs
  ]
  return sorted(rows, key=lambda row: -row.exposed_us)


def _slowdowns(profile: profile_lib.Profile) -> list[Slowdown]:
  met: dict[tuple[measured_lib.Work, str], list[events_lib.KernelRun]] = (
    collections.defaultdict(list)
  )
  for run in profile.kernel_runs:
    if not run.is_lone:
      work = measured_lib.work_of(profile.kernels[run.name])
      met[work, run.collective].append(run)
  found = []
  for (work, collective), runs in met.items():
    if work not in profile.work_us:
      continue
    lone_us = profile.work_us[work]
    covered = [r.time_us for r in runs if r.share >= profile_lib.COVERED]
    found.append(
      Slowdown(
        kernel=runs[0].name,
        num_kernels=len({run.name for run in runs}),
        collective=collective,
        lone_us=lone_us,
        beside_us=statistics.median(covered) if covered else None,
        lost_us=sum(run.time_us - lone_us for run in runs) / len(profile.steps),
      )
    )
  return sorted(found, key=lambda row: -row.lost_us)


def _devices(profile: profile_lib.Profile) -> Iterator[DeviceRow]:
  last = collections.Counter()
  late_us = collections.defaultdict(float)
  for instance in profile.instances:
    if len(instance.runs) > 1:
      last[instance.last_device] += 1
      late_us[instance.last_device] += instance.skew_us
  for index, device in enumerate(profile.trace.devices):
    steps = [s for s in profile.whole_steps if s.device == index]
    if steps:
      yield DeviceRow(
        name=device.name,
        num_steps=len(steps),
        step_us=statistics.median(s.end_us - s.begin_us for s in steps),
        last=last[index] / len(steps),
        late_us=late_us[index] / len(steps),
      )
