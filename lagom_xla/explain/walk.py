# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""A walk through a replay: what each instruction of a schedule waited for.

`timeline.py` sums a step up by names. Here the same streams are moved on one
instruction at a time, so that each run of a computation keeps what its kernels
took, how long of that the communication stream was busy, and for each
collective when it was issued, behind which others, and how long its done held
the compute stream.

A wait is counted at the done that waits. The timeline counts it with the
collective that runs meanwhile, which is another one where that done waits for
those ahead in the queue; the sums over all collectives are equal.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
import dataclasses

from lagom_xla.costs import step as step_lib
from lagom_xla.costs.replay import program as program_lib
from lagom_xla.costs.replay import streams as streams_lib
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
  """Replays a step, and keeps each run of its computations.

  Args:
    step: what runs.
    configuration: the NCCL setting of each of its tuning keys.

  Returns:
    The runs; trips of a loop from one that begins like the one before it are
    one run of their weight.
  """
  walker = _Walker(step, configuration)
  walker.computation(step.analysis.module.entry, 1.0)
  walker.drain()
  return walker.runs


class _Walker(streams_lib.Listener):
  """Moves the streams on by one instruction at a time, and notes each wait."""

  def __init__(
    self, step: step_lib.Step, configuration: step_lib.Configuration
  ):
    self.runs: list[Run] = []
    self._analysis = step.analysis
    self._costs = step.costs(configuration)
    self._streams = streams_lib.Streams(self._costs, listener=self)
    self._under_way: dict[str, list[Passage]] = {}
    self._beside_us: dict[str, float] = {}

  def computation(self, computation: hlo.Computation, weight: float) -> Run:
    """Runs a computation."""
    num = len(computation.instructions)
    run = Run(computation, weight, [0.0] * num, [_NOTHING] * num, [])
    self.runs.append(run)
    for position, instruction in enumerate(computation.instructions):
      if callees := list(self._analysis.callees(instruction)):
        ran = list(self._control_flow(instruction, callees, weight))
        run.kernel_us[position] = sum(
          times * sum(inner.kernel_us) for inner, times in ran
        )
        run.beside_us[position] = _summed(ran)
        continue
      for part in program_lib.of_instructions(self._analysis, [instruction]):
        self._part(part, run, position)
    return run

  def drain(self) -> None:
    """Waits for what nobody awaited."""
    while queue := self._streams.state.collectives:
      self._wait(program_lib.Wait(queue[0].collective))

  def _control_flow(
    self,
    instruction: hlo.Instruction,
    callees: Sequence[tuple[hlo.Computation, int]],
    weight: float,
  ) -> Iterator[tuple[Run, int]]:
    """Runs what an instruction calls; yields runs, and how often each counts.

    Loops are followed as by `streams.Streams`.
    """
    if instruction.opcode == "conditional":
      slowest = max(callees, key=lambda callee: self._lone_us(callee[0]))
      yield self.computation(slowest[0], weight), 1
      return
    if instruction.opcode != "while":
      for callee, _ in callees:
        yield self.computation(callee, weight), 1
      return
    (body, num_trips), (condition, asked) = callees
    before, trip = None, 0
    while trip < num_trips:
      signature = self._streams.state.signature()
      times = num_trips - trip if signature == before else 1
      if asked:
        yield self.computation(condition, weight * times), times
      yield self.computation(body, weight * times), times
      before, trip = signature, trip + times
    if asked:
      yield self.computation(condition, weight), 1

  def _lone_us(self, branch: hlo.Computation) -> float:
    program = program_lib.of_instructions(self._analysis, branch.instructions)
    return timeline.replay(program, self._costs).step_time_us

  def _part(self, part: program_lib.Part, run: Run, position: int) -> None:
    match part:
      case program_lib.Launch():
        self._launch(part, run, position)
      case program_lib.Start():
        self._start(part, run)
      case program_lib.Wait():
        self._wait(part)
      case _:
        self._streams.run((part,))

  def _launch(self, part: program_lib.Launch, run: Run, position: int) -> None:
    begin_us, self._beside_us = self._streams.now_us, {}
    self._streams.run((part,))
    run.kernel_us[position] += self._streams.now_us - begin_us
    run.beside_us[position] = self._beside_us

  def blocked(self, name: str, us: float) -> None:
    """Counts what a collective waits for SMs beside the kernel."""
    if us > 0:
      self._beside_us[name] = self._beside_us.get(name, 0.0) + us

  def met(self, name: str, us: float, lost_us: float, slowed_us: float) -> None:
    """Counts what runs beside the kernel."""
    self._under_way[name][0].slowed_us += slowed_us
    self.blocked(name, us)

  def _start(self, part: program_lib.Start, run: Run) -> None:
    streams = self._streams
    name = part.collective.name
    ahead = streams.state.collectives
    passage = Passage(
      name=name,
      lone_us=self._costs.collective(part.collective).time_us,
      issued_us=streams.now_us,
      ahead_us=tuple((e.collective.name, e.left_us) for e in ahead),
    )
    self._under_way.setdefault(name, []).append(passage)
    run.passages.append(passage)
    streams.run((part,))

  def _wait(self, part: program_lib.Wait) -> None:
    streams = self._streams
    name, begin_us = part.collective.name, streams.now_us
    streams.run((part,))
    if not self._under_way.get(name):
      return  # It has been awaited.
    passage = self._under_way[name].pop(0)
    passage.stall_us = streams.now_us - begin_us
    if passage.stall_us > 0:
      took_us = passage.lone_us + passage.slowed_us
      waited_us = streams.now_us - passage.issued_us - took_us
      passage.queue_us = waited_us if waited_us > _NEGLIGIBLE_US else 0.0


def _summed(ran: Sequence[tuple[Run, int]]) -> Mapping[str, float]:
  total_us: dict[str, float] = {}
  for inner, times in ran:
    for beside_us in inner.beside_us:
      for name, us in beside_us.items():
        total_us[name] = total_us.get(name, 0.0) + times * us
  return total_us
