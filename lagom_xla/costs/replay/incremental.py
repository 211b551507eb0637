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
Replays are remembered, because searchers go back to settings that they tried.

A trial that changes one key of a module thus costs what the segments around
that key cost, however long the module is.
"""

from __future__ import annotations

import collections
from collections.abc import Callable, Collection, Iterator, Mapping
import dataclasses

from lagom_xla.costs import collective as collective_lib
from lagom_xla.costs import nccl
from lagom_xla.costs.replay import program as program_lib
from lagom_xla.costs.replay import timeline

# Replays of a segment that are remembered; the oldest goes first.
_MAX_REMEMBERED = 32

Key = collective_lib.TuningKey
Configuration = Mapping[Key, nccl.Setting]


@dataclasses.dataclass(kw_only=True, slots=True)
class Lost:
  """What the collectives of one key and the kernels cost each other.

  Attributes:
    exposed_us: waits for the collectives.
    slowdown_us: what kernels lost to them.
    delay_us: what they lost to kernels.
  """

  exposed_us: float = 0.0
  slowdown_us: float = 0.0
  delay_us: float = 0.0


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class _Replayed:
  """What the replay of a segment came to, by the keys in flight."""

  step_time_us: float = 0.0
  kernel_us: float = 0.0  # Slowed as they are.
  lost: Mapping[Key, Lost] = dataclasses.field(default_factory=dict)


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
    self._key_of = key_of
    self._costs_under = costs_under
    self._segments = tuple(_segments(program))
    # By segment: the keys that it starts, and its last replay.
    self._keys: list[tuple[Key, ...]] = []
    self._replayed = [_Replayed()] * len(self._segments)
    # By key: the segments that start it, and those that it was in flight in.
    self._starts: dict[Key, list[int]] = {}
    self._beside: dict[Key, set[int]] = {}
    for position, segment in enumerate(self._segments):
      collectives = program_lib.collectives_in(segment)
      started = {key_of[c.name]: None for c, _ in collectives}
      self._keys.append(tuple(started))
      for key in started:
        self._starts.setdefault(key, []).append(position)
        self._beside[key] = set()
    # What is in flight at the start of each segment and at the end.
    self._in_flight = [timeline.State()] * (len(self._segments) + 1)
    self._states: list[_State | None] = [None] * (len(self._segments) + 1)
    self._remembered: list[dict[_State, tuple[_Replayed, timeline.State]]] = [
      {} for _ in self._segments
    ]

  @property
  def step_time_us(self) -> float:
    """From start until all streams are empty, as last replayed."""
    return sum(replayed.step_time_us for replayed in self._replayed)

  @property
  def kernel_us(self) -> float:
    """All kernels, slowed as they are, as last replayed."""
    return sum(replayed.kernel_us for replayed in self._replayed)

  def lost(self, key: Key) -> Lost:
    """What a key and the kernels cost each other, as last replayed."""
    losses = [self._replayed[p].lost[key] for p in sorted(self._beside[key])]
    return Lost(
      exposed_us=sum(lost.exposed_us for lost in losses),
      slowdown_us=sum(lost.slowdown_us for lost in losses),
      delay_us=sum(lost.delay_us for lost in losses),
    )

  def replay(
    self, configuration: Configuration, changed: Collection[Key]
  ) -> set[Key]:
    """Replays what changed since the last configuration; all the first time.

    Returns the keys that are in flight in what was replayed, or were last time.
    """
    affected = set()
    for position, replayed in self._replay(configuration, changed):
      before, self._replayed[position] = self._replayed[position], replayed
      for key in before.lost:
        self._beside[key].discard(position)
      for key in replayed.lost:
        self._beside[key].add(position)
      affected.update(before.lost, replayed.lost)
    return affected

  def _replay(
    self, configuration: Configuration, changed: Collection[Key]
  ) -> Iterator[tuple[int, _Replayed]]:
    """The segments that a change reaches, by position, as replayed now."""
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
        replayed, left = self._replay_segment(position, configuration, costs)
        yield position, replayed
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
  ) -> tuple[_Replayed, timeline.State]:
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
      remembered[state] = self._summed(replayed), left
    return remembered[state]

  def _summed(self, replayed: timeline.Timeline) -> _Replayed:
    lost: dict[Key, Lost] = collections.defaultdict(Lost)
    for name, us in replayed.exposed_us.items():
      lost[self._key_of[name]].exposed_us += us
    for (_, name), us in replayed.slowdown_us.items():
      lost[self._key_of[name]].slowdown_us += us
    for name, us in replayed.delay_us.items():
      lost[self._key_of[name]].delay_us += us
    return _Replayed(
      step_time_us=replayed.step_time_us,
      kernel_us=(
        replayed.kernel_us
        + replayed.total_slowdown_us
        + replayed.total_copy_slowdown_us
      ),
      lost=dict(lost),
    )


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
