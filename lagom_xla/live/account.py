# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Account of a run: what its step takes, and what tuning may still cost.

Tuning may cost 2 % of a run of 1,000 steps, and of a longer run 2 % of what it
is so far. What would cost more is not begun, until the run is long enough. A
search that comes to that bound is taken to cost as much the next time.

What blocks of calls took beyond what the step usually takes is added up with
its sign, so that noise cancels: without an effect the sum is 0 on average. Of N
calls, each with a deviation s, against a mean that n calls of the baseline
told, its standard error is s sqrt(N + N^2 / n).
"""

from __future__ import annotations

import dataclasses
import math

from lagom_xla.costs import in_words
from lagom_xla.live import phases
from lagom_xla.live import timing
from lagom_xla.live import verdict as verdict_lib

# A run that what was lost is told as a part of.
_RUN_CALLS = 1000
# 2 % of it.
MOST_STEPS = 20.0
# What a trace costs a run until it is read: 73 to 110 ms, by wall clock beside
# plain jit, of steps of 1.4 to 5 ms on eight XLA:CPU devices with two cores.
TRACE_S = 0.1


@dataclasses.dataclass(frozen=True, kw_only=True)
class Cost:
  """What tuning has cost: seconds beyond what the calls would have taken.

  Not in them is what blocks took, `num_foreign` of them, that hold something of
  the program's own.
  """

  seconds: float
  error_s: float
  foreign_s: float
  num_foreign: int

  @property
  def half_s(self) -> float:
    """Half of the 95 % interval of `seconds`."""
    # The standard error is told by the blocks of a baseline.
    num_errors = verdict_lib.half_width(0.95, timing.NUM_BLOCKS - 1)
    return num_errors * self.error_s

  def in_words(self, step_s: float, num_calls: int) -> str:
    """The same in steps of so many seconds, and of so many calls so far."""
    steps, half = self.seconds / step_s, self.half_s / step_s
    words = (
      f"{steps:.1f} steps ({steps - half:.1f} to {steps + half:.1f}),"
      f" {100 * steps / max(num_calls, 1):.2f} % of {num_calls:,} so far"
    )
    if not self.num_foreign:
      return words
    return (
      f"{words}; not counted: {self.foreign_s / step_s:.1f} steps in"
      f" {in_words.count(self.num_foreign, 'block')} more than"
      f" {timing.FOREIGN_RATIO:g} times slower than usual, for example with a"
      " checkpoint"
    )


class Account:
  """What is known of a step's time, and of what tuning has cost of it.

  `usual` is of the variant in use, None before it is known. A profile and a
  search are foreseen to cost `foreseen_s`. Tuning may cost `most_steps` of a
  run of 1,000.
  """

  def __init__(self, most_steps: float):
    self.usual: timing.Usual | None = None
    self.num_calls = 0
    self._most_steps = most_steps
    # Of the variant in use, over what jit runs.
    self._ratio = 1.0
    # What it had cost before the latest search, and what the next may cost.
    self._before_s = 0.0
    self.foreseen_s = TRACE_S
    # What calls of the step in use have lost, and those of each proposal.
    self._beside_s = 0.0
    self._trials_s: list[float] = []
    self._foreign_s = 0.0
    self._num_foreign = 0
    # Of the noise of calls, and of what they were compared with.
    self._variance_s2 = 0.0
    self._usual_error_s = 0.0

  @property
  def step_s(self) -> float:
    """What the step takes as jit runs it, in seconds; 0 before it is known."""
    return 0.0 if self.usual is None else self.usual.step_s / self._ratio

  @property
  def cost(self) -> Cost:
    """What tuning has cost so far."""
    return Cost(
      seconds=self._beside_s + math.fsum(self._trials_s),
      error_s=math.hypot(math.sqrt(self._variance_s2), self._usual_error_s),
      foreign_s=self._foreign_s,
      num_foreign=self._num_foreign,
    )

  def stall(self, seconds: float) -> None:
    """Adds what a call waited for."""
    self._beside_s += seconds

  def count(self, phase: phases.Phase, times: phases.Times) -> None:
    """Counts a phase by what it took; blocks of a baseline cost nothing."""
    self.stall(times.stall_s)
    is_baseline = phase.state is phases.State.BASELINE
    usual = None if is_baseline else self.usual
    for segment, seconds in zip(phase.segments, times.durations_s, strict=True):
      self.num_calls += segment.num_calls
      if usual is None or seconds is None or segment.is_watched:
        continue
      usual_s = segment.num_calls * usual.step_s
      beyond_s = seconds - usual_s
      is_in_use = segment.variant == phase.in_use
      is_usual = is_in_use and not segment.is_traced
      if is_usual and seconds > timing.FOREIGN_RATIO * usual_s:
        self._foreign_s += beyond_s
        self._num_foreign += 1
        continue
      self._variance_s2 += segment.num_calls * usual.deviation_s**2
      self._usual_error_s += segment.num_calls * usual.error_s
      if is_in_use or phase.state is phases.State.PROFILE:
        self._beside_s += beyond_s
      else:
        self._trials_s[-1] += beyond_s

  def begin_search(self) -> None:
    """A profile and a search begin."""
    self._before_s = self.cost.seconds

  def break_off_search(self) -> None:
    """It would cost too much to go on."""
    self.foreseen_s = max(TRACE_S, self.cost.seconds - self._before_s)

  def begin_trial(self) -> None:
    """Another proposal is tried from now on."""
    self._trials_s.append(0.0)

  def adopt(self, verdict: verdict_lib.Verdict) -> None:
    """The proposal that was tried last is in use."""
    assert self.usual is not None
    self._ratio *= verdict.ratio
    self.usual = self.usual.times(verdict.ratio, verdict.error)
    # What it gained meanwhile is no credit.
    self._trials_s[-1] = max(self._trials_s[-1], 0.0)

  def calls_before_search(self) -> int:
    """Calls that the run must have before a profile; 0 if it has them."""
    return self._least_calls(self.foreseen_s)

  def objection(self) -> str | None:
    """Why nothing more should be tried; None if something may be.

    What comes next is taken to cost as much as the worst proposal so far: the
    next proposal, or as many more pairs of the one that is being measured.
    """
    if not self._least_calls(max([0.0, *self._trials_s])):
      return None
    num_calls = max(self.num_calls, _RUN_CALLS)
    return (
      f"tuning has cost {self.cost.seconds / self.step_s:.1f} steps,"
      " and another try could exceed the limit of"
      f" {self._most_steps * num_calls / _RUN_CALLS:.0f}"
    )

  def _least_calls(self, next_s: float) -> int:
    """Calls a run must have to pay for what comes next; 0 if it has them."""
    steps = (self.cost.seconds + next_s) / self.step_s
    least = math.ceil(_RUN_CALLS * steps / self._most_steps)
    return least if least > max(self.num_calls, _RUN_CALLS) else 0
