# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Overhead that tuning has cost a run so far, and what it may cost."""

from __future__ import annotations

from lagom_xla.live import script as script_lib
from lagom_xla.live import surroundings

# 2 % of a run of 1,000 steps, in steps of the baseline.
MOST_STEPS = 20.0
# Blocks this much slower than the baseline hold something of the user's own,
# such as a checkpoint, unless a candidate ran.
_FOREIGN_RATIO = 3.0


class Overhead:
  """Sums what blocks took beyond the baseline's median, stalls and traces.

  Attributes:
    total_s: So far, in seconds.
  """

  def __init__(self, most_steps: float):
    self.total_s = 0.0
    self._most_steps = most_steps
    self._before_s = 0.0
    self._trial_began_s = 0.0
    self._worst_trial_s = 0.0

  def count(
    self,
    script: script_lib.Script,
    played: surroundings.Played,
    step_s: float,
  ) -> None:
    """Counts a script that was played, of a baseline that takes `step_s`."""
    self.total_s += played.stall_s
    for segment, seconds in zip(
      script.segments, played.durations_s, strict=True
    ):
      if seconds is None or segment.is_watched:
        continue
      usual_s = segment.num_calls * step_s
      is_candidate = segment.variant != script.in_use
      if is_candidate or seconds < _FOREIGN_RATIO * usual_s:
        self.total_s += max(seconds - usual_s, 0.0)

  def restart(self) -> None:
    """Begins a search that may cost as much as the first."""
    self._before_s = self.total_s

  def begin_trial(self) -> None:
    """A proposal is tried from now on."""
    self._trial_began_s = self.total_s

  def end_trial(self) -> None:
    """The proposal was judged."""
    trial_s = self.total_s - self._trial_began_s
    self._worst_trial_s = max(self._worst_trial_s, trial_s)

  def objection(self, step_s: float) -> str | None:
    """Why nothing more should be tried; None if something may be.

    The next proposal is taken to cost as much as the worst one so far.
    """
    so_far = (self.total_s - self._before_s) / step_s
    worst = self._worst_trial_s / step_s
    if so_far + worst <= self._most_steps:
      return None
    return (
      f"tuning has cost {so_far:.1f} steps, and another candidate might make"
      f" it more than {self._most_steps:g}"
    )
