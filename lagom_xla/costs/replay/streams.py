# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""The GPU's streams, moved forward part by part.

XLA launches a step's kernels in schedule order on the compute stream. A start
enqueues its collective on the communication stream; a done holds the compute
stream until its collective is finished. Synchronous collectives hold it at
once. At any moment at most one kernel and one collective run, at the rates of
`contention.py`. A collective that reaches the head of the queue in the middle
of a kernel waits until SMs come free; between kernels it gets them at once.
Copies (`copy_streams.py`) go on beside both.

Loops are replayed until an iteration starts in the state that the previous one
started in, and that iteration then stands for all that are left. Of a
conditional's branches the slowest counts.
"""

from __future__ import annotations

import collections
import dataclasses

from lagom_xla.costs import kernel as kernel_lib
from lagom_xla.costs.replay import copy_streams
from lagom_xla.costs.replay import costs as costs_lib
from lagom_xla.costs.replay import in_flight
from lagom_xla.costs.replay import program as program_lib
from lagom_xla.passes import collectives as collectives_lib
from lagom_xla.passes import copies as copies_lib
from lagom_xla.passes import kernels as kernels_lib

# Remaining shares of work below this count as finished.
_NEGLIGIBLE = 1e-9


class Streams:
  """The streams in motion.

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
    copies: the streams of copies.
  """

  def __init__(
    self, costs: costs_lib.Costs, state: in_flight.State | None = None
  ):
    """Starts with the compute stream empty.

    Args:
      costs: of what will run.
      state: what is in flight, which is copied; None for nothing.
    """
    state = state or in_flight.State()
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
    self._queue = collections.deque(
      dataclasses.replace(c) for c in state.collectives
    )
    self.copies = copy_streams.CopyStreams(costs.beside, state.copies)

  @property
  def state(self) -> in_flight.State:
    """What is in flight."""
    return in_flight.State(
      collectives=tuple(self._queue), copies=tuple(self.copies)
    )

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
      elif isinstance(part, program_lib.StartCopy):
        cost = self._costs.copy(part.copy)
        self.copies.start(part.copy, cost, self._weight)
      elif isinstance(part, program_lib.WaitCopy):
        self._wait_copy(part.copy)
      else:
        self._branch(part.branches)

  def drain(self) -> None:
    """Waits until all other streams are empty, too."""
    while self._queue:
      self._wait(self._queue[0].collective)
    for copy in self.copies.last:
      self._wait_copy(copy)

  def _start(self, collective: collectives_lib.Collective) -> None:
    cost = self._costs.collective(collective)
    self.collective_us += self._weight * cost.time_us
    self._queue.append(in_flight.InFlight(collective, cost, cost.time_us))

  def _launch(self, kernel: kernels_lib.Kernel) -> None:
    cost = self._costs.kernel(kernel)
    lone_us = self._weight * cost.time_us
    self.kernel_us += lone_us
    if not self._queue and not self.copies:
      self.now_us += lone_us
      return
    left = 1.0
    while (self._queue or self.copies) and left > _NEGLIGIBLE:
      head = self._queue[0] if self._queue else None
      if head is None or head.wait_us > 0:
        left -= self._run_before(cost, head, left)
      else:
        left -= self._run_beside(kernel.name, cost, head, left)
    self.now_us += left * lone_us
    if self._queue:
      self._queue[0].wait_us = 0.0

  def _run_beside(
    self,
    name: str,
    kernel: kernel_lib.KernelCost,
    head: in_flight.InFlight,
    left: float,
  ) -> float:
    """Runs what is left of a kernel until it, `head` or a copy ends.

    Returns:
      The share of the kernel that was done.
    """
    beside = self._costs.beside(kernel, head.cost)
    factor = beside.collective_factor
    to_copies_us = self.copies.lost_us(kernel)
    kernel_us = beside.kernel_us + to_copies_us
    step_us, done = self._until_copy_ends(kernel, kernel_us, left)
    ends = head.left_us * factor <= step_us + _NEGLIGIBLE * head.cost.time_us
    if ends:
      step_us = min(step_us, head.left_us * factor)
      done = step_us / kernel_us if kernel_us else left
    lost_us = self._weight * (step_us - done * (kernel.time_us + to_copies_us))
    if lost_us > 0 and beside.kernel_us > kernel.time_us:
      self.slowdown_us[name, head.collective.name] += lost_us
    if factor > 1:
      lost_us = self._weight * step_us * (1 - 1 / factor)
      self.delay_us[head.collective.name] += lost_us
    self.copies.slow(kernel, done, self._weight)
    self._pass(step_us, kernel)
    head.left_us -= step_us / factor
    if ends:
      self._queue.popleft()
      if self._queue and (left < 1 or step_us):
        following = self._queue[0]
        following.wait_us = self._costs.beside(kernel, following.cost).wait_us
    return done

  def _run_before(
    self,
    kernel: kernel_lib.KernelCost,
    head: in_flight.InFlight | None,
    left: float,
  ) -> float:
    """Runs a kernel while the first collective, if any, waits for SMs."""
    kernel_us = kernel.time_us + self.copies.lost_us(kernel)
    step_us, done = self._until_copy_ends(kernel, kernel_us, left)
    if head is not None:
      if head.wait_us <= step_us:
        step_us, done = head.wait_us, head.wait_us / kernel_us
      head.wait_us -= step_us
      self.delay_us[head.collective.name] += self._weight * step_us
    self.copies.slow(kernel, done, self._weight)
    self._pass(step_us, kernel)
    return done

  def _until_copy_ends(
    self, kernel: kernel_lib.KernelCost, kernel_us: float, left: float
  ) -> tuple[float, float]:
    """How long a kernel runs beside the same copies, and the share done."""
    step_us = left * kernel_us
    next_end_us = self.copies.next_end_us(kernel)
    if step_us <= next_end_us:
      return step_us, left
    return next_end_us, next_end_us / kernel_us

  def _pass(
    self, us: float, beside: kernel_lib.KernelCost | None = None
  ) -> None:
    """Lets a time pass, which copies go on in, beside a kernel if one runs."""
    self.now_us += self._weight * us
    self.copies.advance(us, beside)

  def _wait(self, collective: collectives_lib.Collective) -> None:
    """Moves on until the collective is finished, with no kernel running."""
    while any(entry.collective is collective for entry in self._queue):
      head = self._queue.popleft()
      self.exposed_us[head.collective.name] += self._weight * head.left_us
      self._pass(head.left_us)

  def _wait_copy(self, copy: copies_lib.Copy) -> None:
    """Moves on until the copy is finished; collectives go on meanwhile."""
    wait_us = left_us = self.copies.until_us(copy)
    if not wait_us:
      return
    self.copies.wait_us[copy.name] += self._weight * wait_us
    while self._queue and left_us > 0:
      head = self._queue[0]
      step_us = min(head.left_us, left_us)
      left_us -= step_us
      head.left_us -= step_us
      if head.left_us <= 0:
        self._queue.popleft()
    self._pass(wait_us)

  def _loop(self, body: program_lib.Program, num_trips: int) -> None:
    before = None
    for trip in range(num_trips):
      signature = self.state.signature()
      if signature == before:
        outer = self._weight
        self._weight = outer * (num_trips - trip)
        self.run(body)
        self._weight = outer
        return
      before = signature
      self.run(body)

  def _branch(self, branches: tuple[program_lib.Program, ...]) -> None:
    if branches:
      self.run(max(branches, key=self._lone_us))

  def _lone_us(self, branch: program_lib.Program) -> float:
    """Time of a branch that starts with all streams empty."""
    streams = Streams(self._costs)
    streams.run(branch)
    streams.drain()
    return streams.now_us
