# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Parts of an exposed time: the reasons that a collective is not hidden.

A collective is exposed while its done blocks the compute stream. Each part is
the time that one more counterfactual removes, in the order and as defined in
docs/explain.md. The rest cannot be hidden in any order. So the parts add up to
the exposed time.

Instructions without duration are skipped. A collective is ready to start once
the last instruction with a duration has made one of its operands. It is needed
by the first such instruction that uses its result. Kernels are *independent* of
it if neither depends on the other: in any order, only they can run beside it.

A listener records each run of a computation in a replay: the times of kernels,
the busy time of the communication stream meanwhile, and the time that each done
blocks the compute stream. A wait counts for the done that waits. The timeline
counts it for the collective that is running, which differs if the done waits
for collectives ahead in the queue. The sums over all collectives are equal.
"""

from __future__ import annotations

import collections
from collections.abc import Iterable, Iterator, Mapping, Sequence
import dataclasses
import itertools
import math
from typing import Literal, TypeVar

import numpy as np

from lagom_xla.costs import collective as collective_lib
from lagom_xla.costs import kernel as kernel_lib
from lagom_xla.costs import step as step_lib
from lagom_xla.costs.replay import timeline
from lagom_xla.passes import collectives as collectives_lib
from lagom_xla.passes import dependencies
from lagom_xla.passes import hlo
from lagom_xla.passes import kernels as kernels_lib

_T = TypeVar("_T")

# Upper bound of rounding errors in sums of times.
_NEGLIGIBLE_US = 1e-6


@dataclasses.dataclass(slots=True, kw_only=True)
class Passage:
  """One execution of a collective; times in microseconds.

  Attributes:
    name: name of the collective.
    lone_us: time alone.
    issued_us: time of its start.
    ahead_us: collective ahead in the queue -> its remaining time at the start.
    stall_us: time that its done blocked the compute stream.
    slowed_us: time that it lost to kernels beside it.
    queue_us: time from its start until the collectives ahead had finished and
      SMs were free; 0 if its done did not wait.
  """

  name: str
  lone_us: float
  issued_us: float
  ahead_us: dict[str, float]
  stall_us: float = 0.0
  slowed_us: float = 0.0
  queue_us: float = 0.0


class Run:
  """One run of a computation, or several equal trips.

  Attributes:
    weight: number of runs that it represents.
    kernel_us: time of each instruction's kernels, by position.
    beside_us: position -> collective -> part of `kernel_us` with the collective
      at the head of the queue.
    passages: executions of the collectives that it starts.
  """

  def __init__(self, computation: hlo.Computation, weight: float):
    self.weight = weight
    self.kernel_us = np.zeros(len(computation.instructions))
    self.beside_us: dict[int, dict[str, float]] = {}
    self.passages: list[Passage] = []


def replayed(
  step: step_lib.Step, configuration: step_lib.Configuration
) -> tuple[Sequence[Run], timeline.Timeline]:
  """Replays a step under NCCL settings: its runs and its timeline.

  Once a trip of a loop begins like the previous trip, it and all later trips
  are one run.
  """
  heard = _Heard(step)
  streams = timeline.Streams(step.costs(configuration), listener=heard)
  heard.streams = streams
  streams.run(step.program)
  streams.drain()
  return heard.runs, streams.timeline()


class _Heard(timeline.Listener):
  """Records events of the streams in the current runs."""

  streams: timeline.Streams

  def __init__(self, step: step_lib.Step):
    self.runs: list[Run] = []
    analysis = step.analysis
    sequences = {c.name: c for c in analysis.sequences}
    self._homes = {
      one.name: sequences[one.computation] for one in analysis.collectives
    }
    # Positions of kernel launches, and below, of calls of computations.
    self._launched: dict[str, tuple[hlo.Computation, int]] = {}
    for kernel in analysis.kernels.values():
      if home := sequences.get(kernel.computation):
        at = home.position[kernel.instruction_id]
        self._launched[kernel.name] = home, at
    self._called = {
      callee.id: (computation, at)
      for computation in sequences.values()
      for at, instruction in enumerate(computation.instructions)
      for callee, _ in analysis.callees(instruction)
    }
    # Current runs and their weights, by loop depth: the step, a trip of a loop
    # in it, and so on.
    self._going_on: list[tuple[float, dict[int, Run]]] = [(1.0, {})]
    self._awaited: dict[str, collections.deque[Passage]] = (
      collections.defaultdict(collections.deque)
    )
    # Current time, end of the last kernel or wait, and collectives beside the
    # current kernel.
    self._now_us = self._since_us = 0.0
    self._beside_us: dict[str, float] = {}

  def _callers(
    self, computation: hlo.Computation
  ) -> Iterator[tuple[hlo.Computation, int]]:
    """The call of a computation, the call of its caller, and so on."""
    at = self._called.get(computation.id)
    while at is not None:
      yield at
      at = self._called.get(at[0].id)

  def _run(self, computation: hlo.Computation) -> Run:
    """The current run of a computation."""
    depth = sum(
      caller.instructions[at].opcode == "while"
      for caller, at in self._callers(computation)
    )
    # A loop's condition runs once more after its trips.
    weight, runs = self._going_on[min(depth, len(self._going_on) - 1)]
    if computation.id not in runs:
      runs[computation.id] = Run(computation, weight)
      self.runs.append(runs[computation.id])
    return runs[computation.id]

  def passed(self, us: float) -> None:
    self._now_us += us

  def repeats(self, num_trips: int) -> None:
    weight, _ = self._going_on[-1]
    self._going_on.append((weight * num_trips, {}))

  def repeated(self) -> None:
    self._going_on.pop()

  def issued(
    self, stream: str, name: str, cost: collective_lib.CollectiveCost
  ) -> None:
    if not timeline.is_communication(stream):
      return
    *ahead, _ = (
      entry
      for entry in self.streams.state.collectives
      if entry.collective.stream == stream
    )
    passage = Passage(
      name=name,
      lone_us=cost.time_us,
      issued_us=self._now_us,
      ahead_us={e.collective.name: e.left_us for e in ahead},
    )
    self._awaited[name].append(passage)
    self._run(self._homes[name]).passages.append(passage)

  def launched(self, name: str, cost: kernel_lib.KernelCost) -> None:
    self._kernel = name

  def blocked(self, name: str, us: float) -> None:
    if us > 0:
      self._beside_us[name] = self._beside_us.get(name, 0.0) + us

  def met(self, name: str, us: float, lost_us: float, slowed_us: float) -> None:
    self._awaited[name][0].slowed_us += slowed_us
    self.blocked(name, us)

  def finished(self) -> None:
    us, beside_us = self._passed_us(), self._beside_us
    self._beside_us = {}
    home, position = self._launched[self._kernel]
    inner = self._run(home)
    for computation, at in ((home, position), *self._callers(home)):
      run = self._run(computation)
      times = inner.weight / run.weight
      run.kernel_us[at] += times * us
      if beside_us:
        _add(run.beside_us.setdefault(at, {}), beside_us, times)

  def done(self, stream: str, name: str) -> None:
    stall_us = self._passed_us()
    if not timeline.is_communication(stream) or not self._awaited[name]:
      return  # A copy, or already awaited.
    passage = self._awaited[name].popleft()
    passage.stall_us = stall_us
    if stall_us > 0:
      took_us = passage.lone_us + passage.slowed_us
      waited_us = self._now_us - passage.issued_us - took_us
      passage.queue_us = waited_us if waited_us > _NEGLIGIBLE_US else 0.0

  def _passed_us(self) -> float:
    """The time since the last kernel or wait ended."""
    since_us, self._since_us = self._since_us, self._now_us
    return self._since_us - since_us


# Number of collectives per bit mask.
_BITS = 62


@dataclasses.dataclass(frozen=True, slots=True)
class Span:
  """The positions between which an array can be sent.

  Attributes:
    ready: position of the instruction that makes it; -1 for a parameter.
    used: position of the first instruction that needs it; the number of
      instructions if the computation only returns it.
  """

  ready: int
  used: int


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Place:
  """A collective in its computation, by positions in the schedule.

  Attributes:
    collective: the collective.
    graph: the dependences of its computation.
    start: position of its start.
    done: position of the instruction that waits for it; the number of
      instructions if another computation waits.
    span: from the last of its operands to the first use of its results.
    arrays: the span of each array that it moves; () for a single array.
    bit: its bit in `before` and `after`.
    before: for each position, a mask of the collectives that depend on the
      instruction.
    after: for each position, a mask of the collectives that the instruction
      depends on.
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
  """For each position, masks of dependent starts and of needed starts."""
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

  The number of instructions if another computation waits.
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
  """The span of each array of a combined collective awaited here."""
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
  """For each of a tuple's `num` results, the instructions that extract it."""
  parts: list[list[int]] = [[] for _ in range(num)]
  for user_id in graph.users[done_id]:
    user = graph.computation.by_id[user_id]
    if user.opcode == "get-tuple-element" and user.tuple_index < num:
      parts[user.tuple_index].append(user_id)
  return parts


def _made(graph: dependencies.Graph, ids: Iterable[int]) -> int:
  """Position of the last instruction that makes values; -1 for parameters."""
  return max(_reached(graph, ids, graph.predecessors), default=-1)


def _used(graph: dependencies.Graph, ids: Iterable[int]) -> int:
  """Position of the first instruction that uses values in any way."""
  users = itertools.chain(*(graph.successors[id_] for id_ in ids))
  last = len(graph.computation.instructions)
  return min(_reached(graph, users, graph.successors), default=last)


def _reached(
  graph: dependencies.Graph,
  ids: Iterable[int],
  next_to: Mapping[int, Iterable[int]],
) -> Iterator[int]:
  """Positions of the first instructions with a duration, from `ids` on."""
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
  "merged",
  "too_long",
  "no_slack",
]


@dataclasses.dataclass(slots=True)
class Parts:
  """The parts of a collective's exposed time, per step; in microseconds.

  Attributes:
    exposed_us: time that its done blocks the compute stream.
    us: the parts, which add up to `exposed_us`.
    hideable_us: time of independent kernels.
    ahead_us: collective -> time that this one queued behind it.
    beside_us: collective -> time that it ran beside kernels that could have
      hidden this one.
    merged_us: position of a merged product -> time that its products could have
      hidden this one if they were not merged.
    unhideable_us: exposed time in any order: its time alone beyond that of all
      independent kernels.
    bound_kernels_us: time of kernels that depend on it, or that it depends on.
    num_kernels: reason that another order would remove -> number of nearest
      independent kernels that would hide that part.
  """

  exposed_us: float = 0.0
  us: dict[Reason, float] = dataclasses.field(default_factory=dict)
  hideable_us: float = 0.0
  ahead_us: dict[str, float] = dataclasses.field(default_factory=dict)
  beside_us: dict[str, float] = dataclasses.field(default_factory=dict)
  merged_us: dict[int, float] = dataclasses.field(default_factory=dict)
  unhideable_us: float = 0.0
  bound_kernels_us: float = 0.0
  num_kernels: dict[Reason, int] = dataclasses.field(default_factory=dict)


def _add(
  total_us: dict[_T, float], more_us: Mapping[_T, float], times: float
) -> None:
  """Adds `times` times each time in `more_us` to the totals, by name."""
  for name, us in more_us.items():
    total_us[name] = total_us.get(name, 0.0) + times * us


def of_runs(
  runs: Sequence[Run], placed: Mapping[str, Place], step: step_lib.Step
) -> dict[str, Parts]:
  """The parts of each placed collective, over all runs of a step."""
  found = {name: Parts() for name in placed}
  merged = _merged(placed, step)
  for run in runs:
    busy_us = np.zeros_like(run.kernel_us)
    for at, beside_us in run.beside_us.items():
      busy_us[at] = sum(beside_us.values())
    for passage in run.passages:
      if place := placed.get(passage.name):
        _take_apart(
          *(found[passage.name], run, busy_us, passage, place, step),
          merged[passage.name],
        )
  return found


def _merged(
  placed: Mapping[str, Place], step: step_lib.Step
) -> dict[str, dict[int, float]]:
  """Merged products that wait for each collective, and its share of them.

  An unmerged product can hide collectives that it does not need. For the
  collective that the fewest products need, the share of the merged product's
  elements that could do so is divided among its collectives.
  """
  analysis = step.analysis
  found: dict[str, dict[int, float]] = {name: {} for name in placed}
  for merged in kernels_lib.merged_products(analysis.module, analysis.kernels):
    kernel, total = merged.kernel, sum(merged.elements.values())
    free: dict[tuple[str, int], float] = {}
    for name, place in placed.items():
      if place.computation.name != kernel.computation:
        continue
      at = place.computation.position
      elements = sum(
        num
        for id_, num in merged.elements.items()
        if id_ in at and place.after[at[id_]] & place.bit
      )
      if 0 < elements < total:
        product = at[kernel.instruction_id]
        free[name, product] = 1 - elements / total
    for (name, product), share in free.items():
      found[name][product] = min(share, max(free.values()) / len(free))
  return found


def _take_apart(
  parts: Parts,
  run: Run,
  busy_us: np.ndarray,
  passage: Passage,
  place: Place,
  step: step_lib.Step,
  merged: Mapping[int, float],
) -> None:
  """Adds the parts of one passage; the last part is the rest."""
  weight, independent = run.weight, place.independent
  hideable_us = float(run.kernel_us[independent].sum())
  parts.hideable_us += weight * hideable_us
  if passage.stall_us <= 0:
    return
  unhideable_us = min(passage.lone_us - hideable_us, passage.stall_us)
  parts.bound_kernels_us += weight * (float(run.kernel_us.sum()) - hideable_us)
  parts.unhideable_us += weight * max(unhideable_us, 0.0)
  parts.exposed_us += weight * passage.stall_us
  idle_us = np.maximum(run.kernel_us - busy_us, 0.0)

  def free_us(begin: int, end: int | None = None) -> float:
    """Time of independent kernels in a range, less what hides others."""
    return float(idle_us[begin:end][independent[begin:end]].sum())

  beside_us: dict[str, float] = {}
  merged_us = {
    at: float(run.kernel_us[at]) * share for at, share in merged.items()
  }

  def most_us() -> Iterator[tuple[Reason, float]]:
    span = place.span
    yield "slowed", passage.slowed_us
    yield "queue", passage.queue_us
    late_us = free_us(span.ready + 1, place.start)
    early_us = free_us(place.done + 1, span.used)
    if place.collective.form == "sync":
      yield "sync", late_us + early_us
    else:
      yield "started_late", late_us
      yield "awaited_early", early_us
    if place.arrays:
      yield "combined", _by_combining_us(run, busy_us, passage, place, step)
    yield "operand_late", free_us(0, max(span.ready, 0))
    yield "consumer_early", free_us(span.used + 1)
    for at, others_us in sorted(run.beside_us.items()):
      if independent[at] and not place.start < at < place.done:
        _add(beside_us, others_us, 1.0)
    beside_us.pop(passage.name, None)
    yield "stream_busy", sum(beside_us.values())
    yield "merged", sum(merged_us.values())
    yield ("too_long" if hideable_us > 0 else "no_slack"), math.inf

  left_us = passage.stall_us
  for reason, at_most_us in most_us():
    us = min(max(at_most_us, 0.0), left_us)
    left_us -= us
    if us <= 0:
      continue
    parts.us[reason] = parts.us.get(reason, 0.0) + weight * us
    if reason == "queue":
      _blame(parts.ahead_us, weight * us, passage.ahead_us)
    elif reason == "stream_busy":
      _blame(parts.beside_us, weight * us, beside_us)
    elif reason == "merged":
      _blame(parts.merged_us, weight * us, merged_us)
    elif reason in ("operand_late", "consumer_early"):
      free = np.where(independent, idle_us, 0.0)
      near = free[: place.span.ready][::-1]
      if reason == "consumer_early":
        near = free[place.span.used + 1 :]
      number = _num_until(near[near > 0], us)
      parts.num_kernels[reason] = max(number, parts.num_kernels.get(reason, 1))
    if left_us <= 0:
      return


def _num_until(times_us: np.ndarray, us: float) -> int:
  """The number of first times that add up to `us`."""
  enough = np.cumsum(times_us) >= us - _NEGLIGIBLE_US
  return int(np.argmax(enough)) + 1


def _by_combining_us(
  run: Run,
  busy_us: np.ndarray,
  passage: Passage,
  place: Place,
  step: step_lib.Step,
) -> float:
  """The exposed time saved by sending its arrays one by one.

  Arrays are sent in the order in which they become ready. Each starts when it
  is ready and the previous array is done, and is needed where it is today. Each
  takes the time of a separate collective with NCCL's own choice.
  """
  # Cumulative time of kernels without another collective beside them.
  others_us = busy_us.copy()
  for at in range(place.start, place.done + 1):
    others_us[at : at + 1] -= run.beside_us.get(at, {}).get(passage.name, 0.0)
  free_us = np.maximum(run.kernel_us - others_us, 0.0)
  until_us = np.concatenate([[0.0], np.cumsum(free_us)])
  window_us = until_us[place.span.used] - until_us[place.span.ready + 1]
  whole_us = passage.lone_us - window_us
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
  total_us: dict[_T, float], us: float, others_us: Mapping[_T, float]
) -> None:
  """Adds `us` to the totals, in proportion to `others_us`."""
  if (all_us := sum(others_us.values())) > 0:
    _add(total_us, others_us, us / all_us)
