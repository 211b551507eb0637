# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Parts of an exposed time: what keeps a collective from hiding, step by step.

A collective is exposed while its done holds the compute stream. Each part is
what one counterfactual takes away of that, in the order and as defined in
docs/explain.md, on top of those before it; what then is left no order can hide.
So the parts add up to what is exposed.

An instruction that takes no time passes on what it gets, so a collective is
ready to start once the last instruction that takes time has made an operand of
it, and it is needed by the first one that takes its result. Kernels that it
depends on in no way, and that do not depend on it, are *independent* of it:
only they can ever run beside it, whatever the order.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
import dataclasses
import functools
import itertools
import math
from typing import Literal

import numpy as np

from lagom_xla.costs import collective as collective_lib
from lagom_xla.costs import step as step_lib
from lagom_xla.explain import walk
from lagom_xla.passes import collectives as collectives_lib
from lagom_xla.passes import dependencies
from lagom_xla.passes import hlo
from lagom_xla.passes import kernels as kernels_lib

# Collectives that are looked at together, a bit each.
_BITS = 62


@dataclasses.dataclass(frozen=True, slots=True)
class Span:
  """From when an array can be sent to when it is needed, as positions.

  Attributes:
    ready: of the instruction that makes it; -1 where the computation gets it.
    used: of the first instruction that needs it; the number of instructions
      where the computation only returns it.
  """

  ready: int
  used: int


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Place:
  """A collective in its computation, by positions in the schedule.

  Attributes:
    collective: which one.
    graph: the dependences of the computation.
    start: of its start.
    done: of the instruction that waits for it; the number of instructions where
      another computation does.
    span: from the last of its operands to the first use of its results.
    arrays: the same of each array that it moves; () where it moves one.
    bit: of the collective in `before` and `after`.
    before: which collectives need the instruction at each position, a bit each.
    after: which ones it needs.
  """

  collective: collectives_lib.Collective
  graph: dependencies.Graph
  start: int
  done: int
  span: Span
  arrays: tuple[Span, ...]
  bit: int
  before: np.ndarray
  after: np.ndarray

  @property
  def computation(self) -> hlo.Computation:
    """Its computation."""
    return self.graph.computation

  @property
  def needed(self) -> np.ndarray:
    """Whether it depends on the instruction at each position."""
    return (self.before & np.int64(self.bit)) != 0

  @property
  def needing(self) -> np.ndarray:
    """Whether the instruction at each position depends on it."""
    return (self.after & np.int64(self.bit)) != 0

  @property
  def independent(self) -> np.ndarray:
    """Whether neither depends on the other, at each position."""
    return ~(self.needed | self.needing)


def of_computation(
  graph: dependencies.Graph,
  collectives: Sequence[collectives_lib.Collective],
) -> Iterator[Place]:
  """The places of collectives that a scheduled computation starts."""
  computation = graph.computation
  for begin in range(0, len(collectives), _BITS):
    some = collectives[begin : begin + _BITS]
    starts = [computation.position[c.start_id] for c in some]
    before, after = _reach(graph, starts)
    for index, collective in enumerate(some):
      done = done_at(computation, collective)
      used = [i.id for i in computation.instructions[done : done + 1]]
      yield Place(
        collective=collective,
        graph=graph,
        start=starts[index],
        done=done,
        span=Span(
          ready=_made(graph, graph.predecessors[collective.start_id]),
          used=_used(graph, used),
        ),
        arrays=tuple(_arrays(graph, collective, used)),
        bit=1 << index,
        before=before,
        after=after,
      )


def _reach(
  graph: dependencies.Graph, starts: Sequence[int]
) -> tuple[np.ndarray, np.ndarray]:
  """What comes before and after each start of some, a bit each."""
  position = graph.computation.position
  before = [0] * len(position)
  for index, start in enumerate(starts):
    before[start] |= 1 << index
  after = [*before]
  order = [
    [position[p] for p in graph.predecessors[i.id]]
    for i in graph.computation.instructions
  ]
  for at, predecessors in enumerate(order):
    for predecessor in predecessors:
      after[at] |= after[predecessor]
  for at in range(len(order) - 1, -1, -1):
    if before[at]:
      for predecessor in order[at]:
        before[predecessor] |= before[at]
  return np.array(before, np.int64), np.array(after, np.int64)


def done_at(
  computation: hlo.Computation, collective: collectives_lib.Collective
) -> int:
  """Position of the instruction that waits for a collective.

  The number of instructions where another computation does.
  """
  if collective.done_id is not None:
    return computation.position[collective.done_id]
  if collective.form == "sync":
    return computation.position[collective.start_id]
  return len(computation.instructions)


def _arrays(
  graph: dependencies.Graph,
  collective: collectives_lib.Collective,
  done_ids: Sequence[int],
) -> Iterator[Span]:
  """The span of each array of a combined collective, awaited here if at all."""
  start = graph.computation.by_id[collective.start_id]
  num = collective.num_operands
  if num < 2 or len(start.operand_ids) != num:
    return
  for done_id in done_ids:
    parts = part_ids(graph, done_id, num)
    for operand_id, ids in zip(start.operand_ids, parts, strict=True):
      yield Span(ready=_made(graph, [operand_id]), used=_used(graph, ids))


def part_ids(
  graph: dependencies.Graph, done_id: int, num: int
) -> list[list[int]]:
  """The instructions that take each result out of a tuple of `num`."""
  parts: list[list[int]] = [[] for _ in range(num)]
  for user_id in graph.users[done_id]:
    user = graph.computation.by_id[user_id]
    if user.opcode == "get-tuple-element" and user.tuple_index < num:
      parts[user.tuple_index].append(user_id)
  return parts


def _made(graph: dependencies.Graph, ids: Iterable[int]) -> int:
  """Position of the last that takes time to make values; -1 for parameters."""
  return max(_reached(graph, ids, graph.predecessors), default=-1)


def _used(graph: dependencies.Graph, ids: Iterable[int]) -> int:
  """Position of the first that takes values, or what is made of them."""
  users = itertools.chain(*(graph.successors[id_] for id_ in ids))
  last = len(graph.computation.instructions)
  return min(_reached(graph, users, graph.successors), default=last)


def _reached(
  graph: dependencies.Graph,
  ids: Iterable[int],
  next_to: Mapping[int, Iterable[int]],
) -> Iterator[int]:
  """Positions of what takes time, from instructions on past what does not."""
  todo = list(ids)
  seen = set(todo)
  while todo:
    instruction = graph.computation.by_id[todo.pop()]
    if (
      instruction.opcode not in collectives_lib.NOPS
      and instruction.custom_call_target != kernels_lib.ALLOCATION
    ):
      yield graph.computation.position[instruction.id]
    else:
      new = set(next_to[instruction.id]) - seen
      seen |= new
      todo.extend(new)


Reason = Literal[
  "slowed",
  "queue",
  "sync",
  "started_late",
  "awaited_early",
  "combined",
  "operand_late",
  "consumer_early",
  "stream_busy",
  "too_long",
  "no_slack",
]


@dataclasses.dataclass(slots=True)
class Parts:
  """What a collective's exposed time is made of, per step; in microseconds.

  Attributes:
    exposed_us: how long its done holds the compute stream.
    us: the parts, which sum up to that.
    hideable_us: kernels that are independent of it.
    ahead_us: collective -> how long it kept this one waiting in the queue.
    beside_us: collective -> how long it ran beside kernels that could have
      hidden this one.
    unhideable_us: what is exposed in any order: that it takes longer alone than
      all kernels that are independent of it.
    bound_kernels_us: kernels that come before it, or wait for it.
  """

  exposed_us: float = 0.0
  us: dict[Reason, float] = dataclasses.field(default_factory=dict)
  hideable_us: float = 0.0
  ahead_us: dict[str, float] = dataclasses.field(default_factory=dict)
  beside_us: dict[str, float] = dataclasses.field(default_factory=dict)
  unhideable_us: float = 0.0
  bound_kernels_us: float = 0.0


def of_runs(
  runs: Sequence[walk.Run], placed: Mapping[str, Place], step: step_lib.Step
) -> dict[str, Parts]:
  """The parts of each placed collective, over all runs of a step."""
  found = {name: Parts() for name in placed}
  for run in runs:
    busy_us = np.zeros_like(run.kernel_us)
    for at, beside_us in run.beside_us.items():
      busy_us[at] = sum(beside_us.values())
    for passage in run.passages:
      if place := placed.get(passage.name):
        stretch = _Stretch(run, passage, place, busy_us)
        _add(found[passage.name], stretch, run.weight, step)
  return found


class _Stretch:
  """One passage of a collective, with the kernels of its run."""

  def __init__(
    self,
    run: walk.Run,
    passage: walk.Passage,
    place: Place,
    busy_us: np.ndarray,
  ):
    self.passage, self.place = passage, place
    self._run, self._busy_us = run, busy_us
    self.independent = place.independent
    self.hideable_us = float(run.kernel_us[self.independent].sum())
    self.bound_us = float(run.kernel_us.sum()) - self.hideable_us

  def idle_us(self, begin: int, end: int | None = None) -> float:
    """Independent kernels in a range, with nothing on the stream."""
    idle = np.maximum(self._run.kernel_us - self._busy_us, 0.0)[begin:end]
    return float(idle[self.independent[begin:end]].sum())

  def until_us(self) -> np.ndarray:
    """Kernels up to each position that no other collective ran beside."""
    others_us, beside_us = self._busy_us.copy(), self._run.beside_us
    for at in range(self.place.start, self.place.done + 1):
      if at in beside_us:
        others_us[at] -= beside_us[at].get(self.passage.name, 0.0)
    free_us = np.maximum(self._run.kernel_us - others_us, 0.0)
    return np.concatenate([[0.0], np.cumsum(free_us)])

  @functools.cached_property
  def beside_us(self) -> Mapping[str, float]:
    """Others, by how long they ran beside independent kernels elsewhere."""
    total_us: dict[str, float] = {}
    for at, beside_us in sorted(self._run.beside_us.items()):
      if not self.independent[at] or self.place.start < at < self.place.done:
        continue
      for name, us in beside_us.items():
        if name != self.passage.name:
          total_us[name] = total_us.get(name, 0.0) + us
    return total_us


def _add(
  parts: Parts, stretch: _Stretch, weight: float, step: step_lib.Step
) -> None:
  """Adds the parts of one passage."""
  passage = stretch.passage
  parts.hideable_us += weight * stretch.hideable_us
  if passage.stall_us <= 0:
    return
  unhideable_us = min(passage.lone_us - stretch.hideable_us, passage.stall_us)
  parts.bound_kernels_us += weight * stretch.bound_us
  parts.unhideable_us += weight * max(unhideable_us, 0.0)
  parts.exposed_us += weight * passage.stall_us
  left_us = passage.stall_us
  for reason, most_us in _most_us(stretch, step):
    us = min(max(most_us, 0.0), left_us)
    left_us -= us
    if us > 0:
      parts.us[reason] = parts.us.get(reason, 0.0) + weight * us
    if us > 0 and reason == "queue":
      _blame(parts.ahead_us, weight * us, passage.ahead_us)
    elif us > 0 and reason == "stream_busy":
      _blame(parts.beside_us, weight * us, stretch.beside_us)
    if left_us <= 0:
      return


def _most_us(
  stretch: _Stretch, step: step_lib.Step
) -> Iterator[tuple[Reason, float]]:
  """The most that each part can be; the last one takes all that is left."""
  place, passage = stretch.place, stretch.passage
  span = place.span
  yield "slowed", passage.slowed_us
  yield "queue", passage.queue_us
  late_us = stretch.idle_us(span.ready + 1, place.start)
  early_us = stretch.idle_us(place.done + 1, span.used)
  if place.collective.form == "sync":
    yield "sync", late_us + early_us
  else:
    yield "started_late", late_us
    yield "awaited_early", early_us
  if place.arrays:
    yield "combined", _by_combining_us(stretch, step)
  yield "operand_late", stretch.idle_us(0, max(span.ready, 0))
  yield "consumer_early", stretch.idle_us(span.used + 1)
  yield "stream_busy", sum(stretch.beside_us.values())
  yield ("too_long" if stretch.hideable_us > 0 else "no_slack"), math.inf


def _by_combining_us(stretch: _Stretch, step: step_lib.Step) -> float:
  """How much less would be exposed of its arrays one by one.

  Each starts when it is ready and those before it are through, in the order in
  which they become ready, and is needed where it is now. Alone they take what
  they would as collectives of their own, as NCCL runs those.
  """
  place, until_us = stretch.place, stretch.until_us()
  window_us = until_us[place.span.used] - until_us[place.span.ready + 1]
  whole_us = stretch.passage.lone_us - window_us
  key = step.key_of[place.collective.name]
  exposed_us = ended_us = 0.0
  for array, num_bytes in sorted(
    zip(place.arrays, place.collective.array_bytes, strict=True),
    key=lambda pair: (pair[0].ready, pair[0].used),
  ):
    own = dataclasses.replace(key, num_bytes=num_bytes)
    setting = collective_lib.default_setting(own, step.cluster)
    ready_us = exposed_us + until_us[array.ready + 1]
    ended_us = max(ready_us, ended_us) + step.predict(own, setting).time_us
    late_us = ended_us - exposed_us - until_us[array.used]
    exposed_us += max(late_us, 0.0)
  return max(whole_us, 0.0) - exposed_us


def _blame(
  total_us: dict[str, float], us: float, others_us: Mapping[str, float]
) -> None:
  """Shares a part out among the other collectives that it comes from."""
  all_us = sum(others_us.values())
  for name, other_us in others_us.items():
    if all_us > 0:
      total_us[name] = total_us.get(name, 0.0) + us * other_us / all_us
