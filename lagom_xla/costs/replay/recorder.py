# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""The recorder of a replay: the same streams, which keep what ran on them.

    recorded = recorder.record(step.program, step.costs(step.default))

A loop's trips are recorded until one starts in the state that the one before
started in. The trips that are left run like that one; they are one slice of
each stream, a fold. What is in flight there ends at the fold, and what is like
it goes on after the fold.

A recording of a replay: what ran on which stream, from when to when.

`timeline.py` keeps sums, which is all that a search compares; a recording keeps
each kernel, wait and collective, for pictures and traces. `recorder.py` makes
one.

The motion of one stream's collectives or copies: issued, begun, ended, done.

The stream runs them one after the other in the order in which they were issued.

The streams of copies that a recorder moves: they keep when each ran.
"""

from __future__ import annotations

import collections
from collections.abc import Callable, Iterator
import dataclasses
import itertools
from typing import Any

from lagom_xla.costs import collective as collective_lib
from lagom_xla.costs import kernel as kernel_lib
from lagom_xla.costs.replay import program as program_lib
from lagom_xla.costs.replay import streams
from lagom_xla.costs.replay import streams as streams_lib
from lagom_xla.passes import collectives as collectives_lib
from lagom_xla.passes import copies as copies_lib
from lagom_xla.passes import kernels as kernels_lib

# Streams of a recording; those of copies have the names that they have.
COMPUTE = "compute"
COMMUNICATION = "communication"


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Slice:
  """What one stream did for a time; times in microseconds from the start.

  Attributes:
    stream: COMPUTE, COMMUNICATION or a stream of copies.
    kind: "kernel", "wait" (the compute stream held by a collective or copy),
      "collective", "copy" or "folded" (trips of a loop that are like the last).
    name: of the instruction; of a wait, what is waited for; "" of a fold.
    begin_us: when it began.
    end_us: when it ended.
    lone_us: what it takes alone: a kernel, or all of a collective or copy. Of
      folded trips, all their kernels alone.
    lost_us: collective or copy -> what a kernel lost to it, 0 if nothing; of
      folded trips, what their kernels lost. Names say what it ran beside.
    issued_us: when its start was reached, of collectives and copies.
    done_us: when its done had been passed; of one that is never awaited, when
      it ended.
    num_trips: how many trips a fold stands for; 0 otherwise.
    wait_us: of folded trips, all their waits.
    num_channels: of a collective.
  """

  stream: str
  kind: str
  name: str
  begin_us: float
  end_us: float
  lone_us: float = 0.0
  lost_us: tuple[tuple[str, float], ...] = ()
  issued_us: float = 0.0
  done_us: float = 0.0
  num_trips: int = 0
  wait_us: float = 0.0
  num_channels: int = 0

  @property
  def time_us(self) -> float:
    """How long it ran."""
    return self.end_us - self.begin_us


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Recording:
  """A replayed step, slice by slice.

  Attributes:
    step_time_us: as the timeline's.
    slices: in the order in which they ended; those of one stream follow each
      other.
  """

  step_time_us: float
  slices: tuple[Slice, ...]

  @property
  def streams(self) -> tuple[str, ...]:
    """Its streams, that of kernels first."""
    found = dict.fromkeys([COMPUTE, *(s.stream for s in self.slices)])
    return tuple(found)


@dataclasses.dataclass(slots=True)
class Run:
  """One collective or host copy as it ran once; times in microseconds.

  Attributes:
    name: of it.
    cost: of it alone.
    issued_us: when its start was reached.
    begin_us: when it began; None before.
    end_us: when it ended; None before.
    done_us: when its done had been passed; None before.
  """

  name: str
  cost: collective_lib.CollectiveCost
  issued_us: float
  begin_us: float | None = None
  end_us: float | None = None
  done_us: float | None = None


class Motion:
  """What one stream runs, and has run.

  Attributes:
    ended: what has run, in order.
  """

  def __init__(self) -> None:
    self.ended: list[Run] = []
    self._queue: collections.deque[Run] = collections.deque()
    self._awaited: dict[str, collections.deque[Run]] = collections.defaultdict(
      collections.deque
    )

  def __len__(self) -> int:
    """How many have not ended."""
    return len(self._queue)

  def issue(
    self, name: str, cost: collective_lib.CollectiveCost, now_us: float
  ) -> None:
    """Puts one on the stream."""
    run = Run(name, cost, now_us)
    self._queue.append(run)
    self._awaited[name].append(run)

  def begin(self, now_us: float) -> None:
    """Begins the first one, if there is one that has not begun."""
    if self._queue and self._queue[0].begin_us is None:
      self._queue[0].begin_us = now_us

  def end(self, now_us: float) -> None:
    """Ends the first one."""
    run = self._queue.popleft()
    if run.begin_us is None:
      run.begin_us = now_us
    run.end_us = now_us
    self.ended.append(run)

  def done(self, name: str, now_us: float) -> None:
    """Passes the done of the oldest one of a name, if it has none so far."""
    if waiting := self._awaited[name]:
      waiting.popleft().done_us = now_us

  def skip(self, now_us: float, until_us: float, trip_us: float) -> bool:
    """Lets a time pass in which others ran as these did in the last trip.

    The one that is running ends, and what was issued is issued again after it.

    Args:
      now_us: when the trip ended.
      until_us: when others like it have ended.
      trip_us: how long the trip was.

    Returns:
      Whether anything ran in the trip.
    """
    has_run = bool(self._queue) or (
      bool(self.ended) and (self.ended[-1].end_us or 0.0) > now_us - trip_us
    )
    if self._queue and self._queue[0].begin_us is not None:
      running = self._queue[0]
      cut = dataclasses.replace(running, end_us=now_us, done_us=now_us)
      self.ended.append(cut)
      running.begin_us = until_us
    for run in self._queue:
      run.issued_us = until_us
    return has_run

  def slices(self, stream: str, kind: str) -> Iterator[Slice]:
    """What has run, as slices of a recording.

    Args:
      stream: this one's name.
      kind: of its slices.
    """
    for run in self.ended:
      assert run.begin_us is not None and run.end_us is not None
      yield Slice(
        stream=stream,
        kind=kind,
        name=run.name,
        begin_us=run.begin_us,
        end_us=run.end_us,
        lone_us=run.cost.time_us,
        issued_us=run.issued_us,
        done_us=run.end_us if run.done_us is None else run.done_us,
        num_channels=run.cost.num_channels,
      )


class RecordedCopies(streams.CopyStreams):
  """Streams of copies that keep when each copy ran.

  Attributes:
    motions: what each stream ran, by its name.
  """

  def __init__(self, beside: streams.Beside, now: Callable[[], float]):
    """Starts with no copy in flight.

    Args:
      beside: what a kernel and a copy do to each other.
      now: tells the time, in microseconds.
    """
    super().__init__(beside)
    self.motions: dict[str, Motion] = collections.defaultdict(Motion)
    self._now = now

  def start(
    self,
    copy: copies_lib.Copy,
    cost: collective_lib.CollectiveCost,
    weight: float,
  ) -> None:
    """See `copy_streams.CopyStreams`."""
    super().start(copy, cost, weight)
    if cost.time_us > 0:
      motion = self.motions[copy.stream]
      motion.issue(copy.name, cost, self._now())
      if len(motion) == 1:
        motion.begin(self._now())

  def advance(
    self, us: float, beside: kernel_lib.KernelCost | None = None
  ) -> None:
    """See `copy_streams.CopyStreams`."""
    if not self:
      return
    ends_us = [
      (e.copy.stream, e.left_us * self._factor(beside, e)) for e in self
    ]
    super().advance(us, beside)
    left = collections.Counter(e.copy.stream for e in self)
    now_us = dict.fromkeys(self.motions, self._now())
    for stream, left_us in ends_us:
      motion = self.motions[stream]
      if len(motion) > left[stream]:
        now_us[stream] += left_us
        motion.end(now_us[stream])
        motion.begin(now_us[stream])


def record(program: program_lib.Program, costs: streams_lib.Costs) -> Recording:
  """Replays a program from empty streams, and keeps what ran when.

  Args:
    program: what runs.
    costs: of its kernels and collectives.
  """
  streams = _Recorder(costs)
  streams.run(program)
  streams.drain()
  slices = sorted(streams.recorded(), key=lambda s: (s.end_us, s.begin_us))
  return Recording(step_time_us=streams.now_us, slices=tuple(slices))


class _Recorder(streams_lib.Streams):
  """Streams with a clock of their own, which counts a folded trip once.

  `now_us` passes all trips that one stands for at once; the clock passes that
  trip, and then the others.
  """

  def __init__(self, costs: streams_lib.Costs):
    super().__init__(costs)
    self._clock_us = 0.0
    self._trips = 1.0  # The weight of the trip that is being recorded.
    self._slices: list[Slice] = []
    self._sent = Motion()
    self._copies = RecordedCopies(costs.beside, lambda: self._clock_us)
    self.copies = self._copies
    self._lost_us: dict[str, float] = {}

  def recorded(self) -> Iterator[Slice]:
    """All slices, once everything has run."""
    yield from self._slices
    yield from self._sent.slices(COMMUNICATION, "collective")
    for stream, motion in self._copies.motions.items():
      yield from motion.slices(stream, "copy")

  def run(self, program: program_lib.Program) -> None:
    """See `streams.Streams`."""
    outer, self._trips = self._trips, self._weight
    begin_us, before = self._clock_us, self._sums_us()
    super().run(program)
    num_others = round(self._trips / outer) - 1
    if num_others:
      of_trip = [
        (now - then) / self._trips
        for now, then in zip(self._sums_us(), before, strict=True)
      ]
      self._fold(self._clock_us - begin_us, num_others, of_trip)
    self._trips = outer

  def _sums_us(self) -> tuple[float, float, float, float]:
    """Kernels alone, what they lost to collectives and to copies, and waits."""
    waits = (*self.exposed_us.values(), *self.copies.wait_us.values())
    return (
      self.kernel_us,
      sum(self.slowdown_us.values()),
      sum(self.copies.slowdown_us.values()),
      sum(waits),
    )

  def _fold(self, trip_us: float, num_trips: int, of_trip: list[float]) -> None:
    """Lets trips pass that run as the one that was just recorded."""
    begin_us, self._clock_us = (
      self._clock_us,
      self._clock_us + num_trips * trip_us,
    )
    kernel_us, to_collectives_us, to_copies_us, wait_us = of_trip
    self._add(
      kind="folded",
      name="",
      begin_us=begin_us,
      lone_us=num_trips * kernel_us,
      lost_us=(
        ("collectives", num_trips * to_collectives_us),
        ("copies", num_trips * to_copies_us),
      ),
      wait_us=num_trips * wait_us,
      num_trips=num_trips,
    )
    moving = (COMMUNICATION, self._sent)
    for stream, motion in (moving, *self._copies.motions.items()):
      if motion.skip(begin_us, self._clock_us, trip_us):
        self._add(
          stream=stream,
          kind="folded",
          name="",
          begin_us=begin_us,
          num_trips=num_trips,
        )

  def _add(
    self,
    *,
    kind: str,
    name: str,
    begin_us: float,
    stream: str = COMPUTE,
    **more: Any,
  ) -> None:
    """Adds what a stream did until now, if that took time."""
    if self._clock_us > begin_us:
      self._slices.append(
        Slice(
          stream=stream,
          kind=kind,
          name=name,
          begin_us=begin_us,
          end_us=self._clock_us,
          **more,
        )
      )

  def _start(self, collective: collectives_lib.Collective) -> None:
    super()._start(collective)
    self._sent.issue(collective.name, self._queue[-1].cost, self._clock_us)
    self._settle()

  def _settle(self) -> None:
    """Ends the collectives that have, and begins the next one."""
    while len(self._sent) > len(self._queue):
      self._sent.end(self._clock_us)
    if self._queue and self._queue[0].wait_us <= 0:
      self._sent.begin(self._clock_us)

  def _launch(self, kernel: kernels_lib.Kernel) -> None:
    begin_us, begin_now_us = self._clock_us, self.now_us
    self._lost_us = {}
    lone_us = self._costs.kernel(kernel).time_us
    names = dict.fromkeys(entry.copy.name for entry in self.copies)
    to_copies_us = {name: self.copies.slowdown_us[name] for name in names}
    super()._launch(kernel)
    for name, before_us in to_copies_us.items():
      self._lose(name, self.copies.slowdown_us[name] - before_us)
    # What is left of it beside nothing passes `now_us` alone.
    self._clock_us = begin_us + (self.now_us - begin_now_us) / self._weight
    self._settle()
    self._add(
      kind="kernel",
      name=kernel.name,
      begin_us=begin_us,
      lone_us=lone_us,
      lost_us=tuple(self._lost_us.items()),
    )

  def _run_beside(
    self,
    name: str,
    kernel: kernel_lib.KernelCost,
    head: streams_lib.InFlight,
    left: float,
  ) -> float:
    pair = name, head.collective.name
    before_us = self.slowdown_us.get(pair, 0.0)
    done = super()._run_beside(name, kernel, head, left)
    self._lose(
      head.collective.name, self.slowdown_us.get(pair, 0.0) - before_us
    )
    self._settle()
    return done

  def _run_before(
    self,
    kernel: kernel_lib.KernelCost,
    head: streams_lib.InFlight | None,
    left: float,
  ) -> float:
    done = super()._run_before(kernel, head, left)
    self._settle()
    return done

  def _lose(self, name: str, lost_us: float) -> None:
    """Counts what the kernel that runs lost to one that ran beside it."""
    lost_us = self._lost_us.get(name, 0.0) + lost_us / self._weight
    self._lost_us[name] = lost_us

  def _pass(
    self, us: float, beside: kernel_lib.KernelCost | None = None
  ) -> None:
    super()._pass(us, beside)
    self._clock_us += us

  def _wait(self, collective: collectives_lib.Collective) -> None:
    queued = [(e.collective.name, e.left_us) for e in self._queue]
    clock_us = self._clock_us
    super()._wait(collective)
    self._clock_us = clock_us
    for name, left_us in queued[: len(self._sent) - len(self._queue)]:
      begin_us = self._clock_us
      self._sent.begin(begin_us)
      self._clock_us += left_us
      self._sent.end(self._clock_us)
      self._add(kind="wait", name=name, begin_us=begin_us)
    self._settle()
    self._sent.done(collective.name, self._clock_us)

  def _wait_copy(self, copy: copies_lib.Copy) -> None:
    queued_us = [entry.left_us for entry in self._queue]
    begin_us = self._clock_us
    super()._wait_copy(copy)
    ends_us = itertools.accumulate(queued_us, initial=begin_us)
    self._sent.begin(next(ends_us))
    while len(self._sent) > len(self._queue):
      end_us = next(ends_us)
      self._sent.end(end_us)
      self._sent.begin(end_us)
    self._add(kind="wait", name=copy.name, begin_us=begin_us)
    self._copies.motions[copy.stream].done(copy.name, self._clock_us)
