# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Programs of a trace: which of those that ran is the step, and its module."""

from __future__ import annotations

import collections
from collections.abc import Iterable, Sequence

from lagom_xla import errors
from lagom_xla.passes import hlo
from lagom_xla.profiling import trace as trace_lib

# A module that knows less of a program's launches is another program's.
_KNOWN = 0.5

_Program = trace_lib.Program


def of_step(
  trace: trace_lib.Trace, module: hlo.Module | None
) -> tuple[list[_Program | None], hlo.Module]:
  """The step's program in each process, and its module.

  Args:
    trace: of a run; of several programs that ran, the step is the one that took
      the most time.
    module: the step's, scheduled; None for the one in the trace.

  Raises:
    TraceError: the trace has no module, or the module is another one's.
    HloError: the trace's module is damaged.
  """
  names = None if module is None else _names(module)
  programs = [
    _longest(trace, process, names) for process in range(len(trace.processes))
  ]
  if module is None:
    module = _module(trace, programs)
    names = _names(module)
    # Also in processes that ran something else for longer.
    for process in range(len(programs)):
      program = _longest(trace, process, names)
      if program is not None:
        programs[process] = program
  _check(trace, programs, module)
  return programs, module


def _names(module: hlo.Module) -> frozenset[str]:
  return frozenset(
    i.name for c in module.computations.values() for i in c.instructions
  )


def _longest(
  trace: trace_lib.Trace, process: int, names: frozenset[str] | None
) -> _Program | None:
  """The program that took the most time in a process, of known instructions."""
  times_us: dict[_Program | None, float] = collections.defaultdict(float)
  for device in trace.devices:
    if device.process == process:
      for launch in device.launches:
        if names is None or launch.hlo_op in names:
          times_us[launch.program_id] += launch.end_us - launch.begin_us
  return max(times_us, key=lambda p: times_us[p], default=None)


def _module(
  trace: trace_lib.Trace, programs: Sequence[_Program | None]
) -> hlo.Module:
  for number, process in enumerate(trace.processes):
    program = programs[number]
    if program is not None and program in process.modules:
      ran = _ran(trace, programs)[number]
      found = [hlo.load(proto) for proto in process.modules[program]]
      return max(found, key=lambda module: _num_known(_names(module), ran))
  raise errors.TraceError(
    "The trace does not hold the module that ran (ProfileOptions"
    ".enable_hlo_proto was off): name its scheduled HLO with --module=FILE, as"
    " --xla_dump_to writes it."
  )


def _ran(
  trace: trace_lib.Trace, programs: Sequence[_Program | None]
) -> list[list[str]]:
  """The instructions of the step's launches, by process."""
  ran: list[list[str]] = [[] for _ in trace.processes]
  for device in trace.devices:
    ran[device.process] += [
      launch.hlo_op
      for launch in device.launches
      if launch.program_id == programs[device.process]
    ]
  return ran


def _num_known(names: frozenset[str], ran: Iterable[str]) -> int:
  return sum(name in names for name in ran)


def _check(
  trace: trace_lib.Trace,
  programs: Sequence[_Program | None],
  module: hlo.Module,
) -> None:
  names = _names(module)
  by_process = _ran(trace, programs)
  for process, ran in zip(trace.processes, by_process, strict=True):
    num_known = _num_known(names, ran)
    if num_known < _KNOWN * len(ran) or not any(by_process):
      raise errors.TraceError(
        f"The trace of {process.name} is of another step than {module.name}: of"
        f" {len(ran):,} launches it names {num_known:,}. Give the trace of this"
        " step, compiled by the same versions with the same flags, in a folder"
        " with no other one's."
      )
  if not module.is_scheduled:
    raise errors.TraceError(
      f"{module.name} is not scheduled: give the module after optimizations."
    )
