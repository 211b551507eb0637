# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Traces for ui.perfetto.dev: predicted and measured steps, side by side.

The format is Chrome's Trace Event Format: complete slices (ph "X"), flows from
one slice to others ("s", "t", "f"), counters ("C") and names ("M"). Times are
in microseconds. Slices of one thread are nested or disjoint.
"""

from __future__ import annotations

import collections
from collections.abc import Iterator, Mapping, Sequence
import gzip
import json
import pathlib
import statistics
from typing import Any

from lagom_xla import errors
from lagom_xla.costs import in_words
from lagom_xla.costs import step as step_lib
from lagom_xla.costs.replay import recorder
from lagom_xla.profiling import events as profiled_events
from lagom_xla.profiling import profile as profile_lib
from lagom_xla.profiling import steps as steps_lib
from lagom_xla.report import instructions as instructions_lib
from lagom_xla.validation import whole_files

Event = Mapping[str, Any]

# Length of a mark: the shortest slice that you can find in the viewer.
_MARK_US = 1e-3


class Process:
  """The events of one process; each thread is a stream.

  Attributes:
    events: the events added so far.
  """

  def __init__(self, number: int, name: str):
    self.events: list[Event] = []
    self._number = number
    self._threads: dict[str, int] = {}
    self._marked_us: dict[str, float] = {}
    self._name("process", name, number, thread=0)

  def slice(
    self,
    thread: str,
    name: str,
    begin_us: float,
    end_us: float,
    arguments: Mapping[str, Any],
  ) -> None:
    """Adds a slice: an event on a stream, with begin and end."""
    self._add(
      "X",
      thread,
      name,
      ts=begin_us,
      dur=end_us - begin_us,
      args={k: v for k, v in arguments.items() if v not in ("", None)},
    )

  def mark(self, thread: str, name: str, at_us: float) -> float:
    """Adds an instant as a very short slice, after others at the same time.

    Returns:
      The slice's begin in microseconds, for flows.
    """
    at_us = max(at_us, self._marked_us.get(thread, at_us))
    self._marked_us[thread] = at_us + _MARK_US
    self.slice(thread, name, at_us, at_us + _MARK_US, {})
    return at_us

  def flow(self, number: int, places: Sequence[tuple[str, float]]) -> None:
    """Connects the slices on these threads at these times by a flow."""
    last = len(places) - 1
    # Unique in the whole trace.
    of_flow = {"id": self._number * 10_000_000 + number, "cat": "flow"}
    for index, (thread, at_us) in enumerate(places):
      phase = "s" if index == 0 else "f" if index == last else "t"
      self._add(phase, thread, "start to done", ts=at_us, **of_flow, bp="e")

  def counter(self, name: str, at_us: float, value: float) -> None:
    """Sets a counter from `at_us` on."""
    self._event("C", name, ts=at_us, args={"value": value})

  def _event(self, phase: str, name: str, **more: Any) -> None:
    self.events.append({"ph": phase, "name": name, "pid": self._number, **more})

  def _add(self, phase: str, thread: str, name: str, **more: Any) -> None:
    if thread not in self._threads:
      number = self._threads[thread] = len(self._threads) + 1
      self._name("thread", thread, number, number)
    self._event(phase, name, tid=self._threads[thread], **more)

  def _name(self, of: str, name: str, order: int, thread: int) -> None:
    for what, arguments in (
      ("name", {"name": name}),
      ("sort_index", {"sort_index": order}),
    ):
      self._event("M", f"{of}_{what}", tid=thread, args=arguments)


def write(path: pathlib.Path, processes: Sequence[Process]) -> None:
  """Writes a trace, compressed if the name ends in .gz.

  Raises:
    OutputError: it cannot be written.
  """
  events = [event for process in processes for event in process.events]
  text = json.dumps({"displayTimeUnit": "ms", "traceEvents": events})
  data = text.encode()
  if path.suffix == ".gz":
    # No timestamp, so that the same step makes the same file.
    data = gzip.compress(data, compresslevel=6, mtime=0)
  try:
    whole_files.write(path, data)
  except OSError as error:
    raise errors.OutputError(
      f"The trace {path} cannot be written: {error.strerror}."
    ) from error


# The thread of starts and dones, in the order of the compute stream.
_SCHEDULE = "starts and dones"

_Instructions = Mapping[str, instructions_lib.Instruction]


def predicted(
  number: int,
  name: str,
  step: step_lib.Step,
  configuration: step_lib.Configuration,
) -> Process:
  """A step under NCCL settings, as process `number` of the trace."""
  return of_recording(
    number,
    f"{name} ({step.basis})",
    recorder.record(step.program, step.costs(configuration)),
    instructions_lib.of_step(step),
  )


def of_recording(
  number: int,
  name: str,
  recorded: recorder.Recording,
  instructions: _Instructions,
) -> Process:
  """A recorded step: streams as threads, with flows and waits."""
  process = _drawn(number, name, recorded.slices, instructions)
  # Flows from each start to its collective or copy, and on to its done.
  moved = [s for s in recorded.slices if s.kind in ("collective", "copy")]
  marks = [(s.issued_us, False, i) for i, s in enumerate(moved)]
  marks += [(s.done_us, True, i) for i, s in enumerate(moved)]
  at_us = {
    (is_done, i): process.mark(
      _SCHEDULE, f"{moved[i].name} {'done' if is_done else 'start'}", us
    )
    for us, is_done, i in sorted(marks)
  }
  for i, piece in enumerate(moved):
    start, done = ((_SCHEDULE, at_us[is_done, i]) for is_done in (False, True))
    process.flow(i, [start, (piece.stream, piece.begin_us), done])
  exposed_us = 0.0
  process.counter("exposed ms so far", 0.0, 0.0)
  for piece in recorded.slices:
    if piece.wait_us:
      exposed_us += piece.wait_us
      process.counter("exposed ms so far", piece.end_us, exposed_us / 1e3)
  return process


def measured(first: int, profile: profile_lib.Profile) -> Iterator[Process]:
  """A step of a profile, one process per GPU, numbered from `first` on."""
  instructions = instructions_lib.of_analysis(
    profile.analysis, profile.trace.platform
  )
  steps = median_step(profile)
  begin_us = min((step.begin_us for step in steps), default=0.0)
  for number, step in enumerate(steps, start=first):
    device = profile.trace.devices[step.device]
    slices = [
      recorder.Slice(
        stream=thread,
        kind=kind,
        name=event.name,
        begin_us=event.begin_us - begin_us,
        end_us=event.end_us - begin_us,
        num_channels=event.num_blocks or 0,
      )
      for stream, kind, events in (
        (recorder.COMPUTE, "kernel", step.kernels),
        (recorder.COMMUNICATION, "collective", step.collectives),
      )
      for thread, event in _threads(stream, events)
    ]
    name = f"measured: {device.name}, step {step.number}"
    yield _drawn(number, name, slices, instructions)


def _drawn(
  number: int,
  name: str,
  slices: Sequence[recorder.Slice],
  instructions: _Instructions,
) -> Process:
  """The streams' slices, with a counter of the channels in use."""
  made = Process(number, name)
  changes = []
  for ran in slices:
    title = f"wait for {ran.name}" if ran.kind == "wait" else ran.name
    if ran.kind == "folded":
      trips = in_words.count(ran.num_trips, "more trip")
      title = f"{trips} like the one before"
    told = _arguments(ran, instructions)
    made.slice(ran.stream, title, ran.begin_us, ran.end_us, told)
    if ran.kind == "collective":
      changes.append((ran.begin_us, ran.num_channels))
      changes.append((ran.end_us, -ran.num_channels))
  in_use = 0
  for at_us, change in ((0.0, 0), *sorted(changes)):
    in_use += change
    made.counter("channels in use", at_us, in_use)
  return made


def _arguments(
  ran: recorder.Slice, instructions: _Instructions
) -> dict[str, Any]:
  arguments: dict[str, Any] = {}
  if (known := instructions.get(ran.name)) is not None:
    arguments |= {
      "HLO instruction": ran.name,
      "what": known.words,
      "bytes": known.num_bytes,
      "runs per step": known.executions,
      "source": str(known.source),
      "called from": " < ".join(
        f"{frame} {frame.function}" for frame in known.source.frames[1:6]
      ),
    }
  if ran.kind == "folded":
    arguments |= {"kernels alone us": ran.lone_us, "waits us": ran.wait_us}
  else:
    arguments["alone us"] = ran.lone_us or None
    held = "thread blocks" if ran.kind == "kernel" else "channels"
    arguments[held] = ran.num_channels or None
  for name, lost_us in ran.lost_us:
    arguments[f"us slowed by {name}"] = lost_us
  return arguments


def median_step(
  profile: profile_lib.Profile,
) -> Sequence[steps_lib.DeviceStep]:
  """The step of median length, on each GPU with a complete record."""
  by_number = collections.defaultdict(list)
  for step in profile.whole_steps:
    by_number[step.number].append(step)
  ranked = sorted(
    by_number.values(),
    key=lambda steps: statistics.mean(s.end_us - s.begin_us for s in steps),
  )
  return ranked[(len(ranked) - 1) // 2] if ranked else ()


def _threads(
  stream: str, events: Sequence[profiled_events.Event]
) -> Iterator[tuple[str, profiled_events.Event]]:
  """Events with threads: the fewest threads without overlaps."""
  ends_us: list[float] = []
  for event in sorted(events, key=lambda e: e.begin_us):
    free = (i for i, end_us in enumerate(ends_us) if end_us <= event.begin_us)
    index = next(free, len(ends_us))
    ends_us[index : index + 1] = [event.end_us]
    yield (stream if not index else f"{stream} {index + 1}"), event
