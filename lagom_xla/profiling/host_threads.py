# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Threads of a host on which XLA:CPU ran instructions, from an XSpace.

Every instruction is an event on the thread that ran it, with the device and the
execution of the module that it belongs to; its number is the same on the
devices of all processes. A device's collectives wait on threads of their own,
so it goes on with what does not need them.

A large product leaves its work to other threads: its event is over when that
has begun. An event "end: NAME" follows when it is done, late, because what
waited for it runs first on the same thread. `steps` has what is closer.
"""

from __future__ import annotations

import collections
from collections.abc import Iterator, Mapping
import dataclasses
from typing import Any

from lagom_xla.profiling import trace as trace_lib
from lagom_xla.profiling import xplane

_PLANE = "/host:CPU"
_END = "end: "
_WANTED = ("hlo_op", "hlo_module", "run_id", "device_ordinal")


def by_device(
  space: xplane.Space, offset_us: float
) -> Mapping[int, list[trace_lib.Launch]]:
  """What each device of a process ran, by its number among all processes.

  Args:
    space: of the process.
    offset_us: that is added to times.
  """
  found: dict[int, list[trace_lib.Launch]] = collections.defaultdict(list)
  for plane in space.planes:
    if plane.name == _PLANE:
      for number, launch in _launches(plane, offset_us):
        found[number].append(launch)
  return {
    number: sorted(found[number], key=lambda launch: launch.begin_us)
    for number in sorted(found)
  }


def _launches(
  plane: xplane.Plane, offset_us: float
) -> Iterator[tuple[int, trace_lib.Launch]]:
  stats = xplane.Stats(plane.stat_names, _WANTED)
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
          _launch(event, known, begin_us),
        )
      )
  for number, effect, launch in ran:
    until_us = None if effect is None else ended_us.get(effect)
    if until_us is not None and until_us > launch.end_us:
      launch = dataclasses.replace(launch, until_us=until_us)
    yield number, launch


def _launch(
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
