# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""The timeline of a step: a replay of its streams, part by part.

    program = program_lib.of_module(analysis)
    timeline.replay(program, costs).step_time_us

XLA launches a step's kernels in schedule order on the compute stream. A start
enqueues its collective on its communication stream. A done blocks the compute
stream until its collective is finished. Synchronous collectives block it at
once, and wait for no stream. At any moment at most one kernel and the first
collective of each stream run, at the rates of `contention.py`. A collective
that reaches the head of its queue in the middle of a kernel waits for free SMs;
between kernels it gets them at once.

Copies run concurrently with both. Copies of one stream run in sequence, those
of several streams concurrently. Copies take no SMs. The link to the host bounds
a host copy, which takes a few percent of the memory bandwidth, so nothing on
the GPU slows it down. Memory bounds a device copy, and a kernel slows it down
as it does a collective.

Loops are replayed until an iteration starts in the same state as the previous
one. That iteration then stands for all remaining ones. The slowest branch of a
conditional counts.

Streams keep only sums of times, which a search compares. They call a
`Listener`, such as the recorder, for each event.
"""

from __future__ import annotations

import collections
from collections.abc import Callable, Iterable, Iterator, Sequence
import dataclasses
import math

from lagom_xla.costs import collective as collective_lib
from lagom_xla.costs import contention
from lagom_xla.costs import kernel as kernel_lib
from lagom_xla.costs.replay import program as program_lib
from lagom_xla.passes import collectives as collectives_lib
from lagom_xla.passes import copies as copies_lib
from lagom_xla.passes import kernels as kernels_lib

Beside = Callable[
  [kernel_lib.KernelCost, collective_lib.CollectiveCost], contention.Beside
]
# For collectives of several streams.
Together = Callable[
  [tuple[collective_lib.CollectiveCost, ...]], contention.Together
]


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Costs:
  """The inputs of a replay: costs alone, and contention.

  `beside` takes a kernel, and a collective or a copy.
  """

  kernel: Callable[[kernels_lib.Kernel], kernel_lib.KernelCost]
  collective: Callable[
    [collectives_lib.Collective], collective_lib.CollectiveCost
  ]
  copy: Callable[[copies_lib.Copy], collective_lib.CollectiveCost]
  beside: Beside
  together: Together


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Timeline:
  """A replayed step. All times are per step, in microseconds.

  The step time is the sum of the kernels' times alone, their losses to
  collectives and to copies, and the waits.

  Attributes:
    step_time_us: from the first kernel or start until all streams are empty.
    kernel_us: sum of the kernels' times alone.
    collective_us: sum of the collectives' times alone.
    exposed_us: waits for each collective, by its name.
    slowdown_us: time that a kernel lost to a collective, by their names.
    delay_us: time that each collective lost to kernels, including waits for
      SMs, by its name.
    copy_us: sum of the copies' times alone.
    copy_wait_us: waits for each copy, by its name.
    copy_slowdown_us: time that kernels lost to each copy, by its name.
  """

  step_time_us: float
  kernel_us: float
  collective_us: float
  exposed_us: dict[str, float]
  slowdown_us: dict[tuple[str, str], float]
  delay_us: dict[str, float] = dataclasses.field(default_factory=dict)
  copy_us: float = 0.0
  copy_wait_us: dict[str, float] = dataclasses.field(default_factory=dict)
  copy_slowdown_us: dict[str, float] = dataclasses.field(default_factory=dict)

  @property
  def total_exposed_us(self) -> float:
    """All waits for collectives."""
    return sum(self.exposed_us.values())

  @property
  def total_slowdown_us(self) -> float:
    """Total loss of kernels to collectives."""
    return sum(self.slowdown_us.values())

  @property
  def total_delay_us(self) -> float:
    """Total loss of collectives to kernels."""
    return sum(self.delay_us.values())

  @property
  def total_copy_wait_us(self) -> float:
    """All waits for copies."""
    return sum(self.copy_wait_us.values(), 0.0)

  @property
  def total_copy_slowdown_us(self) -> float:
    """Total loss of kernels to copies."""
    return sum(self.copy_slowdown_us.values(), 0.0)


def replay(program: program_lib.Program, costs: Costs) -> Timeline:
  """Replays a program from empty streams until they are empty again."""
  streams = Streams(costs)
  streams.run(program)
  streams.drain()
  return streams.timeline()


def replay_segment(
  program: program_lib.Program, costs: Costs, state: State
) -> tuple[Timeline, State]:
  """A segment's timeline, and the work in flight at its end.

  `state` is the work in flight at its start.
  """
  streams = Streams(costs, state)
  streams.run(program)
  return streams.timeline(), streams.state


@dataclasses.dataclass(slots=True)
class InFlight:
  """A collective on its stream.

  `left_us` is its remaining time if alone, `wait_us` its remaining wait for
  SMs.
  """

  collective: collectives_lib.Collective
  cost: collective_lib.CollectiveCost
  left_us: float
  wait_us: float = 0.0


@dataclasses.dataclass(slots=True)
class CopyInFlight:
  """A copy on its stream, with its remaining time if alone."""

  copy: copies_lib.Copy
  cost: collective_lib.CollectiveCost
  left_us: float


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class State:
  """All work in flight.

  Attributes:
    collectives: collectives, those of each stream in its order.
    copies: copies, those of each stream in its order.
  """

  collectives: tuple[InFlight, ...] = ()
  copies: tuple[CopyInFlight, ...] = ()

  def signature(self) -> tuple[object, ...]:
    """Equal for states that continue alike, to 1e-9 µs."""
    return (
      *(
        (e.collective.name, e.cost, round(e.left_us, 9), round(e.wait_us, 9))
        for e in self.collectives
      ),
      *((e.copy.name, round(e.left_us, 9)) for e in self.copies),
    )


# Below these, a share of work and the remaining time of a copy count as 0.
_NEGLIGIBLE = 1e-9
_NEGLIGIBLE_US = 1e-9
# The factor of a collective that runs beside no other.
_ALONE = (1.0,)


def is_communication(stream: str) -> bool:
  """Whether collectives run on a stream; copies run on the others."""
  return stream.startswith(collectives_lib.COMMUNICATION)


def _ends(head: InFlight, factor: float, us: float) -> bool:
  """Whether a collective that is `factor` times slower ends within `us`."""
  return head.left_us * factor <= us + _NEGLIGIBLE * head.cost.time_us


class Listener:
  """Callbacks of a replay; a subclass overrides those that it needs.

  Times are those of one trip of a loop, even if it stands for several.
  `after_us` is the time since the last `passed`: events within an interval are
  reported before its `passed`.
  """

  def passed(self, us: float) -> None:
    """An interval of `us` passed on all streams."""

  def issued(
    self, stream: str, name: str, cost: collective_lib.CollectiveCost
  ) -> None:
    """A collective or copy was put on its stream."""

  def began(self, stream: str, after_us: float = 0.0) -> None:
    """The first entry of a stream runs; may be called again while it runs."""

  def ended(self, stream: str, after_us: float = 0.0) -> None:
    """The first entry of a stream is finished."""

  def done(self, stream: str, name: str) -> None:
    """The done of a collective or copy was passed."""

  def waited(self, name: str, us: float) -> None:
    """The compute stream was blocked by a collective or copy until now."""

  def launched(self, name: str, cost: kernel_lib.KernelCost) -> None:
    """A kernel begins."""

  def blocked(self, name: str, us: float) -> None:
    """A collective waited for SMs beside the kernel for `us`."""

  def met(self, name: str, us: float, lost_us: float, slowed_us: float) -> None:
    """The kernel ran beside a collective for `us`.

    It lost `lost_us` to the collective, which lost `slowed_us` to the kernel.
    """

  def met_copy(self, name: str, lost_us: float) -> None:
    """The kernel ran beside a copy, and lost `lost_us` to it."""

  def finished(self) -> None:
    """The kernel ended."""

  def repeats(self, num_trips: int) -> None:
    """A trip of a loop starts, and stands for `num_trips`."""

  def repeated(self) -> None:
    """The trip of the last open `repeats` ends."""


_NOBODY = Listener()


class _CopyStreams:
  """The streams of copies during a replay; weighted sums as in `Streams`."""

  def __init__(
    self, beside: Beside, copies: Iterable[CopyInFlight], listener: Listener
  ):
    self.lone_us = 0.0
    self.wait_us: dict[str, float] = collections.defaultdict(float)
    self.slowdown_us: dict[str, float] = collections.defaultdict(float)
    self._listener = listener
    self._beside = beside
    self._queues: dict[str, collections.deque[CopyInFlight]] = {}
    for entry in copies:
      self._append(dataclasses.replace(entry))

  def __bool__(self) -> bool:
    """Whether a copy is in flight."""
    return bool(self._queues)

  def __iter__(self) -> Iterator[CopyInFlight]:
    """The copies in flight, stream by stream."""
    for queue in self._queues.values():
      yield from queue

  @property
  def last(self) -> list[copies_lib.Copy]:
    """The last copy of each stream."""
    return [queue[-1].copy for queue in self._queues.values()]

  def start(
    self,
    copy: copies_lib.Copy,
    cost: collective_lib.CollectiveCost,
    weight: float,
  ) -> None:
    """Puts a copy on its stream."""
    self.lone_us += weight * cost.time_us
    if cost.time_us > 0:
      self._append(CopyInFlight(copy, cost, cost.time_us))
      self._listener.issued(copy.stream, copy.name, cost)
      if len(self._queues[copy.stream]) == 1:
        self._listener.began(copy.stream)

  def until_us(self, copy: copies_lib.Copy) -> float:
    """Time until a copy ends with no kernel beside it; 0 if it has ended."""
    queue = list(self._queues.get(copy.stream, ()))
    last = max((i for i, e in enumerate(queue) if e.copy is copy), default=-1)
    return sum(entry.left_us for entry in queue[: last + 1])

  def next_end_us(self, kernel: kernel_lib.KernelCost) -> float:
    """Time until the first copy ends, beside a kernel."""
    if not self._queues:
      return math.inf
    return min(e.left_us * self._factor(kernel, e) for e in self._running)

  def lost_us(self, kernel: kernel_lib.KernelCost) -> float:
    """A kernel's loss if it runs beside the same copies to its end."""
    if not self._queues:  # The usual case.
      return 0.0
    return sum(self._loss_us(kernel, entry) for entry in self._running)

  def slow(
    self, kernel: kernel_lib.KernelCost, done: float, weight: float
  ) -> None:
    """Adds a kernel's loss to copies while its share `done` runs."""
    for entry in self._running if self._queues else ():
      lost_us = weight * done * self._loss_us(kernel, entry)
      self.slowdown_us[entry.copy.name] += lost_us
      self._listener.met_copy(entry.copy.name, lost_us / weight)

  def advance(
    self, us: float, beside: kernel_lib.KernelCost | None = None
  ) -> None:
    """Advances all streams by `us`, beside a kernel if one runs."""
    if not self._queues:
      return
    for stream, queue in list(self._queues.items()):
      left_us, after_us = us, 0.0
      while queue:
        factor = self._factor(beside, queue[0])
        ends_us = queue[0].left_us * factor
        if left_us <= ends_us - _NEGLIGIBLE_US:
          queue[0].left_us -= left_us / factor
          break
        left_us = max(left_us - ends_us, 0.0)
        queue.popleft()
        after_us += ends_us
        self._listener.ended(stream, after_us)
        if queue:
          self._listener.began(stream, after_us)
      if not queue:
        del self._queues[stream]

  @property
  def _running(self) -> list[CopyInFlight]:
    """The first copy of each stream."""
    return [queue[0] for queue in self._queues.values()]

  def _loss_us(
    self, kernel: kernel_lib.KernelCost, entry: CopyInFlight
  ) -> float:
    return self._beside(kernel, entry.cost).kernel_us - kernel.time_us

  def _factor(
    self, kernel: kernel_lib.KernelCost | None, entry: CopyInFlight
  ) -> float:
    """How much longer a copy takes beside a kernel, if one runs."""
    if kernel is None or not entry.copy.is_bound_by_memory:
      return 1.0
    return self._beside(kernel, entry.cost).collective_factor

  def _append(self, entry: CopyInFlight) -> None:
    stream = entry.copy.stream
    self._queues.setdefault(stream, collections.deque()).append(entry)


class Streams:
  """The streams during a replay.

  Times accumulate with a weight: the number of loop iterations for which the
  current one stands.

  Attributes:
    now_us: time since the start.
  """

  def __init__(
    self,
    costs: Costs,
    state: State | None = None,
    listener: Listener = _NOBODY,
  ):
    """Starts with an empty compute stream and a copy of `state`."""
    state = state or State()
    self.now_us = 0.0
    self._kernel_us = 0.0
    self._collective_us = 0.0
    self._exposed_us: dict[str, float] = collections.defaultdict(float)
    self._slowdown_us: dict[tuple[str, str], float] = collections.defaultdict(
      float
    )
    self._delay_us: dict[str, float] = collections.defaultdict(float)
    self._costs = costs
    self._listener = listener
    self._weight = 1.0
    # By stream, without empty ones.
    self._queues: dict[str, collections.deque[InFlight]] = {}
    for entry in state.collectives:
      self._append(dataclasses.replace(entry))
    self._copies = _CopyStreams(costs.beside, state.copies, listener)

  @property
  def state(self) -> State:
    """The work in flight."""
    queues = (self._queues[stream] for stream in sorted(self._queues))
    return State(
      collectives=tuple(entry for queue in queues for entry in queue),
      copies=tuple(self._copies),
    )

  def timeline(self) -> Timeline:
    """The timeline until now."""
    return Timeline(
      step_time_us=self.now_us,
      kernel_us=self._kernel_us,
      collective_us=self._collective_us,
      exposed_us=dict(self._exposed_us),
      slowdown_us=dict(self._slowdown_us),
      delay_us=dict(self._delay_us),
      copy_us=self._copies.lone_us,
      copy_wait_us=dict(self._copies.wait_us),
      copy_slowdown_us=dict(self._copies.slowdown_us),
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
        self._copies.start(part.copy, cost, self._weight)
      elif isinstance(part, program_lib.WaitCopy):
        self._wait_copy(part.copy)
      elif part.branches:
        # Branches are compared from empty streams.
        slowest = max(
          part.branches, key=lambda b: replay(b, self._costs).step_time_us
        )
        self.run(slowest)

  def drain(self) -> None:
    """Waits until all other streams are empty."""
    while self._queues:
      self._wait(next(iter(self._queues.values()))[0].collective)
    for copy in self._copies.last:
      self._wait_copy(copy)

  def _start(self, collective: collectives_lib.Collective) -> None:
    cost = self._costs.collective(collective)
    self._collective_us += self._weight * cost.time_us
    self._append(InFlight(collective, cost, cost.time_us))
    stream = collective.stream
    self._listener.issued(stream, collective.name, cost)
    if len(self._queues[stream]) == 1:
      self._listener.began(stream)

  def _append(self, entry: InFlight) -> None:
    stream = entry.collective.stream
    self._queues.setdefault(stream, collections.deque()).append(entry)

  def _launch(self, kernel: kernels_lib.Kernel) -> None:
    cost = self._costs.kernel(kernel)
    lone_us = self._weight * cost.time_us
    self._kernel_us += lone_us
    is_alone = not self._queues and not self._copies
    if is_alone and self._listener is _NOBODY:
      self.now_us += lone_us
      return
    self._listener.launched(kernel.name, cost)
    left = 1.0
    while (self._queues or self._copies) and left > _NEGLIGIBLE:
      left -= self._run_on(kernel.name, cost, left)
    self.now_us += left * lone_us
    self._listener.passed(left * cost.time_us)
    for stream, queue in self._queues.items():
      queue[0].wait_us = 0.0
      self._listener.began(stream)
    self._listener.finished()

  def _run_on(
    self, name: str, kernel: kernel_lib.KernelCost, left: float
  ) -> float:
    """Runs a kernel until it or work beside it ends; returns its share done.

    Also stops when a collective that waited for SMs starts to run.
    """
    heads = [queue[0] for queue in self._queues.values()]
    running = [head for head in heads if head.wait_us <= 0]
    kernel_us = kernel.time_us
    factors: Sequence[float] = ()
    if running:
      cost, factors = self._together(running)
      beside = self._costs.beside(kernel, cost)
      kernel_us = beside.kernel_us
      factors = [beside.collective_factor * f for f in factors]
    is_slowed = kernel_us > kernel.time_us
    to_copies_us = self._copies.lost_us(kernel)
    kernel_us += to_copies_us
    step_us, done = self._until_copy_ends(kernel, kernel_us, left)
    for head, factor in zip(running, factors, strict=True):
      if _ends(head, factor, step_us):
        step_us = min(step_us, head.left_us * factor)
        done = step_us / kernel_us if kernel_us else left
    for head in heads:
      if 0 < head.wait_us <= step_us:
        step_us, done = head.wait_us, head.wait_us / kernel_us
    lost_us = step_us - done * (kernel.time_us + to_copies_us)
    if lost_us <= 0 or not is_slowed:
      lost_us = 0.0
    shares = self._shares(kernel, running) if lost_us else [0.0] * len(running)
    for head, factor, share in zip(running, factors, shares, strict=True):
      moved = head.collective.name
      if share:
        self._slowdown_us[name, moved] += self._weight * lost_us * share
      slowed_us = step_us * (1 - 1 / factor)
      if factor > 1:
        self._delay_us[moved] += self._weight * slowed_us
      self._listener.met(moved, step_us, lost_us * share, slowed_us)
    for head in heads:
      if head.wait_us > 0:
        self._delay_us[head.collective.name] += self._weight * step_us
        self._listener.blocked(head.collective.name, step_us)
    self._copies.slow(kernel, done, self._weight)
    self._pass(step_us, kernel)
    paces = {id(h): f for h, f in zip(running, factors, strict=True)}
    for stream, queue in list(self._queues.items()):
      head = queue[0]
      if head.wait_us > 0:
        head.wait_us -= step_us
        if head.wait_us <= 0:
          self._listener.began(stream)
        continue
      factor = paces[id(head)]
      ends = _ends(head, factor, step_us)
      head.left_us -= step_us / factor
      if not ends:
        continue
      self._end(stream)
      if queue:
        following = queue[0]
        if left < 1 or step_us:
          following.wait_us = self._costs.beside(kernel, following.cost).wait_us
        if following.wait_us <= 0:
          self._listener.began(stream)
    return done

  def _together(
    self, running: Sequence[InFlight]
  ) -> tuple[collective_lib.CollectiveCost, Sequence[float]]:
    """The joint cost of collectives, and how much longer each takes."""
    if len(running) == 1:
      return running[0].cost, _ALONE
    found = self._costs.together(tuple(head.cost for head in running))
    return found.cost, found.factors

  def _shares(
    self, kernel: kernel_lib.KernelCost, running: Sequence[InFlight]
  ) -> list[float]:
    """The share of each collective in a kernel's loss to all of them."""
    if len(running) == 1:
      return [1.0]
    lost_us = [
      self._costs.beside(kernel, head.cost).kernel_us - kernel.time_us
      for head in running
    ]
    total_us = sum(lost_us)
    if total_us <= 0:
      return [1 / len(running)] * len(running)
    return [us / total_us for us in lost_us]

  def _end(self, stream: str, after_us: float = 0.0) -> None:
    """Takes the first collective off its stream."""
    queue = self._queues[stream]
    queue.popleft()
    if not queue:
      del self._queues[stream]
    self._listener.ended(stream, after_us)

  def _until_copy_ends(
    self, kernel: kernel_lib.KernelCost, kernel_us: float, left: float
  ) -> tuple[float, float]:
    """Time that a kernel runs beside the same copies, and its share done."""
    step_us = left * kernel_us
    next_end_us = self._copies.next_end_us(kernel)
    if step_us <= next_end_us:
      return step_us, left
    return next_end_us, next_end_us / kernel_us

  def _pass(
    self, us: float, beside: kernel_lib.KernelCost | None = None
  ) -> None:
    """Advances the time and the copies by `us`, beside a kernel if one runs."""
    self.now_us += self._weight * us
    self._copies.advance(us, beside)
    self._listener.passed(us)

  def _wait(self, collective: collectives_lib.Collective) -> None:
    """Advances until the collective is finished, with no kernel running."""
    stream = collective.stream
    while any(e.collective is collective for e in self._queues.get(stream, ())):
      head, wait_us = self._queues[stream][0], 0.0
      while self._queues.get(stream, (None,))[0] is head:
        wait_us += self._idle(math.inf)
      self._exposed_us[head.collective.name] += self._weight * wait_us
      self._listener.waited(head.collective.name, wait_us)
    self._listener.done(stream, collective.name)

  def _wait_copy(self, copy: copies_lib.Copy) -> None:
    """Advances until the copy is finished; collectives run meanwhile."""
    wait_us = left_us = self._copies.until_us(copy)
    if wait_us:
      self._copies.wait_us[copy.name] += self._weight * wait_us
      while self._queues and left_us > 0:
        left_us -= self._idle(left_us)
      if left_us > 0:
        self._pass(left_us)
    self._listener.waited(copy.name, wait_us)
    self._listener.done(copy.stream, copy.name)

  def _idle(self, most_us: float) -> float:
    """Advances until a collective ends, at most `most_us`, with no kernel."""
    heads = [queue[0] for queue in self._queues.values()]
    _, factors = self._together(heads)
    ends_us = [h.left_us * f for h, f in zip(heads, factors, strict=True)]
    us = min(most_us, *ends_us)
    self._pass(us)
    for stream, head, factor in zip(
      list(self._queues), heads, factors, strict=True
    ):
      ends = _ends(head, factor, us)
      head.left_us -= us / factor
      if ends:
        self._end(stream)
        if stream in self._queues:
          self._listener.began(stream)
    return us

  def _loop(self, body: program_lib.Program, num_trips: int) -> None:
    before, outer, left = None, self._weight, num_trips
    while left:
      signature = self.state.signature()
      num_alike = left if signature == before else 1
      self._weight = outer * num_alike
      self._listener.repeats(num_alike)
      self.run(body)
      self._listener.repeated()
      before, left = signature, left - num_alike
    self._weight = outer
