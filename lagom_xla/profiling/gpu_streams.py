# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Streams of GPUs: what they launched, from a process's XSpace.

Only streams count; lines such as "XLA Ops" or "Steps" are derived from them by
other tools. An event's name is its kernel's, not its instruction's.
"""

from __future__ import annotations

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
_WANTED = ("hlo_op", "program_id", "kernel_details")


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


def of_space(space: xplane.Space) -> Iterator[Stream]:
  """The streams of all GPUs of a process."""
  for plane in space.planes:
    if match := _DEVICE.match(plane.name):
      stats = xplane.Stats(plane.stat_names, _WANTED)
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


def device(
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
        launches.append(_launch(stream, event, stats, offset_us))
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


def _launch(
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
