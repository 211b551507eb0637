# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""A walk through a replay: what each instruction of a schedule waited for.

`timeline.py` sums a step up by names. Here the same streams are moved on one
instruction at a time, and what they tell is kept for each run of a computation:
what its kernels took, how long of that the communication stream was busy, and
for each collective when it was issued, behind which others, and how long its
done held the compute stream.

A wait is counted at the done that waits. The timeline counts it with the
collective that runs meanwhile, which is another one where that done waits for
those ahead in the queue; the sums over all collectives are equal.
"""

from __future__ import annotations

import collections
from collections.abc import Iterator, Mapping, Sequence
import dataclasses

from lagom_xla.costs import collective as collective_lib
from lagom_xla.costs import step as step_lib
from lagom_xla.costs.replay import program as program_lib
from lagom_xla.costs.replay import timeline
from lagom_xla.passes import hlo

# Sums of times have rounding errors below this.
_NEGLIGIBLE_US = 1e-6
_NOTHING: Mapping[str, float] = {}


@dataclasses.dataclass(slots=True, kw_only=True)
class Passage:
  """A collective as it ran once; times in microseconds.

  Attributes:
    name: of the collective.
    lone_us: what it takes alone.
    issued_us: when its start was reached.
    ahead_us: collective -> what was left of those ahead in the queue then.
    stall_us: how long its done held the compute stream.
    slowed_us: what it lost to kernels that it ran beside.
    queue_us: from its start until those ahead were through, and SMs free; 0
      unless its done had to wait.
  """

  name: str
  lone_us: float
  issued_us: float
  ahead_us: tuple[tuple[str, float], ...]
  stall_us: float = 0.0
  slowed_us: float = 0.0
  queue_us: float = 0.0


@dataclasses.dataclass(slots=True)
class Run:
  """A computation as it ran, once or in trips that are all alike.

  Attributes:
    computation: which one.
    weight: runs that it stands for.
    kernel_us: what the kernels of each instruction took, by position.
    beside_us: collective -> how long of that it was at the head of the queue,
      by position.
    passages: of the collectives that it starts.
  """

  computation: hlo.Computation
  weight: float
  kernel_us: list[float]
  beside_us: list[Mapping[str, float]]
  passages: list[Passage]


def walk(
  step: step_lib.Step, configuration: step_lib.Configuration
) -> Sequence[Run]:
  """Replays a step under NCCL settings, and keeps each run of a computation.

  Trips of a loop from one on that begins like the one before it are one run.
  """
  walker = _Walker(step, configuration)
  walker.run(step.analysis.module.entry, 1.0)
  walker.streams.drain()
  return walker.runs


class _Walker(timeline.Listener):
  """Runs instruction after instruction, and notes what the streams tell."""

  def __init__(
    self, step: step_lib.Step, configuration: step_lib.Configuration
  ):
    self.runs: list[Run] = []
    self._analysis = step.analysis
    self._costs = step.costs(configuration)
    self.streams = timeline.Streams(self._costs, listener=self)
    self._awaited: dict[str, collections.deque[Passage]] = (
      collections.defaultdict(collections.deque)
    )
    # Of the kernel that runs, and when the last kernel or wait ended.
    self._beside_us: dict[str, float] = {}
    self._since_us = 0.0

  def run(self, computation: hlo.Computation, weight: float) -> Run:
    """Runs a computation."""
    num = len(computation.instructions)
    run = Run(computation, weight, [0.0] * num, [_NOTHING] * num, [])
    self.runs.append(run)
    for position, instruction in enumerate(computation.instructions):
      if callees := list(self._analysis.callees(instruction)):
        ran = list(self._called(instruction, callees, weight))
        run.kernel_us[position] = sum(
          times * sum(inner.kernel_us) for inner, times in ran
        )
        run.beside_us[position] = total_us = collections.defaultdict(float)
        for inner, times in ran:
          for beside_us in inner.beside_us:
            for name, us in beside_us.items():
              total_us[name] += times * us
        continue
      self._run, self._position = run, position
      self.streams.run(
        program_lib.of_instructions(self._analysis, [instruction])
      )
    return run

  def _called(
    self,
    instruction: hlo.Instruction,
    callees: Sequence[tuple[hlo.Computation, int]],
    weight: float,
  ) -> Iterator[tuple[Run, int]]:
    """Runs what an instruction calls; yields runs, and how often each counts.

    Loops and branches are followed as by `timeline.Streams`.
    """
    if instruction.opcode == "conditional":
      slowest = max(callees, key=lambda callee: self._lone_us(callee[0]))
      yield self.run(slowest[0], weight), 1
      return
    if instruction.opcode != "while":
      for callee, _ in callees:
        yield self.run(callee, weight), 1
      return
    (body, num_trips), (condition, asked) = callees
    before, trip = None, 0
    while trip < num_trips:
      signature = self.streams.state.signature()
      times = num_trips - trip if signature == before else 1
      if asked:
        yield self.run(condition, weight * times), times
      yield self.run(body, weight * times), times
      before, trip = signature, trip + times
    if asked:
      yield self.run(condition, weight), 1

  def _lone_us(self, branch: hlo.Computation) -> float:
    program = program_lib.of_instructions(self._analysis, branch.instructions)
    return timeline.replay(program, self._costs).step_time_us

  def issued(
    self, stream: str, name: str, cost: collective_lib.CollectiveCost
  ) -> None:
    if stream != timeline.COMMUNICATION:
      return
    *ahead, _ = self.streams.state.collectives
    passage = Passage(
      name=name,
      lone_us=cost.time_us,
      issued_us=self.streams.now_us,
      ahead_us=tuple((e.collective.name, e.left_us) for e in ahead),
    )
    self._awaited[name].append(passage)
    self._run.passages.append(passage)

  def blocked(self, name: str, us: float) -> None:
    if us > 0:
      self._beside_us[name] = self._beside_us.get(name, 0.0) + us

  def met(self, name: str, us: float, lost_us: float, slowed_us: float) -> None:
    self._awaited[name][0].slowed_us += slowed_us
    self.blocked(name, us)

  def finished(self) -> None:
    self._run.kernel_us[self._position] += self._passed_us()
    self._run.beside_us[self._position] = self._beside_us
    self._beside_us = {}

  def done(self, stream: str, name: str) -> None:
    stall_us = self._passed_us()
    if stream != timeline.COMMUNICATION or not self._awaited[name]:
      return  # Or it has been awaited.
    passage = self._awaited[name].popleft()
    passage.stall_us = stall_us
    if stall_us > 0:
      took_us = passage.lone_us + passage.slowed_us
      waited_us = self.streams.now_us - passage.issued_us - took_us
      passage.queue_us = waited_us if waited_us > _NEGLIGIBLE_US else 0.0

  def _passed_us(self) -> float:
    """The time since the last kernel or wait ended."""
    since_us, self._since_us = self._since_us, self.streams.now_us
    return self._since_us - since_us
