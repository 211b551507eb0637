# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""The compute and the communication stream, moved forward part by part.

XLA launches a step's kernels in schedule order on the compute stream. A start
enqueues its collective on the communication stream; a done holds the compute
stream until its collective is finished. Synchronous collectives hold it at
once. At any moment at most one kernel and one collective run, at the rates of
`contention.py`. A collective that reaches the head of the queue in the middle
of a kernel waits until SMs come free; between kernels it gets them at once.

Loops are replayed until an iteration starts in the state that the previous one
started in, and that iteration then stands for all that are left. Of a
conditional's branches the slowest counts.
"""

from __future__ import annotations

import collections
from collections.abc import Callable, Iterable
import dataclasses

from lagom_xla.costs import collective as collective_lib
from lagom_xla.costs import contention
from lagom_xla.costs import kernel as kernel_lib
from lagom_xla.costs.replay import program as program_lib
from lagom_xla.passes import collectives as collectives_lib
from lagom_xla.passes import kernels as kernels_lib

# Remaining shares of work below this count as finished.
_NEGLIGIBLE = 1e-9


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Costs:
  """What the streams ask for.

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


@dataclasses.dataclass(slots=True)
class InFlight:
  """A collective on the communication stream.

  Attributes:
    collective: which one.
    cost: of it alone.
    left_us: what is left of it, at its lone pace.
    wait_us: how long it still waits for SMs.
  """

  collective: collectives_lib.Collective
  cost: collective_lib.CollectiveCost
  left_us: float
  wait_us: float = 0.0


class Streams:
  """The two streams in motion.

  Times accumulate with a weight: the number of loop iterations that the one
  being replayed stands for.

  Attributes:
    now_us: time since the start.
    kernel_us: kernels alone, summed.
    collective_us: collectives alone, summed.
    exposed_us: waits for each collective, by its name.
    slowdown_us: (kernel, collective) names -> what the kernel lost to the
      collective.
    delay_us: what each collective lost to kernels, by its name.
  """

  def __init__(self, costs: Costs, queue: Iterable[InFlight] = ()):
    """Starts with the compute stream empty.

    Args:
      costs: of what will run.
      queue: the collectives in flight, the running one first. They are copied.
    """
    self.now_us = 0.0
    self.kernel_us = 0.0
    self.collective_us = 0.0
    self.exposed_us: dict[str, float] = collections.defaultdict(float)
    self.slowdown_us: dict[tuple[str, str], float] = collections.defaultdict(
      float
    )
    self.delay_us: dict[str, float] = collections.defaultdict(float)
    self._costs = costs
    self._weight = 1.0
    self._queue = collections.deque(dataclasses.replace(c) for c in queue)

  @property
  def queue(self) -> tuple[InFlight, ...]:
    """The collectives in flight, the running one first."""
    return tuple(self._queue)

  def run(self, program: program_lib.Program) -> None:
    """Runs a program up to the end of its kernels and waits."""
    for part in program:
      if isinstance(part, program_lib.Launch):
        self._launch(part.kernel)
      elif isinstance(part, program_lib.Start):
        self._start(part.collective)
      elif isinstance(part, program_lib.Wait):
        self._wait(part.collective)
      elif isinstance(part, program_lib.Loop):
        self._loop(part.body, part.num_trips)
      else:
        self._branch(part.branches)

  def drain(self) -> None:
    """Waits until the communication stream is empty, too."""
    while self._queue:
      self._wait(self._queue[0].collective)

  def _start(self, collective: collectives_lib.Collective) -> None:
    cost = self._costs.collective(collective)
    self.collective_us += self._weight * cost.time_us
    self._queue.append(InFlight(collective, cost, cost.time_us))

  def _launch(self, kernel: kernels_lib.Kernel) -> None:
    cost = self._costs.kernel(kernel)
    lone_us = self._weight * cost.time_us
    self.kernel_us += lone_us
    if not self._queue:
      self.now_us += lone_us
      return
    left = 1.0
    while self._queue and left > _NEGLIGIBLE:
      left -= self._run_beside(kernel.name, cost, self._queue[0], left)
    self.now_us += left * lone_us
    if self._queue:
      self._queue[0].wait_us = 0.0

  def _run_beside(
    self,
    name: str,
    kernel: kernel_lib.KernelCost,
    head: InFlight,
    left: float,
  ) -> float:
    """Runs a kernel until it or the first collective ends, or this one starts.

    Args:
      name: of the kernel.
      kernel: its cost.
      head: the first collective.
      left: the share of the kernel that is still to do.

    Returns:
      The share of the kernel that was done.
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
      self.slowdown_us[name, head.collective.name] += lost_us
    if factor > 1:
      lost_us = self._weight * step_us * (1 - 1 / factor)
      self.delay_us[head.collective.name] += lost_us
    self.now_us += self._weight * step_us
    head.left_us -= step_us / factor
    if ends:
      self._queue.popleft()
      if self._queue and (left < 1 or step_us):
        following = self._queue[0]
        following.wait_us = self._costs.beside(kernel, following.cost).wait_us
    return done

  def _run_before(
    self, kernel: kernel_lib.KernelCost, head: InFlight, left: float
  ) -> float:
    """Runs a kernel while the first collective waits for SMs."""
    step_us = min(left * kernel.time_us, head.wait_us)
    head.wait_us -= step_us
    self.delay_us[head.collective.name] += self._weight * step_us
    self.now_us += self._weight * step_us
    return step_us / kernel.time_us if head.wait_us <= 0 else left

  def _wait(self, collective: collectives_lib.Collective) -> None:
    """Moves on until the collective is finished, with no kernel running."""
    while any(entry.collective is collective for entry in self._queue):
      head = self._queue.popleft()
      self.exposed_us[head.collective.name] += self._weight * head.left_us
      self.now_us += self._weight * head.left_us

  def _loop(self, body: program_lib.Program, num_trips: int) -> None:
    before = None
    for trip in range(num_trips):
      state = [
        (in_flight.collective.name, round(in_flight.left_us, 9))
        for in_flight in self._queue
      ]
      if state == before:
        outer = self._weight
        self._weight = outer * (num_trips - trip)
        self.run(body)
        self._weight = outer
        return
      before = state
      self.run(body)

  def _branch(self, branches: tuple[program_lib.Program, ...]) -> None:
    if branches:
      self.run(max(branches, key=self._lone_us))

  def _lone_us(self, branch: program_lib.Program) -> float:
    """Time of a branch that starts with both streams empty."""
    streams = Streams(self._costs)
    streams.run(branch)
    streams.drain()
    return streams.now_us
