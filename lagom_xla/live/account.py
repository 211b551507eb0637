# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""The overhead of tuning in a run: its step time, cost so far, and limit.

Tuning may cost 2 % of the first 1,000 steps, and 2 % of the steps so far in a
longer run. Anything that would cost more waits until the run is long enough. A
search that reaches the limit is expected to cost as much the next time.

The cost is the signed sum of each block's time beyond the usual step time.
Noise cancels: without an effect, the mean cost is 0. For N calls with standard
deviation s each, against the mean of n baseline calls, the standard error is
s sqrt(N + N^2 / n).
"""

from __future__ import annotations

import dataclasses
import math

from lagom_xla.costs import in_words
from lagom_xla.live import phases
from lagom_xla.live import timing
from lagom_xla.live import verdict as verdict_lib

# The limit of a shorter run is that of a run of this length.
_RUN_CALLS = 1000
# 2 % of _RUN_CALLS.
MOST_STEPS = 20.0
# Cost of taking and reading a trace: 73 to 110 ms measured against plain jit,
# with steps of 1.4 to 5 ms on eight XLA:CPU devices and two cores.
TRACE_S = 0.1


@dataclasses.dataclass(frozen=True, kw_only=True)
class Cost:
  """The cost of tuning: seconds beyond the untuned time of the same calls.

  Excludes `foreign_s`, the time of `num_foreign` blocks that the program itself
  slowed down, for example with a checkpoint.
  """

  seconds: float
  error_s: float
  foreign_s: float
  num_foreign: int

  @property
  def half_s(self) -> float:
    """Half the width of the 95 % interval of `seconds`."""
    # The standard error comes from a baseline's blocks.
    num_errors = verdict_lib.half_width(0.95, timing.NUM_BLOCKS - 1)
    return num_errors * self.error_s

  def in_words(self, step_s: float, num_calls: int) -> str:
    """The cost in steps of `step_s`, and as a share of `num_calls`."""
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
  """A step's time, and the cost of tuning so far.

  `usual` is the time of the variant in use, None before it is known.
  `foreseen_s` is the expected cost of a profile and a search. Tuning may cost
  `most_steps` per 1,000 steps.
  """

  def __init__(self, most_steps: float):
    self.usual: timing.Usual | None = None
    self.num_calls = 0
    self._most_steps = most_steps
    # Step time of the variant in use over jit's.
    self._ratio = 1.0
    # The cost before the latest search, and the expected cost of the next.
    self._before_s = 0.0
    self.foreseen_s = TRACE_S
    # The cost of calls of the variant in use, and of each proposal's trial.
    self._beside_s = 0.0
    self._trials_s: list[float] = []
    self._foreign_s = 0.0
    self._num_foreign = 0
    # From the noise of calls, and from the baseline's error.
    self._variance_s2 = 0.0
    self._usual_error_s = 0.0

  @property
  def step_s(self) -> float:
    """The step time under jit, in seconds; 0 before it is known."""
    return 0.0 if self.usual is None else self.usual.step_s / self._ratio

  @property
  def cost(self) -> Cost:
    """The cost of tuning so far."""
    return Cost(
      seconds=self._beside_s + math.fsum(self._trials_s),
      error_s=math.hypot(math.sqrt(self._variance_s2), self._usual_error_s),
      foreign_s=self._foreign_s,
      num_foreign=self._num_foreign,
    )

  def stall(self, seconds: float) -> None:
    """Adds time that a call waited."""
    self._beside_s += seconds

  def count(self, phase: phases.Phase, times: phases.Times) -> None:
    """Adds the cost of a phase; baseline blocks cost nothing."""
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
    """Records that a profile and a search begin."""
    self._before_s = self.cost.seconds

  def break_off_search(self) -> None:
    """Records that a search stopped because it would cost too much."""
    self.foreseen_s = max(TRACE_S, self.cost.seconds - self._before_s)

  def begin_trial(self) -> None:
    """Records that the trial of another proposal begins."""
    self._trials_s.append(0.0)

  def adopt(self, verdict: verdict_lib.Verdict) -> None:
    """Records that the last proposal was adopted."""
    assert self.usual is not None
    self._ratio *= verdict.ratio
    self.usual = self.usual.times(verdict.ratio, verdict.error)
    # A gain during the trial does not offset other costs.
    self._trials_s[-1] = max(self._trials_s[-1], 0.0)

  def calls_before_search(self) -> int:
    """The call at which the run can afford a profile; 0 if it can now."""
    return self._least_calls(self.foreseen_s)

  def objection(self) -> str | None:
    """Why no other trial may begin; None if one may.

    The next proposal, or the next pairs of the current one, are expected to
    cost as much as the most expensive proposal so far.
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
    """The call at which the run can afford `next_s`; 0 if it can now."""
    steps = (self.cost.seconds + next_s) / self.step_s
    least = math.ceil(_RUN_CALLS * steps / self._most_steps)
    return least if least > max(self.num_calls, _RUN_CALLS) else 0
