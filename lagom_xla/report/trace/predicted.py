# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""A predicted step as a process of a trace."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lagom_xla.costs import in_words
from lagom_xla.costs import step as step_lib
from lagom_xla.costs.replay import recorder
from lagom_xla.report.trace import events as events_lib
from lagom_xla.report.wording import instructions as instructions_lib

# The thread of starts and dones, which the compute stream reaches in order.
_SCHEDULE = "starts and dones"

Instructions = Mapping[str, instructions_lib.Instruction]


def of_step(
  number: int,
  name: str,
  step: step_lib.Step,
  configuration: step_lib.Configuration,
) -> events_lib.Process:
  """A step under NCCL settings.

  Args:
    number: of the process in the trace.
    name: "before" or the like.
    step: the step.
    configuration: the settings.
  """
  return process(
    number,
    f"{name} ({step.basis})",
    recorder.record(step.program, step.costs(configuration)),
    instructions_lib.of_step(step),
  )


def process(
  number: int,
  name: str,
  recorded: recorder.Recording,
  instructions: Instructions,
) -> events_lib.Process:
  """A step, its streams as threads.

  Args:
    number: of the process in the trace.
    name: of it, such as "before (predicted)".
    recorded: what ran when.
    instructions: the step's, by name.
  """
  made = events_lib.Process(number, name)
  for ran in recorded.slices:
    made.slice(
      ran.stream,
      title(ran),
      ran.begin_us,
      ran.end_us,
      _arguments(ran, instructions),
    )
  _flows(made, recorded)
  _counters(made, recorded)
  return made


def title(ran: recorder.Slice) -> str:
  """What a slice is called."""
  if ran.kind == "folded":
    return f"{in_words.count(ran.num_trips, 'more trip')} like the one before"
  return f"wait for {ran.name}" if ran.kind == "wait" else ran.name


def _arguments(
  ran: recorder.Slice, instructions: Instructions
) -> dict[str, Any]:
  known = instructions.get(ran.name)
  arguments: dict[str, Any] = {}
  if known is not None:
    arguments |= {
      "HLO instruction": ran.name,
      "what": known.what,
      "bytes": known.num_bytes,
      "runs per step": known.executions,
      "source": str(known.source),
      "called from": " < ".join(
        f"{frame} {frame.function}" for frame in known.source.frames[1:6]
      ),
    }
  if ran.kind in ("kernel", "collective", "copy"):
    arguments["alone us"] = ran.lone_us
  if ran.kind == "collective":
    arguments["channels"] = ran.num_channels
  if ran.kind == "folded":
    arguments |= {"kernels alone us": ran.lone_us, "waits us": ran.wait_us}
  for name, lost_us in ran.lost_us:
    arguments[f"lost us to {name}"] = lost_us
  return arguments


def _flows(made: events_lib.Process, recorded: recorder.Recording) -> None:
  """From each start to its collective or copy, and on to its done."""
  moved = [s for s in recorded.slices if s.kind in ("collective", "copy")]
  marks = [(s.issued_us, 0, i, s) for i, s in enumerate(moved)]
  marks += [(s.done_us, 1, i, s) for i, s in enumerate(moved)]
  at_us: dict[tuple[int, int], float] = {}
  for us, is_done, index, ran in sorted(marks, key=lambda mark: mark[:3]):
    name = f"{ran.name} {'done' if is_done else 'start'}"
    at_us[is_done, index] = made.mark(_SCHEDULE, name, us)
  for index, ran in enumerate(moved):
    places = [
      (_SCHEDULE, at_us[0, index]),
      (ran.stream, ran.begin_us),
      (_SCHEDULE, at_us[1, index]),
    ]
    made.flow(index, places)


def _counters(made: events_lib.Process, recorded: recorder.Recording) -> None:
  exposed_us = 0.0
  made.counter("exposed ms so far", 0.0, 0.0)
  made.counter("channels in use", 0.0, 0)
  for ran in recorded.slices:
    if ran.kind == "collective":
      made.counter("channels in use", ran.begin_us, ran.num_channels)
      made.counter("channels in use", ran.end_us, 0)
    elif ran.kind == "wait" or ran.wait_us:
      exposed_us += ran.wait_us or ran.time_us
      made.counter("exposed ms so far", ran.end_us, exposed_us / 1e3)
