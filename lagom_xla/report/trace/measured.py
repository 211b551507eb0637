# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""A measured step as processes of a trace, one for each GPU that was profiled.

Of the whole steps the one is shown whose time is the median.
"""

from __future__ import annotations

import collections
from collections.abc import Iterator, Sequence
import statistics

from lagom_xla.costs.replay import recorder
from lagom_xla.profiling import events as profiled_events
from lagom_xla.profiling import profile as profile_lib
from lagom_xla.profiling import steps as steps_lib
from lagom_xla.report.trace import events as events_lib
from lagom_xla.report.trace import predicted
from lagom_xla.report.wording import instructions as instructions_lib


def processes(
  first: int, profile: profile_lib.Profile
) -> Iterator[events_lib.Process]:
  """A step of a profile, GPU by GPU.

  Args:
    first: number of the first process.
    profile: of a run.
  """
  instructions = instructions_lib.of_analysis(
    profile.analysis, profile.trace.platform
  )
  steps = median_step(profile)
  begin_us = min((step.begin_us for step in steps), default=0.0)
  for number, step in enumerate(steps, start=first):
    device = profile.trace.devices[step.device]
    made = events_lib.Process(
      number, f"measured: {device.name}, step {step.number}"
    )
    for stream, events in (
      (recorder.COMPUTE, step.kernels),
      (recorder.COMMUNICATION, step.collectives),
    ):
      for thread, event in _threads(stream, events):
        made.slice(
          thread,
          event.name,
          event.begin_us - begin_us,
          event.end_us - begin_us,
          _arguments(event, instructions),
        )
    _count_channels(made, step.collectives, begin_us)
    yield made


def median_step(
  profile: profile_lib.Profile,
) -> Sequence[steps_lib.DeviceStep]:
  """The step of median length, on each GPU that has it whole."""
  by_number = collections.defaultdict(list)
  for step in profile.whole_steps:
    by_number[step.number].append(step)
  if not by_number:
    return ()
  times_us = {
    number: statistics.mean(step.end_us - step.begin_us for step in steps)
    for number, steps in by_number.items()
  }
  middle_us = statistics.median_low(times_us.values())
  number = next(n for n, us in times_us.items() if us == middle_us)
  return by_number[number]


def _threads(
  stream: str, events: Sequence[profiled_events.Event]
) -> Iterator[tuple[str, profiled_events.Event]]:
  """Events with threads on which they follow each other, as few as will do."""
  ends_us: list[float] = []
  for event in sorted(events, key=lambda e: e.begin_us):
    free = (i for i, end_us in enumerate(ends_us) if end_us <= event.begin_us)
    index = next(free, len(ends_us))
    if index == len(ends_us):
      ends_us.append(event.end_us)
    ends_us[index] = event.end_us
    yield (stream if not index else f"{stream} {index + 1}"), event


def _arguments(
  event: profiled_events.Event, instructions: predicted.Instructions
) -> dict[str, object]:
  arguments: dict[str, object] = {"HLO instruction": event.name}
  if (known := instructions.get(event.name)) is not None:
    arguments |= {
      "what": known.what,
      "bytes": known.num_bytes,
      "source": str(known.source),
    }
  if event.num_blocks is not None:
    arguments["thread blocks"] = event.num_blocks
  return arguments


def _count_channels(
  made: events_lib.Process,
  collectives: Sequence[profiled_events.Event],
  begin_us: float,
) -> None:
  changes = [
    change
    for event in collectives
    if event.num_blocks is not None
    for change in (
      (event.begin_us - begin_us, event.num_blocks),
      (event.end_us - begin_us, -event.num_blocks),
    )
  ]
  in_use = 0
  for at_us, change in sorted(changes):
    in_use += change
    made.counter("channels in use", at_us, in_use)
