# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Instances of collectives: one run of a collective on several ranks.

A rank's time includes its wait for later ranks. The last rank does not wait. So
if the trace has all ranks, the shortest time is the collective's own. Ranks end
together (within 10 to 27 us on two H100s of one node). This also aligns the
clocks of processes: on different hosts they agree only as well as NTP allows.
"""

from __future__ import annotations

import collections
from collections.abc import Iterator, Mapping, Sequence
import dataclasses
import statistics

from lagom_xla.passes import collectives as collectives_lib
from lagom_xla.profiling import events as events_lib
from lagom_xla.profiling import steps as steps_lib
from lagom_xla.profiling import trace as trace_lib

_Named = Mapping[str, Sequence[events_lib.Event]]


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Instance:
  """One run of a collective on the ranks of one group.

  Attributes:
    name: the collective's name.
    step: number of the step.
    runs: the traced runs, by device.
    has_all_ranks: whether all ranks of the group were traced.
  """

  name: str
  step: int
  runs: Mapping[int, events_lib.Event]
  has_all_ranks: bool

  @property
  def own_us(self) -> float:
    """Its time without rank waits; an upper bound if ranks are missing."""
    return min(run.time_us for run in self.runs.values())

  @property
  def skew_us(self) -> float:
    """The time from the first rank's start to the last rank's."""
    return self.last_start_us - min(r.begin_us for r in self.runs.values())

  @property
  def last_start_us(self) -> float:
    """The start of the last rank."""
    return max(run.begin_us for run in self.runs.values())

  @property
  def last_device(self) -> int:
    """The device that started last."""
    return max(self.runs, key=lambda device: self.runs[device].begin_us)


def on_one_clock(
  trace: trace_lib.Trace, steps: Sequence[steps_lib.DeviceStep]
) -> tuple[list[steps_lib.DeviceStep], list[float]]:
  """Steps with all clocks aligned to the first process's.

  Also returns the offset added to each process's times, in microseconds.
  """
  ends: list[dict[tuple[str, int, int], list[float]]] = [
    collections.defaultdict(list) for _ in trace.processes
  ]
  for step in steps:
    process = trace.devices[step.device].process
    for name, runs in _by_name(step).items():
      for occurrence, run in enumerate(runs):
        ends[process][name, step.number, occurrence].append(run.end_us)
  offsets_us = []
  for own in ends:
    common = [
      statistics.median(ends[0][key]) - statistics.median(own[key])
      for key in own.keys() & ends[0].keys()
    ]
    offsets_us.append(statistics.median(common) if common else 0.0)
  moved = [
    _moved(step, offsets_us[trace.devices[step.device].process])
    for step in steps
  ]
  return moved, offsets_us


def _moved(
  step: steps_lib.DeviceStep, offset_us: float
) -> steps_lib.DeviceStep:
  def move(events: Sequence[events_lib.Event]) -> tuple[events_lib.Event, ...]:
    return tuple(
      dataclasses.replace(
        e, begin_us=e.begin_us + offset_us, end_us=e.end_us + offset_us
      )
      for e in events
    )

  if not offset_us:
    return step
  return dataclasses.replace(
    step, kernels=move(step.kernels), collectives=move(step.collectives)
  )


def of_steps(
  steps: Sequence[steps_lib.DeviceStep],
  collectives: Mapping[str, collectives_lib.Collective],
  num_devices: int | None,
) -> list[Instance]:
  """The collectives of all steps, matched across ranks.

  If all devices have equally many runs, the k-th runs match. Otherwise, runs
  that end together match.

  `num_devices` is the module's number of devices; None if unknown. The trace's
  devices are taken for the module's only if their numbers are equal.
  """
  by_number = collections.defaultdict(list)
  for step in steps:
    by_number[step.number].append(step)
  devices = {step.device for step in steps}
  found = []
  for number, together in sorted(by_number.items()):
    runs = {step.device: _by_name(step) for step in together}
    for name, collective in collectives.items():
      for group in _groups(collective, devices, num_devices):
        present = {d: runs[d][name] for d in group if name in runs.get(d, {})}
        size = collective.group_size or len(devices)
        found += [
          Instance(
            name=name,
            step=number,
            runs=matched,
            has_all_ranks=len(matched) >= size,
          )
          for matched in _matched(present)
        ]
  return found


def _groups(
  collective: collectives_lib.Collective,
  devices: set[int],
  num_devices: int | None,
) -> list[set[int]]:
  """The devices of the trace that run a collective together, if known."""
  if collective.num_groups == 1 or not collective.groups:
    return [devices] if not collective.pairs else [{d} for d in devices]
  if num_devices == len(devices):
    return [devices.intersection(group) for group in collective.groups]
  return [{device} for device in devices]


def _matched(
  runs: Mapping[int, Sequence[events_lib.Event]],
) -> Iterator[dict[int, events_lib.Event]]:
  if not runs:
    return
  reference = max(runs, key=lambda device: len(runs[device]))
  matched: list[dict[int, events_lib.Event]] = [
    {reference: run} for run in runs[reference]
  ]
  ends_us = [run.end_us for run in runs[reference]]
  for device, own in runs.items():
    if device == reference:
      continue
    for occurrence, run in enumerate(own):
      index = occurrence
      if len(own) != len(ends_us):
        distances = [abs(run.end_us - end_us) for end_us in ends_us]
        index = distances.index(min(distances))
      matched[index][device] = run
  yield from matched


def _by_name(step: steps_lib.DeviceStep) -> _Named:
  named = collections.defaultdict(list)
  for run in step.collectives:
    named[run.name].append(run)
  return named
