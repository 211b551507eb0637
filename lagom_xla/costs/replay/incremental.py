# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""The incremental replay: only what a change of settings reaches runs again.

A program is cut into segments, one after each wait. A segment's replay depends
on the settings of the collectives that it starts, and on what the segment
before left in flight, of collectives and copies. So after a change the
segments that start a changed collective are replayed, and then those after them
for as long as what is in flight differs from what was in the last replay. That
ends soon: wherever the streams run empty, or a wait lets the next collective
start afresh, nothing is left of the change.
Replays are remembered, because a search goes back to settings that it tried.

A trial that changes one key of a module thus costs what the segments around
that key cost, however long the module is.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping

from lagom_xla.costs import collective as collective_lib
from lagom_xla.costs import nccl
from lagom_xla.costs.replay import program as program_lib
from lagom_xla.costs.replay import timeline

# Replays of a segment that are remembered; the oldest goes first.
_MAX_REMEMBERED = 32

Key = collective_lib.TuningKey
Configuration = Mapping[Key, nccl.Setting]


_State = tuple[object, ...]


class IncrementalReplay:
  """Replays of one program under one configuration after the other."""

  def __init__(
    self,
    program: program_lib.Program,
    *,
    key_of: Mapping[str, Key],
    costs_under: Callable[[Configuration], timeline.Costs],
  ):
    """Cuts the program; replays nothing yet."""
    self._costs_under = costs_under
    self._segments = tuple(_segments(program))
    # By segment: the keys that it starts, and what its last replay took.
    self._keys: list[tuple[Key, ...]] = []
    self._us = [0.0] * len(self._segments)
    # By key: the segments that start it.
    self._starts: dict[Key, list[int]] = {}
    for position, segment in enumerate(self._segments):
      collectives = program_lib.collectives_in(segment)
      started = {key_of[c.name]: None for c, _ in collectives}
      self._keys.append(tuple(started))
      for key in started:
        self._starts.setdefault(key, []).append(position)
    # What is in flight at the start of each segment and at the end.
    self._in_flight = [timeline.State()] * (len(self._segments) + 1)
    self._states: list[_State | None] = [None] * (len(self._segments) + 1)
    self._remembered: list[dict[_State, tuple[float, timeline.State]]] = [
      {} for _ in self._segments
    ]

  @property
  def step_time_us(self) -> float:
    """From start until all streams are empty, as last replayed."""
    return sum(self._us)

  def replay(
    self, configuration: Configuration, changed: Collection[Key]
  ) -> None:
    """Replays what changed since the last configuration; all the first time."""
    reached = sorted({p for key in changed for p in self._starts.get(key, ())})
    if self._states[0] is None:
      reached = list(range(len(self._segments)))
      self._states[0] = ()
    costs = self._costs_under(configuration)
    position = 0
    for first in reached:
      if first < position:
        continue
      position = first
      while position < len(self._segments):
        self._us[position], left = self._replay_segment(
          position, configuration, costs
        )
        position += 1
        state = left.signature()
        if state == self._states[position]:
          break
        self._states[position], self._in_flight[position] = state, left

  def _replay_segment(
    self,
    position: int,
    configuration: Configuration,
    costs: timeline.Costs,
  ) -> tuple[float, timeline.State]:
    state = (
      self._states[position],
      *map(configuration.__getitem__, self._keys[position]),
    )
    remembered = self._remembered[position]
    if state not in remembered:
      replayed, left = timeline.replay_segment(
        self._segments[position], costs, self._in_flight[position]
      )
      if len(remembered) == _MAX_REMEMBERED:
        del remembered[next(iter(remembered))]
      remembered[state] = replayed.step_time_us, left
    return remembered[state]


def _segments(program: program_lib.Program) -> Iterator[program_lib.Program]:
  """The program, cut; the last segment also waits for all that is in flight."""
  begin = 0
  awaited: dict[str, program_lib.Wait | program_lib.WaitCopy] = {}
  for position, part in enumerate(program):
    for collective, _ in program_lib.collectives_in((part,)):
      awaited[collective.name] = program_lib.Wait(collective)
    if isinstance(part, program_lib.StartCopy):
      awaited[part.copy.name] = program_lib.WaitCopy(part.copy)
    elif isinstance(part, program_lib.WaitCopy):
      awaited.pop(part.copy.name, None)
    elif isinstance(part, program_lib.Wait):
      awaited.pop(part.collective.name, None)
      yield program[begin : position + 1]
      begin = position + 1
  rest = (*program[begin:], *awaited.values())
  if rest:
    yield rest
