# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Steps of a trace: its launches, joined to the scheduled module.

The module says which instructions launch, in which order, and how often. An
instruction that launches several kernels is one event. One that another only
wraps (the collective inside an async-start, a library call that reads and
writes slices in place) goes by the wrapper's name, as everywhere else.

A GPU's trace does not say where a step ends. In schedule order the first half
of a module's instructions comes before the second, so a kernel of the first
half after one of the second begins a step. Collectives run on streams of their
own and go to the step that runs then.
"""

from __future__ import annotations

import bisect
import collections
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
import dataclasses

from lagom_xla.passes import hlo
from lagom_xla.passes import overlap as overlap_lib
from lagom_xla.profiling import events as events_lib
from lagom_xla.profiling import trace as trace_lib

# A step has this share of the launches of the fullest one, or was cut off.
WHOLE = 0.9

# A launch with its instruction's name, or that of the one that wraps it.
_Named = tuple[str, trace_lib.Launch]


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class DeviceStep:
  """One step on one device.

  Attributes:
    device: index in the trace.
    number: the same on all devices.
    is_whole: whether the trace has it from its start to its end.
    kernels: by the time of their start.
    collectives: by the time of their start.
  """

  device: int
  number: int
  is_whole: bool
  kernels: tuple[events_lib.Event, ...]
  collectives: tuple[events_lib.Event, ...]

  @property
  def begin_us(self) -> float:
    """When it began."""
    return min(e.begin_us for e in (*self.kernels, *self.collectives))

  @property
  def end_us(self) -> float:
    """When all of it had ended."""
    return max(e.end_us for e in (*self.kernels, *self.collectives))


def wrappers(module: hlo.Module) -> Mapping[str, str]:
  """Names of instructions, by the names of those that they only wrap."""
  computations = module.computations
  return {
    inner.name: outer.name
    for computation in computations.values()
    for outer in computation.instructions
    if outer.opcode == "async-start" or outer.fusion_kind == "kCustom"
    for inner in computations[outer.called_computation_ids[0]].instructions
    if outer.opcode == "async-start" or inner.opcode == "custom-call"
  }


def of_trace(
  trace: trace_lib.Trace,
  programs: Sequence[trace_lib.Program | None],
  analysis: overlap_lib.Analysis,
) -> list[DeviceStep]:
  """The steps of a module in a trace, by device and time.

  Args:
    trace: with the module's launches.
    programs: id of the module in each process; None takes every launch.
    analysis: of the module.
  """
  names = wrappers(analysis.module)
  by_device = [
    list(
      _steps(index, device.launches, programs[device.process], names, analysis)
    )
    for index, device in enumerate(trace.devices)
  ]
  return _numbered(by_device)


def _steps(
  device: int,
  launches: Iterable[trace_lib.Launch],
  program: trace_lib.Program | None,
  names: Mapping[str, str],
  analysis: overlap_lib.Analysis,
) -> Iterator[DeviceStep]:
  kernels_of = {k.name: k.executions for k in analysis.kernels.values()}
  collectives_of = {c.name: c.executions for c in analysis.collectives}
  executions = {**kernels_of, **collectives_of}
  kernels, collectives = [], []
  for launch in launches:
    name = names.get(launch.hlo_op, launch.hlo_op)
    if program is not None and launch.program_id not in (None, program):
      continue
    if name in collectives_of:
      collectives.append((name, launch))
    elif name in kernels_of:
      kernels.append((name, launch))
  positions = _positions(analysis.module, {name for name, _ in kernels})
  parts = list(_split(kernels, positions))
  if not parts:
    return
  ends_us = [max(launch.end_us for _, launch in part) for part in parts]
  starts_us = [part[0][1].begin_us for part in parts]
  beside: list[list[_Named]] = [[] for _ in parts]
  middle = _positions(analysis.module, executions.keys())
  for name, launch in collectives:
    index = bisect.bisect_right(starts_us, launch.begin_us) - 1
    is_early = middle[name] < 0.5
    if is_early and (index < 0 or launch.begin_us >= ends_us[index]):
      index += 1
    if 0 <= index < len(parts):
      beside[index].append((name, launch))
  most = max(len(part) for part in parts)
  for number, (part, others) in enumerate(zip(parts, beside, strict=True)):
    yield DeviceStep(
      device=device,
      number=number,
      is_whole=len(part) >= WHOLE * most,
      kernels=tuple(_events(part, executions)),
      collectives=tuple(_events(others, executions)),
    )


def _positions(
  module: hlo.Module, wanted: Container[str]
) -> Mapping[str, float]:
  """Where in the schedule instructions come first: 0 to 1, by name."""
  order: list[str] = []

  def visit(computation: hlo.Computation) -> None:
    for instruction in computation.instructions:
      if instruction.name in wanted:
        order.append(instruction.name)
      for callee, _ in module.callees(instruction):
        visit(callee)

  visit(module.entry)
  found: dict[str, float] = {}
  for index, name in enumerate(order):
    found.setdefault(name, index / max(len(order) - 1, 1))
  return found


def _split(
  kernels: Sequence[_Named],
  positions: Mapping[str, float],
) -> Iterator[list[_Named]]:
  part: list[_Named] = []
  furthest = 0.0
  for name, launch in kernels:
    position = positions[name]
    if part and position < 0.5 <= furthest and furthest - position >= 0.5:
      yield part
      part, furthest = [], 0.0
    part.append((name, launch))
    furthest = max(furthest, position)
  if part:
    yield part


def _events(
  launches: Sequence[_Named], executions: Mapping[str, int]
) -> Iterator[events_lib.Event]:
  """Events, by their start.

  An instruction that launches several kernels does so each time that it runs.
  Its launches with no other instruction's between them are one event, unless it
  ran more often than that: it is alone in a loop then, and each time has as
  many launches. Where that does not come out even, some were lost, and each
  launch is an event.
  """
  runs: dict[str, list[list[trace_lib.Launch]]] = collections.defaultdict(list)
  last = ""
  for name, launch in launches:
    if name != last:
      runs[name].append([])
    runs[name][-1].append(launch)
    last = name
  found = []
  for name, together in runs.items():
    times = executions[name]
    if len(together) < times:
      ran = [launch for run in together for launch in run]
      size = len(ran) // times if len(ran) % times == 0 else 1
      together = [ran[i : i + size] for i in range(0, len(ran), size)]
    found += [_event(name, run) for run in together]
  yield from sorted(found, key=lambda event: event.begin_us)


def _event(name: str, launches: Sequence[trace_lib.Launch]) -> events_lib.Event:
  grids = [launch.grid for launch in launches if launch.grid]
  return events_lib.Event(
    name=name,
    begin_us=launches[0].begin_us,
    end_us=max(launch.end_us for launch in launches),
    num_blocks=max((x * y * z for x, y, z in grids), default=None),
  )


def _numbered(by_device: Sequence[list[DeviceStep]]) -> list[DeviceStep]:
  """Steps with the numbers of those that ran at the same time elsewhere."""
  reference = max(by_device, key=len, default=[])
  starts_us = [step.begin_us for step in reference]
  numbered = []
  for steps in by_device:
    if len(steps) == len(reference):
      numbered += steps
      continue
    for step in steps:
      distances = [abs(step.begin_us - us) for us in starts_us]
      number = distances.index(min(distances))
      numbered.append(dataclasses.replace(step, number=number))
  return numbered
