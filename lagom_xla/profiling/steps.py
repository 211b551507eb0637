# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Steps of a trace: its launches, joined to the scheduled module.

The module gives the instructions that launch kernels, their order, and their
number of runs. All kernels of one instruction are one event. A wrapped
instruction (the collective inside an async-start, a library call that reads and
writes slices in place) has the name of its wrapper. An async-start of several
collectives, a NCCL group, is split into one event for each, one after the
other, with times in proportion to their bytes.

A GPU's trace does not mark the end of a step. In schedule order, the first half
of a module's instructions comes before the second. So a kernel of the first
half after one of the second begins a step. Collectives run on their own
streams, and belong to the step that runs at the same time.

XLA:CPU records the execution of every instruction. An instruction that hands
its work to other threads has no end of its own. It ends when its last thread
reports the end, or when the first reader of its result begins, whichever comes
first.
"""

from __future__ import annotations

import bisect
import collections
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
import dataclasses

from lagom_xla import errors
from lagom_xla.passes import collectives as collectives_lib
from lagom_xla.passes import dependencies
from lagom_xla.passes import hlo
from lagom_xla.passes import overlap as overlap_lib
from lagom_xla.profiling import events as events_lib
from lagom_xla.profiling import trace as trace_lib

# A module is the program's if it has at least this share of its launches.
_KNOWN = 0.5

_Program = trace_lib.Program


def programs_of(
  trace: trace_lib.Trace, module: hlo.Module | None
) -> tuple[list[_Program | None], hlo.Module]:
  """The step's program in each process, and its module.

  Arguments and errors are those of `profile.of_trace`.
  """
  if module is None:
    module = _module_of(trace)
  names = _names(module)
  # A process may have run another program for longer.
  programs = [
    _longest(trace, process, names) or _longest(trace, process)
    for process in range(len(trace.processes))
  ]
  by_process = [
    _ran(trace, process, program) for process, program in enumerate(programs)
  ]
  for process, ran in zip(trace.processes, by_process, strict=True):
    num_known = sum(map(names.__contains__, ran))
    if num_known < _KNOWN * len(ran) or not any(by_process):
      raise errors.TraceError(
        f"The trace of {process.name} is not of {module.name}: only"
        f" {num_known:,} of its {len(ran):,} launches are in that module. Pass"
        " the trace of this step, compiled by the same versions with the same"
        " flags, in a folder without other traces."
      )
  if not module.is_scheduled:
    raise errors.TraceError(
      f"{module.name} is not scheduled: pass a dump after_optimizations."
    )
  return programs, module


def _names(module: hlo.Module) -> frozenset[str]:
  return frozenset(i.name for i in module.instructions)


def _longest(
  trace: trace_lib.Trace, process: int, names: frozenset[str] | None = None
) -> _Program | None:
  """The program with the longest total time in a process.

  If `names` is given, counts only these instructions.
  """
  times_us: dict[_Program | None, float] = collections.defaultdict(float)
  for device in trace.devices:
    if device.process == process:
      for launch in device.launches:
        if names is None or launch.hlo_op in names:
          times_us[launch.program_id] += launch.end_us - launch.begin_us
  return max(times_us, key=lambda p: times_us[p], default=None)


def _module_of(trace: trace_lib.Trace) -> hlo.Module:
  """The module of the program with the longest total time.

  Raises a TraceError if the trace lacks it.
  """
  for number, process in enumerate(trace.processes):
    program = _longest(trace, number)
    if program is not None and program in process.modules:
      ran = _ran(trace, number, program)
      found = [hlo.load(proto) for proto in process.modules[program]]
      return max(found, key=lambda m: sum(map(_names(m).__contains__, ran)))
  raise errors.TraceError(
    "The trace lacks the module that ran (ProfileOptions.enable_hlo_proto was"
    " off): pass its scheduled HLO, which --xla_dump_to writes, with"
    " --module=FILE."
  )


def _ran(
  trace: trace_lib.Trace, process: int, program: _Program | None
) -> list[str]:
  """The instructions of a program's launches in a process."""
  return [
    launch.hlo_op
    for device in trace.devices
    if device.process == process
    for launch in device.launches
    if launch.program_id == program
  ]


# A complete step has at least this share of the launches of the fullest step.
WHOLE = 0.9

# The name of an instruction or its wrapper, and a launch.
_Named = tuple[str, trace_lib.Launch]


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class DeviceStep:
  """One step on one device.

  Attributes:
    device: index of the device in the trace.
    number: number of the step, the same on all devices.
    is_whole: whether the trace has the complete step.
    kernels: its kernels, by start time.
    collectives: its collectives, by start time.
  """

  device: int
  number: int
  is_whole: bool
  kernels: tuple[events_lib.Event, ...]
  collectives: tuple[events_lib.Event, ...]

  @property
  def begin_us(self) -> float:
    """The start of its first event."""
    return min(e.begin_us for e in (*self.kernels, *self.collectives))

  @property
  def end_us(self) -> float:
    """The end of its last event."""
    return max(e.end_us for e in (*self.kernels, *self.collectives))


def wrappers(module: hlo.Module) -> Mapping[str, str]:
  """Wrapped instruction -> wrapper, by name."""
  computations = module.computations
  return {
    inner.name: outer.name
    for computation in computations.values()
    for outer in computation.instructions
    if outer.opcode == "async-start" or outer.fusion_kind == "kCustom"
    for inner in computations[outer.called_computation_ids[0]].instructions
    if outer.opcode == "async-start" or inner.opcode == "custom-call"
  }


def of_gpus(
  trace: trace_lib.Trace,
  programs: Sequence[_Program | None],
  analysis: overlap_lib.Analysis,
) -> list[DeviceStep]:
  """The steps of a module in a trace of GPUs, by device and time.

  `programs` has the module's number in each process; None takes every launch.
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
  program: _Program | None,
  names: Mapping[str, str],
  analysis: overlap_lib.Analysis,
) -> Iterator[DeviceStep]:
  kernels_of = {k.name: k.executions for k in analysis.kernels.values()}
  collectives_of = {c.name: c.executions for c in analysis.collectives}
  groups = _groups(analysis)
  for start, members in groups.items():
    collectives_of[start] = members[0].executions
    names = {**{c.name.partition("/")[2]: start for c in members}, **names}
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
      collectives=tuple(_of_members(_events(others, executions), groups)),
    )


_Groups = Mapping[str, Sequence[collectives_lib.Collective]]


def _groups(analysis: overlap_lib.Analysis) -> _Groups:
  """Groups of collectives, by the name of the instruction that starts them."""
  return {
    members[0].name.partition("/")[0]: members
    for members in analysis.started_by.values()
    if members[1:]
  }


def _of_members(
  events: Iterable[events_lib.Event], groups: _Groups
) -> Iterator[events_lib.Event]:
  """Events, with groups split into their collectives."""
  for event in events:
    begin_us, members = event.begin_us, groups.get(event.name, ())
    left_bytes = sum(c.nccl_bytes for c in members)
    for member in members:
      share = member.nccl_bytes / left_bytes if left_bytes else 1.0
      end_us = begin_us + share * (event.end_us - begin_us)
      yield dataclasses.replace(
        event, name=member.name, begin_us=begin_us, end_us=end_us
      )
      begin_us, left_bytes = end_us, left_bytes - member.nccl_bytes
    if not members:
      yield event


def _positions(
  module: hlo.Module, wanted: Container[str]
) -> Mapping[str, float]:
  """First position of each instruction in the schedule, 0 to 1, by name."""
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
  """Events, by start time.

  An instruction may launch several kernels per run. Consecutive launches are
  one event. If that gives fewer events than runs, the instruction is alone in a
  loop, and all runs have equally many launches. If the launches do not divide
  evenly, some were lost, and each launch is an event.
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
  """Steps numbered like the steps of other devices at the same time."""
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


def of_cpus(
  trace: trace_lib.Trace,
  programs: Sequence[_Program | None],
  analysis: overlap_lib.Analysis,
) -> list[DeviceStep]:
  """The steps of a module in a trace of CPUs, by device and time."""
  together: list[dict[int | None, list[trace_lib.Launch]]] = []
  for device in trace.devices:
    by_execution = collections.defaultdict(list)
    for launch in device.launches:
      if launch.program_id == programs[device.process]:
        by_execution[launch.execution].append(launch)
    together.append(by_execution)
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
      events = list(_cpu_events(launches, readers))
      step = DeviceStep(
        device=device,
        number=numbers[execution],
        is_whole=len(launches) >= WHOLE * most,
        kernels=tuple(e for e in events if e.name in kernels),
        collectives=tuple(e for e in events if e.name in collectives),
      )
      if step.kernels:
        found.append(step)
  return found


def _cpu_events(
  launches: Sequence[trace_lib.Launch], readers: Mapping[str, frozenset[str]]
) -> Iterator[events_lib.Event]:
  """The events of one execution on one device, by start time."""
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
  names: frozenset[str],
  begins_us: Mapping[str, Sequence[float]],
  after_us: float,
) -> Iterator[float]:
  """The next start of each instruction after `after_us`."""
  for name in names:
    begins = begins_us.get(name, ())
    index = bisect.bisect_left(begins, after_us)
    if index < len(begins):
      yield begins[index]


def _readers(module: hlo.Module) -> Mapping[str, frozenset[str]]:
  """Instruction -> the instructions that read its result, by name.

  Includes readers through bitcasts, tuples and their elements.
  """
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
