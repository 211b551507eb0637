# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Executions of a module on CPU devices: the steps that a trace tells apart.

XLA:CPU says of every instruction which execution it was part of. What leaves
its work to other threads has no end of its own: it is over when its last thread
says so, or when the first instruction that reads its result begins, whichever
comes first.
"""

from __future__ import annotations

import bisect
import collections
from collections.abc import Iterator, Mapping, Sequence

from lagom_xla.passes import dependencies
from lagom_xla.passes import hlo
from lagom_xla.passes import overlap as overlap_lib
from lagom_xla.profiling import events as events_lib
from lagom_xla.profiling import steps as steps_lib
from lagom_xla.profiling import trace as trace_lib

_Begins = Mapping[str, Sequence[float]]


def of_trace(
  trace: trace_lib.Trace,
  programs: Sequence[trace_lib.Program | None],
  analysis: overlap_lib.Analysis,
) -> list[steps_lib.DeviceStep]:
  """The steps of a module in a trace of CPUs, by device and time.

  Args:
    trace: with the module's launches.
    programs: the module in each process.
    analysis: of the module.
  """
  together = [
    _by_execution(device.launches, programs[device.process])
    for device in trace.devices
  ]
  begins_us: dict[int | None, float] = {}
  for executions in together:
    for execution, launches in executions.items():
      begin_us = begins_us.get(execution, launches[0].begin_us)
      begins_us[execution] = min(begin_us, launches[0].begin_us)
  in_order = sorted(begins_us, key=lambda execution: begins_us[execution])
  numbers = {execution: n for n, execution in enumerate(in_order)}
  readers = _readers(analysis.module)
  kernels = {kernel.name for kernel in analysis.kernels.values()}
  collectives = {collective.name for collective in analysis.collectives}
  found = []
  for device, executions in enumerate(together):
    most = max(map(len, executions.values()), default=0)
    for execution, launches in executions.items():
      events = list(_events(launches, readers))
      step = steps_lib.DeviceStep(
        device=device,
        number=numbers[execution],
        is_whole=len(launches) >= steps_lib.WHOLE * most,
        kernels=tuple(e for e in events if e.name in kernels),
        collectives=tuple(e for e in events if e.name in collectives),
      )
      if step.kernels:
        found.append(step)
  return found


def _by_execution(
  launches: Sequence[trace_lib.Launch], program: trace_lib.Program | None
) -> Mapping[int | None, list[trace_lib.Launch]]:
  found = collections.defaultdict(list)
  for launch in launches:
    if launch.program_id == program:
      found[launch.execution].append(launch)
  return found


def _events(
  launches: Sequence[trace_lib.Launch], readers: Mapping[str, frozenset[str]]
) -> Iterator[events_lib.Event]:
  """What ran in one execution on one device, by its start."""
  begins_us: dict[str, list[float]] = collections.defaultdict(list)
  for launch in launches:
    begins_us[launch.hlo_op].append(launch.begin_us)
  for launch in launches:
    end_us = launch.end_us
    if launch.until_us is not None:
      read_us = _first_us(readers[launch.hlo_op], begins_us, launch.end_us)
      end_us = min([launch.until_us, *read_us])
    yield events_lib.Event(
      name=launch.hlo_op, begin_us=launch.begin_us, end_us=end_us
    )


def _first_us(
  names: frozenset[str], begins_us: _Begins, after_us: float
) -> Iterator[float]:
  """When each of some instructions began next."""
  for name in names:
    begins = begins_us.get(name, ())
    index = bisect.bisect_left(begins, after_us)
    if index < len(begins):
      yield begins[index]


def _readers(module: hlo.Module) -> Mapping[str, frozenset[str]]:
  """Names of what reads a result, at once or renamed, by what computes it."""
  found: dict[str, frozenset[str]] = collections.defaultdict(frozenset)
  for computation in module.computations.values():
    users = dependencies.of(computation).users
    for instruction in computation.instructions:
      names, ahead = set(), list(users.get(instruction.id, ()))
      while ahead:
        user = computation.by_id[ahead.pop()]
        names.add(user.name)
        if user.opcode in ("bitcast", "get-tuple-element", "tuple"):
          ahead += users.get(user.id, ())
      found[instruction.name] = frozenset(names)
  return found
