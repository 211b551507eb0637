# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""HLO modules that a trace carries: the profiler's "/host:metadata" plane.

It is an event for each program, whose name is the module's with the program's
number behind it. Launches of XLA:CPU do not tell that number, so modules go by
their names, too; of two programs of one name either may be what ran.
"""

from __future__ import annotations

import collections
from collections.abc import Mapping, Sequence
import re

from lagom_xla.profiling import trace as trace_lib
from lagom_xla.profiling import xplane

PLANE = "/host:metadata"
_PROGRAM = re.compile(r"(.*)\((\d+)\)$")


def by_program(
  plane: xplane.Plane,
) -> Mapping[trace_lib.Program, Sequence[bytes]]:
  """HloProtos by program, and by the module's name.

  Args:
    plane: that is called `PLANE`.
  """
  found = collections.defaultdict[trace_lib.Program, list[bytes]](list)
  reader = xplane.Stats(plane.stat_names, plane.stat_names.values())
  for number, stats in plane.event_stats.items():
    program = _PROGRAM.match(plane.event_names[number])
    values = reader.read(stats).values()
    proto = next((value for value in values if isinstance(value, bytes)), None)
    if program and proto is not None:
      found[program[1]].append(proto)
      found[int(program[2])].append(proto)
  return found
