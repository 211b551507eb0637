# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Incremental replays: a change of settings replays only the affected segments.

A program is cut into segments after each wait. The replay of a segment depends
on the settings of the collectives that it starts, and on the collectives and
copies in flight at its start. After a change, the segments that start a changed
collective are replayed, and then the following ones until the work in flight
equals that of the last replay. That happens soon: when the streams are empty,
or when a wait lets the next collective start from the beginning. Replays are
cached, because a search returns to settings that it has tried.

So a trial that changes one key replays only the segments around that key, for a
module of any length.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping

from lagom_xla.costs import collective as collective_lib
from lagom_xla.costs import nccl
from lagom_xla.costs.replay import program as program_lib
from lagom_xla.costs.replay import timeline

# Cached replays per segment; the oldest is evicted first.
_MAX_REMEMBERED = 32

Key = collective_lib.TuningKey
Configuration = Mapping[Key, nccl.Setting]


_State = tuple[object, ...]


class IncrementalReplay:
  """Replays of one program under successive configurations."""

  def __init__(
    self,
    program: program_lib.Program,
    *,
    key_of: Mapping[str, Key],
    costs_under: Callable[[Configuration], timeline.Costs],
  ):
    """Cuts the program into segments, without a replay."""
    self._costs_under = costs_under
    self._segments = tuple(_segments(program))
    # By segment: the keys of its starts, and the time of its last replay.
    self._keys: list[tuple[Key, ...]] = []
    self._us = [0.0] * len(self._segments)
    # By key: the segments that start its collectives.
    self._starts: dict[Key, list[int]] = {}
    for position, segment in enumerate(self._segments):
      collectives = program_lib.collectives_in(segment)
      started = {key_of[c.name]: None for c, _ in collectives}
      self._keys.append(tuple(started))
      for key in started:
        self._starts.setdefault(key, []).append(position)
    # The work in flight at the start of each segment and at the end.
    self._in_flight = [timeline.State()] * (len(self._segments) + 1)
    self._states: list[_State | None] = [None] * (len(self._segments) + 1)
    self._remembered: list[dict[_State, tuple[float, timeline.State]]] = [
      {} for _ in self._segments
    ]

  @property
  def step_time_us(self) -> float:
    """Time from start until all streams are empty, in the last replay."""
    return sum(self._us)

  def replay(
    self, configuration: Configuration, changed: Collection[Key]
  ) -> None:
    """Replays the segments that `changed` keys affect; the first time, all."""
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
  """The segments of a program; the last one waits for all work in flight."""
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
