# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Overhead that tuning has cost a run so far, and how surely.

What blocks of calls took beyond what the step usually takes is added up with
its sign, so that noise cancels: without an effect the sum is 0 on average. Its
standard error is what is told beside it. Of N calls, each with a deviation s,
against a mean that n calls of the baseline told, that is s sqrt(N + N^2 / n).

A block of the step in use that takes three times as long as usual has something
of the program's own in it, such as a checkpoint, and is told apart. But where
searches run on the cores of the step, one may slow it as much, and so may a
trace that is written or a candidate that is compiled. They can do so only while
they have a core. So as long as one goes on, such a block counts with what the
process took of cores beyond the usual, and only what it took longer still,
waiting for a disk or for other programs, is told apart.
"""

from __future__ import annotations

import dataclasses
import math

from lagom_xla.costs import in_words
from lagom_xla.live import script as script_lib
from lagom_xla.live.loop import baseline
from lagom_xla.live.loop import student_t
from lagom_xla.live.loop import surroundings

# A run that what was lost is told as a part of.
RUN_CALLS = 1000
# In which something works beside the step in use: it writes a trace, searches
# or compiles.
_WORKING = (
  script_lib.State.PROFILE,
  script_lib.State.SEARCH,
  script_lib.State.CANDIDATE,
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Cost:
  """What tuning has cost.

  Attributes:
    seconds: Beyond what the same calls would have taken.
    error_s: Standard error of that.
    foreign_s: What blocks took beyond the usual that hold something of the
      program's own; not in `seconds`.
    num_foreign: How many such blocks.
  """

  seconds: float
  error_s: float
  foreign_s: float
  num_foreign: int

  @property
  def half_s(self) -> float:
    """Half of the 95 % interval of `seconds`."""
    # The standard error is told by the blocks of a baseline.
    num_errors = student_t.half_width(0.95, baseline.NUM_BLOCKS - 1)
    return num_errors * self.error_s

  def in_words(self, step_s: float) -> str:
    """The same in steps of so many seconds."""
    steps, half = self.seconds / step_s, self.half_s / step_s
    words = (
      f"{steps:.1f} steps ({steps - half:.1f} to {steps + half:.1f}),"
      f" {100 * steps / RUN_CALLS:.2f} % of a run of {RUN_CALLS:,}"
    )
    if not self.num_foreign:
      return words
    return (
      f"{words}; not in it {self.foreign_s / step_s:.1f} steps in"
      f" {in_words.count(self.num_foreign, 'block')}"
      f" {baseline.FOREIGN_RATIO:g} times as slow as usual, as with a"
      " checkpoint in them"
    )


class Overhead:
  """Sums what calls took beyond what they usually do, stalls and traces.

  Args:
    is_searched_here: Whether searches run on the cores of the step.

  Attributes:
    num_calls: Of the run so far.
  """

  def __init__(self, *, is_searched_here: bool) -> None:
    self.num_calls = 0
    self._is_searched_here = is_searched_here
    self._stalls_s = 0.0
    self._beside_s = 0.0
    self._trials_s: list[float] = []
    self._foreign_s = 0.0
    self._num_foreign = 0
    # Of the noise of calls, and of what they were compared with.
    self._variance_s2 = 0.0
    self._usual_error_s = 0.0

  @property
  def cost(self) -> Cost:
    """What tuning has cost so far."""
    return Cost(
      seconds=self._stalls_s + self._beside_s + math.fsum(self._trials_s),
      error_s=math.hypot(math.sqrt(self._variance_s2), self._usual_error_s),
      foreign_s=self._foreign_s,
      num_foreign=self._num_foreign,
    )

  @property
  def worst_trial_s(self) -> float:
    """What the most expensive proposal has cost; 0 where none has."""
    return max([0.0, *self._trials_s])

  def stall(self, seconds: float) -> None:
    """Adds what a call waited for."""
    self._stalls_s += seconds

  def count(
    self,
    script: script_lib.Script,
    played: surroundings.Played,
    usual: baseline.Usual | None,
  ) -> None:
    """Counts a script that was played.

    Args:
      script: The script.
      played: What it took.
      usual: What a step of the variant in use takes; None where that is not
        known, so that nothing but stalls can be counted.
    """
    self.stall(played.stall_s)
    for segment, seconds, processor_s in zip(
      script.segments, played.durations_s, played.processor_s, strict=True
    ):
      self.num_calls += segment.num_calls
      if usual is None or seconds is None or segment.is_watched:
        continue
      is_trial = (
        segment.variant != script.in_use
        and script.state is not script_lib.State.PROFILE
      )
      usual_s = segment.num_calls * usual.step_s
      beyond_s = seconds - usual_s
      is_usual = segment.variant == script.in_use and not segment.is_traced
      if is_usual and seconds > baseline.FOREIGN_RATIO * usual_s:
        worked_s = processor_s - segment.num_calls * usual.processor_s
        foreign_s = self._foreign(script, beyond_s, worked_s)
        self._foreign_s += foreign_s
        self._num_foreign += foreign_s > 0
        if foreign_s == beyond_s:
          continue
        beyond_s -= foreign_s
      self._variance_s2 += segment.num_calls * usual.deviation_s**2
      self._usual_error_s += segment.num_calls * usual.error_s
      if is_trial:
        self._trials_s[-1] += beyond_s
      else:
        self._beside_s += beyond_s

  def _foreign(
    self, script: script_lib.Script, beyond_s: float, worked_s: float
  ) -> float:
    """What of a slow block's time beyond the usual is not for tuning.

    Args:
      script: That the block is of.
      beyond_s: That time.
      worked_s: What the process took of cores in it beyond the usual.
    """
    if not (script.state in _WORKING and self._is_searched_here):
      return beyond_s
    return max(beyond_s - max(worked_s, 0.0), 0.0)

  def begin_trial(self) -> None:
    """Another proposal is tried from now on."""
    self._trials_s.append(0.0)

  def adopt(self) -> None:
    """What was tried last is in use: what it gained meanwhile is no credit."""
    self._trials_s[-1] = max(self._trials_s[-1], 0.0)
