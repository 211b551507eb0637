# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""The drawing of a recorded step: its slices as columns, its labels once each.

Times are kept to a nanosecond.
"""

from __future__ import annotations

from collections.abc import Mapping

from lagom_xla.costs.replay import recording as recording_lib
from lagom_xla.costs.replay import timeline as timeline_lib
from lagom_xla.report import instructions as instructions_lib
from lagom_xla.report.page import story as story_lib

_DIGITS = 3

Instructions = Mapping[str, instructions_lib.Instruction]


def picture(
  name: str,
  recorded: recording_lib.Recording,
  replayed: timeline_lib.Timeline,
  instructions: Instructions,
) -> story_lib.Picture:
  """A step, drawn.

  Args:
    name: "before" or "after".
    recorded: what ran when.
    replayed: the timeline of the same.
    instructions: the step's, by name.
  """
  labels = _Labels(instructions)
  streams = tuple(
    _stream(name, recorded, labels)
    for name in recorded.streams
    if any(ran.stream == name for ran in recorded.slices)
  )
  return story_lib.Picture(
    name=name,
    step_us=replayed.step_time_us,
    kernel_us=replayed.kernel_us,
    slowdown_us=replayed.total_slowdown_us + replayed.total_copy_slowdown_us,
    wait_us=replayed.total_exposed_us + replayed.total_copy_wait_us,
    labels=tuple(labels.found),
    streams=streams,
    detail_us=_costliest_trip(recorded),
  )


def label(name: str, instructions: Instructions) -> story_lib.Label:
  """An instruction in words."""
  known = instructions.get(name)
  if known is None:
    return story_lib.Label(name=name, what="", source="")
  return story_lib.Label(name=name, what=known.what, source=str(known.source))


class _Labels:
  """Words of instructions, each kept once."""

  def __init__(self, instructions: Instructions):
    self.found: list[story_lib.Label] = []
    self._index: dict[str, int] = {}
    self._instructions = instructions

  def __getitem__(self, name: str) -> int:
    if not name:
      return -1
    if name not in self._index:
      self._index[name] = len(self.found)
      self.found.append(label(name, self._instructions))
    return self._index[name]


def _stream(
  name: str, recorded: recording_lib.Recording, labels: _Labels
) -> story_lib.Stream:
  ran = [s for s in recorded.slices if s.stream == name]
  return story_lib.Stream(
    name=name,
    begin_us=tuple(round(s.begin_us, _DIGITS) for s in ran),
    end_us=tuple(round(s.end_us, _DIGITS) for s in ran),
    kind=tuple(s.kind for s in ran),
    label=tuple(labels[s.name] for s in ran),
    lone_us=tuple(round(s.lone_us, _DIGITS) for s in ran),
    num_trips=tuple(s.num_trips for s in ran),
    wait_us=tuple(round(s.wait_us, _DIGITS) for s in ran),
    beside=tuple(_beside(s, labels) for s in ran),
  )


def _beside(
  ran: recording_lib.Slice, labels: _Labels
) -> tuple[tuple[int, float], ...]:
  if ran.kind == "folded":
    lost_us = sum(us for _, us in ran.lost_us)
    return ((-1, round(lost_us, _DIGITS)),)
  return tuple((labels[name], round(us, _DIGITS)) for name, us in ran.lost_us)


def _costliest_trip(
  recorded: recording_lib.Recording,
) -> tuple[float, float] | None:
  """The last trip before the fold that loses most; the longest if none does."""
  folds = [
    ran
    for ran in recorded.slices
    if ran.kind == "folded" and ran.stream == recording_lib.COMPUTE
  ]
  if not folds:
    return None
  fold = max(
    folds, key=lambda f: (f.wait_us + sum(us for _, us in f.lost_us), f.time_us)
  )
  return fold.begin_us - fold.time_us / fold.num_trips, fold.begin_us
