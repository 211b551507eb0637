# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""The recorder of a replay: the same streams, which keep what ran on them.

    recorded = recorder.record(step.program, step.costs(step.default))

A loop's trips are recorded until one starts in the state that the one before
started in. The trips that are left run like that one; they are one slice of
each stream, a fold. What is in flight there ends at the fold, and what is like
it goes on after the fold.
"""

from __future__ import annotations

from collections.abc import Iterator
import itertools
from typing import Any

from lagom_xla.costs import kernel as kernel_lib
from lagom_xla.costs.replay import costs as costs_lib
from lagom_xla.costs.replay import in_flight
from lagom_xla.costs.replay import in_motion
from lagom_xla.costs.replay import program as program_lib
from lagom_xla.costs.replay import recorded_copies
from lagom_xla.costs.replay import recording as recording_lib
from lagom_xla.costs.replay import streams as streams_lib
from lagom_xla.passes import collectives as collectives_lib
from lagom_xla.passes import copies as copies_lib
from lagom_xla.passes import kernels as kernels_lib


def record(
  program: program_lib.Program, costs: costs_lib.Costs
) -> recording_lib.Recording:
  """Replays a program from empty streams, and keeps what ran when.

  Args:
    program: what runs.
    costs: of its kernels and collectives.
  """
  streams = _Recorder(costs)
  streams.run(program)
  streams.drain()
  slices = sorted(streams.recorded(), key=lambda s: (s.end_us, s.begin_us))
  return recording_lib.Recording(
    step_time_us=streams.now_us, slices=tuple(slices)
  )


class _Recorder(streams_lib.Streams):
  """Streams with a clock of their own, which counts a folded trip once.

  `now_us` passes all trips that one stands for at once; the clock passes that
  trip, and then the others.
  """

  def __init__(self, costs: costs_lib.Costs):
    super().__init__(costs)
    self._clock_us = 0.0
    self._trips = 1.0  # The weight of the trip that is being recorded.
    self._slices: list[recording_lib.Slice] = []
    self._sent = in_motion.Motion()
    self._copies = recorded_copies.RecordedCopies(
      costs.beside, lambda: self._clock_us
    )
    self.copies = self._copies
    self._lost_us: dict[str, float] = {}

  def recorded(self) -> Iterator[recording_lib.Slice]:
    """All slices, once everything has run."""
    yield from self._slices
    yield from self._sent.slices(recording_lib.COMMUNICATION, "collective")
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
    moving = (recording_lib.COMMUNICATION, self._sent)
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
    stream: str = recording_lib.COMPUTE,
    **more: Any,
  ) -> None:
    """Adds what a stream did until now, if that took time."""
    if self._clock_us > begin_us:
      self._slices.append(
        recording_lib.Slice(
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
    head: in_flight.InFlight,
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
    head: in_flight.InFlight | None,
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
