# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""What devices launched, from a process's XSpace: GPUs, or CPUs.

Of a GPU only streams count; lines such as "XLA Ops" or "Steps" are derived from
them by other tools. An event's name is its kernel's, not its instruction's.

XLA:CPU's instructions are events on the host's threads that ran them, with the
device and the execution of the module that each belongs to; its number is the
same on the devices of all processes. A device's collectives wait on threads of
their own, so it goes on with what does not need them.

A large product leaves its work to other threads: its event is over when that
has begun. An event "end: NAME" follows when it is done, late, because what
waited for it runs first on the same thread. `steps` has what is closer.
"""

from __future__ import annotations

import collections
from collections.abc import Iterator, Mapping, Sequence
import dataclasses
import functools
import re
from typing import Any

import numpy as np

from lagom_xla.profiling import trace as trace_lib
from lagom_xla.profiling import xplane

_DEVICE = re.compile(r"^/device:(GPU:\d+)")
_STREAM = re.compile(r"^Stream #\d+")
_GRID = re.compile(r"grid:(\d+),(\d+),(\d+)")
_GPU_STATS = ("hlo_op", "program_id", "kernel_details")


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Stream:
  """A stream of a GPU.

  Attributes:
    device: such as "GPU:0".
    line: its events.
    begins_ns: when each of them began, by the process's clock.
    stats: reads theirs.
  """

  device: str
  line: xplane.Line
  begins_ns: np.ndarray
  stats: xplane.Stats


def gpu_streams(space: xplane.Space) -> Iterator[Stream]:
  """The streams of all GPUs of a process."""
  for plane in space.planes:
    if match := _DEVICE.match(plane.name):
      stats = xplane.Stats(plane.stat_names, _GPU_STATS)
      for serialized in plane.lines:
        line = xplane.line(serialized)
        if _STREAM.match(line.name):
          starts = xplane.starts_ps(serialized)
          begins_ps = np.fromiter(starts, np.int64, len(line.events))
          yield Stream(
            device=match[1],
            line=line,
            begins_ns=line.begin_ns + begins_ps // 1000,
            stats=stats,
          )


def of_gpu(
  name: str,
  process: int,
  streams: Sequence[Stream],
  offset_us: float,
  until_ns: int | None,
) -> trace_lib.Device:
  """A GPU with what its streams launched.

  Args:
    name: what to call it.
    process: index in the trace.
    streams: of it.
    offset_us: that is added to times.
    until_ns: what begins later by the process's clock is left out; None takes
      all.
  """
  launches = []
  num_unnamed, unnamed_us = 0, 0.0
  for stream in streams:
    for index, event in enumerate(xplane.events(stream.line)):
      if until_ns is not None and stream.begins_ns[index] >= until_ns:
        continue
      stats = stream.stats.read(event.stats)
      if stats.get("hlo_op"):
        launches.append(_gpu_launch(stream, event, stats, offset_us))
      else:
        num_unnamed += 1
        unnamed_us += event.duration_ps / 1e6
  return trace_lib.Device(
    name=name,
    process=process,
    launches=tuple(sorted(launches, key=lambda launch: launch.begin_us)),
    num_unnamed=num_unnamed,
    unnamed_us=unnamed_us,
  )


def _gpu_launch(
  stream: Stream,
  event: Any,
  stats: Mapping[str, xplane.Value],
  offset_us: float,
) -> trace_lib.Launch:
  begin_us = offset_us + stream.line.begin_ns / 1e3 + event.offset_ps / 1e6
  program_id = stats.get("program_id")
  return trace_lib.Launch(
    hlo_op=str(stats["hlo_op"]),
    program_id=None if program_id is None else int(program_id),
    begin_us=begin_us,
    end_us=begin_us + event.duration_ps / 1e6,
    grid=_grid(str(stats.get("kernel_details", ""))),
  )


@functools.lru_cache(maxsize=1 << 16)
def _grid(details: str) -> tuple[int, int, int] | None:
  """The thread blocks of a kernel, as far as its details have them."""
  found = _GRID.search(details)
  return (
    None if found is None else (int(found[1]), int(found[2]), int(found[3]))
  )


_HOST_PLANE = "/host:CPU"
_END = "end: "
_CPU_STATS = ("hlo_op", "hlo_module", "run_id", "device_ordinal")


def cpu_launches(
  space: xplane.Space, offset_us: float
) -> Mapping[int, list[trace_lib.Launch]]:
  """What each device of a process ran, by its number among all processes.

  Args:
    space: of the process.
    offset_us: that is added to times.
  """
  found: dict[int, list[trace_lib.Launch]] = collections.defaultdict(list)
  for plane in space.planes:
    if plane.name == _HOST_PLANE:
      for number, launch in _cpu_device_launches(plane, offset_us):
        found[number].append(launch)
  return {
    number: sorted(found[number], key=lambda launch: launch.begin_us)
    for number in sorted(found)
  }


def _cpu_device_launches(
  plane: xplane.Plane, offset_us: float
) -> Iterator[tuple[int, trace_lib.Launch]]:
  stats = xplane.Stats(plane.stat_names, _CPU_STATS)
  # What an event starts, and what it comes after.
  starts = xplane.Stats(plane.stat_names, ("_p",))
  follows = xplane.Stats(plane.stat_names, ("_c",))
  ends = {n for n, name in plane.event_names.items() if name.startswith(_END)}
  others: set[int] = set()
  ended_us: dict[xplane.Value, float] = {}
  ran: list[tuple[int, xplane.Value | None, trace_lib.Launch]] = []
  for serialized in plane.lines:
    line = xplane.line(serialized)
    line_us = offset_us + line.begin_ns / 1e3
    for event in xplane.events(line):
      if event.metadata_id in others:
        continue
      begin_us = line_us + event.offset_ps / 1e6
      if event.metadata_id in ends:
        if cause := follows.read(event.stats).get("_c"):
          ended_us[cause] = begin_us
        continue
      known = stats.read(event.stats)
      if "hlo_op" not in known:
        others.add(event.metadata_id)
        continue
      effect = starts.read(event.stats).get("_p")
      ran.append(
        (
          int(known.get("device_ordinal", 0)),
          effect,
          _cpu_launch(event, known, begin_us),
        )
      )
  for number, effect, launch in ran:
    until_us = None if effect is None else ended_us.get(effect)
    if until_us is not None and until_us > launch.end_us:
      launch = dataclasses.replace(launch, until_us=until_us)
    yield number, launch


def _cpu_launch(
  event: Any, stats: Mapping[str, xplane.Value], begin_us: float
) -> trace_lib.Launch:
  execution = stats.get("run_id")
  return trace_lib.Launch(
    hlo_op=str(stats["hlo_op"]),
    # All programs have the number 0.
    program_id=str(stats.get("hlo_module", "")),
    begin_us=begin_us,
    end_us=begin_us + event.duration_ps / 1e6,
    execution=None if execution is None else int(execution),
  )
