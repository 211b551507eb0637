# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""A walk through a replay: what each instruction of a schedule waited for.

The replay tells what happens; here that is kept for each run of a computation:
what its kernels took, how long of that the communication stream was busy, and
for each collective when it was issued, behind which others, and how long its
done held the compute stream.

A wait is counted at the done that waits. The timeline counts it with the
collective that runs meanwhile, which is another one where that done waits for
those ahead in the queue; the sums over all collectives are equal.
"""

from __future__ import annotations

import collections
from collections.abc import Iterator, Sequence
import dataclasses

import numpy as np

from lagom_xla.costs import collective as collective_lib
from lagom_xla.costs import kernel as kernel_lib
from lagom_xla.costs import step as step_lib
from lagom_xla.costs.replay import timeline
from lagom_xla.passes import hlo

# Sums of times have rounding errors below this.
_NEGLIGIBLE_US = 1e-6


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
  ahead_us: dict[str, float]
  stall_us: float = 0.0
  slowed_us: float = 0.0
  queue_us: float = 0.0


class Run:
  """A computation as it ran, once or in trips that are all alike.

  Attributes:
    weight: runs that it stands for.
    kernel_us: what the kernels of each instruction took, by position.
    beside_us: position -> collective -> how long of that it was at the head of
      the queue.
    passages: of the collectives that it starts.
  """

  def __init__(self, computation: hlo.Computation, weight: float):
    self.weight = weight
    self.kernel_us = np.zeros(len(computation.instructions))
    self.beside_us: dict[int, dict[str, float]] = {}
    self.passages: list[Passage] = []

  def add(
    self, position: int, us: float, beside_us: dict[str, float], times: float
  ) -> None:
    """Adds kernels that an instruction launches, or has launched so often."""
    self.kernel_us[position] += times * us
    if beside_us:
      total_us = self.beside_us.setdefault(position, {})
      for name, us in beside_us.items():
        total_us[name] = total_us.get(name, 0.0) + times * us


def walk(
  step: step_lib.Step, configuration: step_lib.Configuration
) -> tuple[Sequence[Run], timeline.Timeline]:
  """Replays a step under NCCL settings, and keeps each run of a computation.

  Trips of a loop from one on that begins like the one before it are one run.
  """
  walker = _Walker(step)
  streams = timeline.Streams(step.costs(configuration), listener=walker)
  walker.streams = streams
  streams.run(step.program)
  streams.drain()
  return walker.runs, streams.timeline()


class _Walker(timeline.Listener):
  """Notes what the streams tell, in the runs that are going on."""

  streams: timeline.Streams

  def __init__(self, step: step_lib.Step):
    self.runs: list[Run] = []
    analysis = step.analysis
    sequences = {c.name: c for c in analysis.sequences}
    self._homes = {
      one.name: sequences[one.computation] for one in analysis.collectives
    }
    # Where kernels are launched and computations called.
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
    # The runs of the step, of a trip of a loop in it, of one in that, ..., with
    # how often each counts.
    self._going_on: list[tuple[float, dict[int, Run]]] = [(1.0, {})]
    self._awaited: dict[str, collections.deque[Passage]] = (
      collections.defaultdict(collections.deque)
    )
    # Time in the trips that run, when the last kernel or wait ended, and what
    # the kernel runs beside.
    self._now_us = self._since_us = 0.0
    self._beside_us: dict[str, float] = {}

  def _callers(
    self, computation: hlo.Computation
  ) -> Iterator[tuple[hlo.Computation, int]]:
    """Where it is called, where that is called, and so on."""
    at = self._called.get(computation.id)
    while at is not None:
      yield at
      at = self._called.get(at[0].id)

  def _run(self, computation: hlo.Computation) -> Run:
    """The run of a computation that is going on."""
    depth = sum(
      caller.instructions[at].opcode == "while"
      for caller, at in self._callers(computation)
    )
    # A loop's condition is asked once more after its trips.
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
    if stream != timeline.COMMUNICATION:
      return
    *ahead, _ = self.streams.state.collectives
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
      run.add(at, us, beside_us, inner.weight / run.weight)

  def done(self, stream: str, name: str) -> None:
    stall_us = self._passed_us()
    if stream != timeline.COMMUNICATION or not self._awaited[name]:
      return  # Or it has been awaited.
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
