# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""A recording of a replay: each activity, with its stream and times.

    recorded = recorder.record(step.program, step.costs(step.default))

A timeline keeps only sums, which a search compares. A recording keeps each
kernel, wait, collective and copy, for pictures and traces.

A loop's trips are recorded until one starts in the same state as the previous
one. The remaining trips would be equal, and become a fold: one slice per
stream. Work in flight at the start of the fold ends there, and its equivalent
continues after the fold.
"""

from __future__ import annotations

import collections
from collections.abc import Iterator
import dataclasses
from typing import Any

from lagom_xla.costs import collective as collective_lib
from lagom_xla.costs import kernel as kernel_lib
from lagom_xla.costs.replay import program as program_lib
from lagom_xla.costs.replay import timeline
from lagom_xla.passes import collectives as collectives_lib

# Streams of a recording; others hold copies and further collectives.
COMPUTE = "compute"
COMMUNICATION = collectives_lib.COMMUNICATION


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Slice:
  """One activity of a stream; times are microseconds from the start.

  Attributes:
    stream: COMPUTE, or a stream of collectives or of copies.
    kind: "kernel", "wait" (a collective or copy blocks the compute stream),
      "collective", "copy" or "folded" (trips of a loop equal to the last).
    name: name of the instruction; for a wait, of the awaited collective or
      copy; "" for a fold.
    begin_us: when it began.
    end_us: when it ended.
    lone_us: time alone of a kernel, or of a whole collective or copy; for a
      fold, of all its kernels.
    lost_us: (collective or copy, time that the kernel lost to it) for each that
      ran beside the kernel, even if the loss is 0; for a fold, the losses of
      its kernels.
    issued_us: when a collective or copy was started.
    done_us: when a collective's or copy's done was passed; if it is never
      awaited, when it ended.
    num_trips: number of trips of a fold; 0 otherwise.
    wait_us: time for which the compute stream was blocked, summed over a fold's
      trips.
    num_channels: channels of a collective.
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
    """Time from its beginning to its end."""
    return self.end_us - self.begin_us


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Recording:
  """A replayed step, slice by slice.

  Attributes:
    step_time_us: step time, equal to the timeline's.
    slices: slices in the order in which they ended; those of one stream do not
      overlap.
  """

  step_time_us: float
  slices: tuple[Slice, ...]

  @property
  def streams(self) -> tuple[str, ...]:
    """Its streams, the compute stream first."""
    found = dict.fromkeys([COMPUTE, *(s.stream for s in self.slices)])
    return tuple(found)


def record(program: program_lib.Program, costs: timeline.Costs) -> Recording:
  """Replays a program from empty streams, and records it."""
  recorder = _Recorder()
  streams = timeline.Streams(costs, listener=recorder)
  streams.run(program)
  streams.drain()
  slices = sorted(recorder.recorded(), key=lambda s: (s.end_us, s.begin_us))
  return Recording(step_time_us=streams.now_us, slices=tuple(slices))


@dataclasses.dataclass(slots=True)
class _Run:
  """One execution of a collective or copy; times are None until they happen."""

  name: str
  cost: collective_lib.CollectiveCost
  issued_us: float
  begin_us: float | None = None
  end_us: float | None = None
  done_us: float | None = None


class _Motion:
  """The collectives or copies of one stream, in flight and ended."""

  def __init__(self) -> None:
    self._ended: list[_Run] = []
    self._queue: collections.deque[_Run] = collections.deque()
    self._awaited: dict[str, collections.deque[_Run]] = collections.defaultdict(
      collections.deque
    )

  @property
  def in_flight(self) -> Iterator[str]:
    """The names of runs that have not ended."""
    return (run.name for run in self._queue)

  def issue(
    self, name: str, cost: collective_lib.CollectiveCost, now_us: float
  ) -> None:
    """Puts a collective or copy on the stream."""
    run = _Run(name, cost, now_us)
    self._queue.append(run)
    self._awaited[name].append(run)

  def begin(self, now_us: float) -> None:
    """Begins the first run in the queue, if it has not begun."""
    if self._queue and self._queue[0].begin_us is None:
      self._queue[0].begin_us = now_us

  def end(self, now_us: float) -> None:
    """Ends the first run in the queue."""
    self.begin(now_us)
    run = self._queue.popleft()
    run.end_us = now_us
    self._ended.append(run)

  def done(self, name: str, now_us: float) -> None:
    """Passes the done of the oldest run of a name that has none yet."""
    if waiting := self._awaited[name]:
      waiting.popleft().done_us = now_us

  def skip(self, now_us: float, until_us: float, trip_us: float) -> bool:
    """Skips the time of a fold; returns whether anything ran in its trip.

    The current run ends now. All runs in flight are issued again at the end of
    the fold.
    """
    has_run = bool(self._queue) or (
      bool(self._ended) and (self._ended[-1].end_us or 0.0) > now_us - trip_us
    )
    if self._queue and self._queue[0].begin_us is not None:
      running = self._queue[0]
      cut = dataclasses.replace(running, end_us=now_us, done_us=now_us)
      self._ended.append(cut)
      running.begin_us = until_us
    for run in self._queue:
      run.issued_us = until_us
    return has_run

  def slices(self, stream: str) -> Iterator[Slice]:
    """The runs that have ended, as slices of `stream`."""
    for run in self._ended:
      assert run.begin_us is not None and run.end_us is not None
      yield Slice(
        stream=stream,
        kind="collective" if timeline.is_communication(stream) else "copy",
        name=run.name,
        begin_us=run.begin_us,
        end_us=run.end_us,
        lone_us=run.cost.time_us,
        issued_us=run.issued_us,
        done_us=run.end_us if run.done_us is None else run.done_us,
        num_channels=run.cost.num_channels,
      )


class _Recorder(timeline.Listener):
  """Records a replay.

  Its clock counts a trip that stands for others once, and then skips the
  others.
  """

  def __init__(self) -> None:
    self._clock_us = 0.0
    self._slices: list[Slice] = []
    self._motions: dict[str, _Motion] = {COMMUNICATION: _Motion()}
    # Times of the compute stream until now, folded trips included.
    self._sums_us = dict.fromkeys(
      ("kernels", "collectives", "copies", "waits"), 0.0
    )
    # Open trips: the number of others for which each stands, and the clock and
    # the sums at its start.
    self._repeats: list[tuple[int, float, dict[str, float]]] = []

  def recorded(self) -> Iterator[Slice]:
    """All slices, once everything has run."""
    yield from self._slices
    for stream, motion in self._motions.items():
      yield from motion.slices(stream)

  def passed(self, us: float) -> None:
    self._clock_us += us

  def issued(
    self, stream: str, name: str, cost: collective_lib.CollectiveCost
  ) -> None:
    motion = self._motions.setdefault(stream, _Motion())
    motion.issue(name, cost, self._clock_us)

  def began(self, stream: str, after_us: float = 0.0) -> None:
    self._motions[stream].begin(self._clock_us + after_us)

  def ended(self, stream: str, after_us: float = 0.0) -> None:
    self._motions[stream].end(self._clock_us + after_us)

  def done(self, stream: str, name: str) -> None:
    if stream in self._motions:  # Or it took no time.
      self._motions[stream].done(name, self._clock_us)

  def waited(self, name: str, us: float) -> None:
    self._sums_us["waits"] += us
    begin_us = self._clock_us - us
    self._add(kind="wait", name=name, begin_us=begin_us, wait_us=us)

  def launched(self, name: str, cost: kernel_lib.KernelCost) -> None:
    self._kernel = name, cost.time_us, self._clock_us
    self._sums_us["kernels"] += cost.time_us
    self._lost_us: dict[str, float] = {}
    self._lost_to_copies_us = dict.fromkeys(
      (
        name
        for stream, motion in self._motions.items()
        if not timeline.is_communication(stream)
        for name in motion.in_flight
      ),
      0.0,
    )

  def met(self, name: str, us: float, lost_us: float, slowed_us: float) -> None:
    self._sums_us["collectives"] += lost_us
    self._lost_us[name] = self._lost_us.get(name, 0.0) + lost_us

  def met_copy(self, name: str, lost_us: float) -> None:
    self._sums_us["copies"] += lost_us
    self._lost_to_copies_us[name] += lost_us

  def finished(self) -> None:
    name, lone_us, begin_us = self._kernel
    lost_us = (*self._lost_us.items(), *self._lost_to_copies_us.items())
    self._add(
      kind="kernel",
      name=name,
      begin_us=begin_us,
      lone_us=lone_us,
      lost_us=lost_us,
    )

  def repeats(self, num_trips: int) -> None:
    self._repeats.append((num_trips - 1, self._clock_us, dict(self._sums_us)))

  def repeated(self) -> None:
    num_others, trip_began_us, before_us = self._repeats.pop()
    if not num_others:
      return
    begin_us = self._clock_us
    trip_us = begin_us - trip_began_us
    others_us = {
      what: num_others * (us - before_us[what])
      for what, us in self._sums_us.items()
    }
    self._clock_us += num_others * trip_us
    self._add(
      kind="folded",
      begin_us=begin_us,
      lone_us=others_us["kernels"],
      lost_us=tuple((w, others_us[w]) for w in ("collectives", "copies")),
      wait_us=others_us["waits"],
      num_trips=num_others,
    )
    for stream, motion in self._motions.items():
      if motion.skip(begin_us, self._clock_us, trip_us):
        self._add(
          stream=stream,
          kind="folded",
          begin_us=begin_us,
          num_trips=num_others,
        )
    for what, us in others_us.items():
      self._sums_us[what] += us

  def _add(
    self,
    *,
    kind: str,
    begin_us: float,
    name: str = "",
    stream: str = COMPUTE,
    **more: Any,
  ) -> None:
    """Adds a slice of a stream that ends now, if it took time."""
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
