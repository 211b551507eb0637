# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Replays a schedule: what the GPU does when, who waits, who slows whom.

XLA launches a step's kernels in schedule order on the compute stream. A start
puts its collective on the communication stream, behind those already there; a
done holds the compute stream until its collective is finished. Synchronous
collectives hold it at once. The replay goes through the schedule once and moves
both streams forward together: at any moment at most one kernel and one
collective run, at the rates of `contention.py`. A collective that gets its turn
in the middle of a kernel waits until SMs come free; where kernels follow each
other it gets them at once.

Loops are replayed until an iteration starts in the state that the previous one
started in, and that iteration then stands for all that are left. Of a
conditional's branches the slowest counts.

    program = timeline.program(analysis)
    timeline.replay(program, costs).step_time_us
"""

from __future__ import annotations

import collections
from collections.abc import Callable, Iterable, Sequence
import dataclasses

from lagom_xla.costs import collective as collective_lib
from lagom_xla.costs import contention
from lagom_xla.costs import kernel as kernel_lib
from lagom_xla.passes import collectives as collectives_lib
from lagom_xla.passes import hlo
from lagom_xla.passes import kernels as kernels_lib
from lagom_xla.passes import overlap as overlap_lib

# Rests of work below this share count as finished.
_NEGLIGIBLE = 1e-9


@dataclasses.dataclass(frozen=True, slots=True)
class Launch:
  """Puts a kernel on the compute stream."""

  kernel: kernels_lib.Kernel


@dataclasses.dataclass(frozen=True, slots=True)
class Start:
  """Puts a collective on the communication stream."""

  collective: collectives_lib.Collective


@dataclasses.dataclass(frozen=True, slots=True)
class Wait:
  """Holds the compute stream until a collective is finished."""

  collective: collectives_lib.Collective


@dataclasses.dataclass(frozen=True, slots=True)
class Loop:
  """A body that runs `num_trips` times."""

  body: Program
  num_trips: int


@dataclasses.dataclass(frozen=True, slots=True)
class Branch:
  """Alternatives, of which the slowest counts."""

  branches: tuple[Program, ...]


Program = tuple[Launch | Start | Wait | Loop | Branch, ...]


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Costs:
  """What a replay asks for.

  Attributes:
    kernel: cost of a kernel alone.
    collective: cost of a collective alone, as it is configured.
    beside: what a kernel and a collective do to each other.
  """

  kernel: Callable[[kernels_lib.Kernel], kernel_lib.KernelCost]
  collective: Callable[
    [collectives_lib.Collective], collective_lib.CollectiveCost
  ]
  beside: Callable[
    [kernel_lib.KernelCost, collective_lib.CollectiveCost], contention.Beside
  ]


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Timeline:
  """A replayed step. All times are per step, in microseconds.

  The step time is the sum of what kernels take alone, what they lose to
  collectives, and the waits.

  Attributes:
    step_time_us: from the first kernel or start until both streams are empty.
    kernel_us: kernels alone, summed.
    collective_us: collectives alone, summed.
    exposed_us: waits for each collective, by its name.
    slowdown_us: (kernel, collective) names -> what the kernel lost to the
      collective.
    delay_us: what each collective lost to kernels, late starts included, by its
      name.
  """

  step_time_us: float
  kernel_us: float
  collective_us: float
  exposed_us: dict[str, float]
  slowdown_us: dict[tuple[str, str], float]
  delay_us: dict[str, float] = dataclasses.field(default_factory=dict)

  @property
  def total_exposed_us(self) -> float:
    """All waits."""
    return sum(self.exposed_us.values())

  @property
  def total_slowdown_us(self) -> float:
    """All that kernels lost to collectives."""
    return sum(self.slowdown_us.values())

  @property
  def total_delay_us(self) -> float:
    """All that collectives lost to kernels."""
    return sum(self.delay_us.values())


def program(analysis: overlap_lib.Analysis) -> Program:
  """The schedule of a whole module."""
  entry = analysis.module.entry
  return _program(analysis, entry.instructions)


def program_of_overlap(
  analysis: overlap_lib.Analysis, overlap: overlap_lib.Overlap
) -> Program:
  """The schedule of one overlap, once."""
  computation = analysis.module.computations[overlap.computation_id]
  instructions = computation.instructions[overlap.begin : overlap.end]
  return _program(analysis, instructions)


def _program(
  analysis: overlap_lib.Analysis, instructions: Sequence[hlo.Instruction]
) -> Program:
  steps: list[Launch | Start | Wait | Loop | Branch] = []
  for instruction in instructions:
    started = analysis.started_by.get(instruction.id, ())
    for collective in started:
      steps.append(Start(collective))
      if collective.form == "sync":
        steps.append(Wait(collective))
    steps.extend(Wait(c) for c in analysis.awaited_by.get(instruction.id, ()))
    if instruction.id in analysis.kernels:
      steps.append(Launch(analysis.kernels[instruction.id]))
    elif not started:
      steps.extend(_control_flow(analysis, instruction))
  return tuple(steps)


def _control_flow(
  analysis: overlap_lib.Analysis, instruction: hlo.Instruction
) -> Iterable[Launch | Start | Wait | Loop | Branch]:
  callees = [
    (_program(analysis, callee.instructions), repeats)
    for callee, repeats in analysis.module.callees(instruction)
  ]
  match instruction.opcode:
    case "conditional":
      return [Branch(tuple(branch for branch, _ in callees))]
    case "while":
      (body, num_trips), (condition, _) = callees
      return [Loop((*condition, *body), num_trips), *condition]
  return [part for body, _ in callees for part in body]


@dataclasses.dataclass(slots=True)
class UnderWay:
  """A collective on the communication stream.

  Attributes:
    collective: which one.
    cost: of it alone.
    left_us: what is still to do of it, at its lone pace.
    wait_us: what it still waits for SMs.
  """

  collective: collectives_lib.Collective
  cost: collective_lib.CollectiveCost
  left_us: float
  wait_us: float = 0.0


def replay(program_: Program, costs: Costs) -> Timeline:
  """Replays a program; see the module's docstring."""
  streams = _Streams(costs)
  streams.run(program_)
  streams.drain()
  return streams.timeline()


def replay_part(
  program_: Program, costs: Costs, queue: Iterable[UnderWay]
) -> tuple[Timeline, tuple[UnderWay, ...]]:
  """Replays a part of a program.

  Args:
    program_: the part.
    costs: as for `replay`.
    queue: the communication stream as the part before left it.

  Returns:
    The timeline of the part, and the communication stream as it leaves it.
  """
  streams = _Streams(costs, queue)
  streams.run(program_)
  return streams.timeline(), streams.queue


class _Streams:
  """The two streams in motion.

  Times accumulate with a weight: the number of loop iterations that the one
  being replayed stands for.
  """

  def __init__(self, costs: Costs, queue: Iterable[UnderWay] = ()):
    self._costs = costs
    self._now_us = 0.0
    self._weight = 1.0
    self._queue = collections.deque(dataclasses.replace(u) for u in queue)
    self._kernel_us = 0.0
    self._collective_us = 0.0
    self._exposed_us: dict[str, float] = collections.defaultdict(float)
    self._slowdown_us: dict[tuple[str, str], float] = collections.defaultdict(
      float
    )
    self._delay_us: dict[str, float] = collections.defaultdict(float)

  @property
  def queue(self) -> tuple[UnderWay, ...]:
    return tuple(self._queue)

  def timeline(self) -> Timeline:
    return Timeline(
      step_time_us=self._now_us,
      kernel_us=self._kernel_us,
      collective_us=self._collective_us,
      exposed_us=dict(self._exposed_us),
      slowdown_us=dict(self._slowdown_us),
      delay_us=dict(self._delay_us),
    )

  def run(self, program_: Program) -> None:
    for part in program_:
      if isinstance(part, Launch):
        self._launch(part.kernel)
      elif isinstance(part, Start):
        self._start(part.collective)
      elif isinstance(part, Wait):
        self._wait(part.collective)
      elif isinstance(part, Loop):
        self._loop(part.body, part.num_trips)
      else:
        self._branch(part.branches)

  def drain(self) -> None:
    """The step ends when the communication stream is empty, too."""
    while self._queue:
      self._wait(self._queue[0].collective)

  def _start(self, collective: collectives_lib.Collective) -> None:
    cost = self._costs.collective(collective)
    self._collective_us += self._weight * cost.time_us
    self._queue.append(UnderWay(collective, cost, cost.time_us))

  def _launch(self, kernel: kernels_lib.Kernel) -> None:
    cost = self._costs.kernel(kernel)
    lone_us = self._weight * cost.time_us
    self._kernel_us += lone_us
    if not self._queue:
      self._now_us += lone_us
      return
    left = 1.0
    while self._queue and left > _NEGLIGIBLE:
      left -= self._run_beside(kernel.name, cost, self._queue[0], left)
    self._now_us += left * lone_us
    if self._queue:
      self._queue[0].wait_us = 0.0

  def _run_beside(
    self,
    name: str,
    kernel: kernel_lib.KernelCost,
    head: UnderWay,
    left: float,
  ) -> float:
    """Runs a kernel until it or the first collective ends, or this one starts.

    Args:
      name: of the kernel.
      kernel: its cost.
      head: the first collective.
      left: the share of the kernel that is still to do.

    Returns:
      the share of the kernel that was done.
    """
    if head.wait_us > 0:
      return self._run_before(kernel, head, left)
    beside = self._costs.beside(kernel, head.cost)
    factor = beside.collective_factor
    step_us = left * beside.kernel_us
    done = left
    ends = head.left_us * factor <= step_us + _NEGLIGIBLE * head.cost.time_us
    if ends:
      step_us = min(step_us, head.left_us * factor)
      done = step_us / beside.kernel_us if beside.kernel_us else left
    lost_us = self._weight * (step_us - done * kernel.time_us)
    if lost_us > 0 and beside.kernel_us > kernel.time_us:
      self._slowdown_us[name, head.collective.name] += lost_us
    if factor > 1:
      lost_us = self._weight * step_us * (1 - 1 / factor)
      self._delay_us[head.collective.name] += lost_us
    self._now_us += self._weight * step_us
    head.left_us -= step_us / factor
    if ends:
      self._queue.popleft()
      if self._queue and (left < 1 or step_us):
        following = self._queue[0]
        following.wait_us = self._costs.beside(kernel, following.cost).wait_us
    return done

  def _run_before(
    self, kernel: kernel_lib.KernelCost, head: UnderWay, left: float
  ) -> float:
    """Runs a kernel while the first collective waits for SMs."""
    step_us = min(left * kernel.time_us, head.wait_us)
    head.wait_us -= step_us
    self._delay_us[head.collective.name] += self._weight * step_us
    self._now_us += self._weight * step_us
    return step_us / kernel.time_us if head.wait_us <= 0 else left

  def _wait(self, collective: collectives_lib.Collective) -> None:
    """Moves on until the collective is finished, with no kernel running."""
    while any(entry.collective is collective for entry in self._queue):
      head = self._queue.popleft()
      self._exposed_us[head.collective.name] += self._weight * head.left_us
      self._now_us += self._weight * head.left_us

  def _loop(self, body: Program, num_trips: int) -> None:
    before = None
    for trip in range(num_trips):
      state = [
        (under_way.collective.name, round(under_way.left_us, 9))
        for under_way in self._queue
      ]
      if state == before:
        outer = self._weight
        self._weight = outer * (num_trips - trip)
        self.run(body)
        self._weight = outer
        return
      before = state
      self.run(body)

  def _branch(self, branches: tuple[Program, ...]) -> None:
    if not branches:
      return
    slowest = max(
      branches, key=lambda branch: replay(branch, self._costs).step_time_us
    )
    self.run(slowest)
