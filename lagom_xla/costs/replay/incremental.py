# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Replays again only what a change of settings reaches.

A program is cut behind each wait. A part's replay depends on the settings of
the collectives that it starts, and on the communication stream as the part
before left it: empty, or with a collective under way. So after a change the
parts that start a changed collective are replayed, and then the parts behind
for as long as they find the communication stream otherwise than before. That
ends soon: wherever the stream runs empty, or a wait lets the next collective
start afresh, nothing is left of the change. Replays are remembered, because
searchers go back to settings that they tried.

A trial that changes one key of a module thus costs what the parts around that
key cost, however long the module is.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
import dataclasses
from typing import Any

from lagom_xla.costs import step as step_lib
from lagom_xla.costs.replay import timeline
from lagom_xla.passes import collectives as collectives_lib

# Replays of a part that are remembered; the oldest goes first.
_MOST_REMEMBERED = 32

Key = step_lib.Key


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
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
class Part:
  """A replayed part of a program.

  Attributes:
    step_time_us: from its start to its end.
    kernel_us: its kernels, slowed as they are.
    lost: by the keys that were under way.
  """

  step_time_us: float
  kernel_us: float
  lost: dict[Key, Lost]


_State = tuple[Any, ...]
_Queue = tuple[timeline.UnderWay, ...]


class Program:
  """A program that is replayed under one configuration after the other."""

  def __init__(self, step: step_lib.Step, program: timeline.Program):
    self._step = step
    self._cut = tuple(_cut(program))
    # By part: the keys that it starts, and its last replay.
    self._keys: list[tuple[Key, ...]] = []
    self._step_time_us = [0.0] * len(self._cut)
    self._kernel_us = [0.0] * len(self._cut)
    self._lost: list[dict[Key, Lost]] = [{} for _ in self._cut]
    # By key: the parts that start it, and those that it was under way in.
    self._starts: dict[Key, list[int]] = {}
    self._beside: dict[Key, set[int]] = {}
    for position, part in enumerate(self._cut):
      started = {step.key_of[c.name]: None for c, _ in collectives_in(part)}
      self._keys.append(tuple(started))
      for key in started:
        self._starts.setdefault(key, []).append(position)
        self._beside[key] = set()
    # The communication stream at the beginning of each part and at the end.
    self._queues: list[_Queue] = [()] * (len(self._cut) + 1)
    self._states: list[_State | None] = [None] * (len(self._cut) + 1)
    self._remembered: list[dict[_State, tuple[Part, _Queue]]] = [
      {} for _ in self._cut
    ]

  @property
  def step_time_us(self) -> float:
    """From the first start until both streams are empty, as last replayed."""
    return sum(self._step_time_us)

  @property
  def kernel_us(self) -> float:
    """All kernels, slowed as they are, as last replayed."""
    return sum(self._kernel_us)

  def lost(self, key: Key) -> Lost:
    """What a key and the kernels cost each other, as last replayed."""
    lost = [self._lost[p][key] for p in sorted(self._beside[key])]
    return Lost(
      exposed_us=sum(part.exposed_us for part in lost),
      slowdown_us=sum(part.slowdown_us for part in lost),
      delay_us=sum(part.delay_us for part in lost),
    )

  def replay(
    self, configuration: step_lib.Configuration, changed: Collection[Key]
  ) -> set[Key]:
    """Replays what changed since the configuration before.

    Args:
      configuration: a setting for each key of the program.
      changed: keys whose settings are others than in the configuration before;
        all keys the first time.

    Returns:
      the keys that were under way in what was replayed, then or before.
    """
    affected = set()
    for position, part in self._replay(configuration, changed):
      self._step_time_us[position] = part.step_time_us
      self._kernel_us[position] = part.kernel_us
      before, self._lost[position] = self._lost[position], part.lost
      for key in before:
        self._beside[key].discard(position)
      for key in part.lost:
        self._beside[key].add(position)
      affected.update(before, part.lost)
    return affected

  def _replay(
    self, configuration: step_lib.Configuration, changed: Collection[Key]
  ) -> Iterator[tuple[int, Part]]:
    """The parts that change reaches, with their positions."""
    reached = sorted({p for key in changed for p in self._starts.get(key, ())})
    if self._states[0] is None:
      reached = list(range(len(self._cut)))
      self._states[0] = ()
    costs = self._step.costs(configuration)
    position = 0
    for first in reached:
      if first < position:
        continue
      position = first
      while position < len(self._cut):
        replayed, queue = self._replay_part(position, configuration, costs)
        yield position, replayed
        position += 1
        state = _state(queue)
        if state == self._states[position]:
          break
        self._states[position], self._queues[position] = state, queue

  def _replay_part(
    self,
    position: int,
    configuration: step_lib.Configuration,
    costs: timeline.Costs,
  ) -> tuple[Part, _Queue]:
    state = (
      self._states[position],
      *map(configuration.__getitem__, self._keys[position]),
    )
    remembered = self._remembered[position]
    if state not in remembered:
      replayed, queue = timeline.replay_part(
        self._cut[position], costs, self._queues[position]
      )
      if len(remembered) == _MOST_REMEMBERED:
        del remembered[next(iter(remembered))]
      remembered[state] = self._part(replayed), queue
    return remembered[state]

  def _part(self, replayed: timeline.Timeline) -> Part:
    key_of = self._step.key_of
    sums: dict[Key, list[float]] = {}
    for name, us in replayed.exposed_us.items():
      sums.setdefault(key_of[name], [0.0, 0.0, 0.0])[0] += us
    for (_, name), us in replayed.slowdown_us.items():
      sums.setdefault(key_of[name], [0.0, 0.0, 0.0])[1] += us
    for name, us in replayed.delay_us.items():
      sums.setdefault(key_of[name], [0.0, 0.0, 0.0])[2] += us
    return Part(
      step_time_us=replayed.step_time_us,
      kernel_us=replayed.kernel_us + replayed.total_slowdown_us,
      lost={
        key: Lost(exposed_us=exposed, slowdown_us=slowdown, delay_us=delay)
        for key, (exposed, slowdown, delay) in sums.items()
      },
    )


def collectives_in(
  program: timeline.Program,
) -> Iterator[tuple[collectives_lib.Collective, int]]:
  """The collectives of a program, with how often it runs each."""
  for part in program:
    match part:
      case timeline.Start(collective):
        yield collective, 1
      case timeline.Loop(body, num_trips):
        for collective, repeats in collectives_in(body):
          yield collective, num_trips * repeats
      case timeline.Branch(branches):
        for branch in branches:
          yield from collectives_in(branch)


def _cut(program: timeline.Program) -> Iterator[timeline.Program]:
  """The program in parts; the last also waits for all that is under way."""
  begin = 0
  under_way: dict[str, collectives_lib.Collective] = {}
  for position, part in enumerate(program):
    under_way.update((c.name, c) for c, _ in collectives_in((part,)))
    if isinstance(part, timeline.Wait):
      under_way.pop(part.collective.name, None)
      yield program[begin : position + 1]
      begin = position + 1
  rest = (*program[begin:], *map(timeline.Wait, under_way.values()))
  if rest:
    yield rest


def _state(queue: _Queue) -> _State:
  """Equal for communication streams that go on alike."""
  return tuple(
    (
      under_way.collective.name,
      under_way.cost,
      under_way.left_us,
      under_way.wait_us,
    )
    for under_way in queue
  )
