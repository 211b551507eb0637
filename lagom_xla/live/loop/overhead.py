# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Overhead that tuning has cost a run so far, and what it may cost."""

from __future__ import annotations

from lagom_xla.live import script as script_lib
from lagom_xla.live.loop import surroundings

# 2 % of a run of 1,000 steps, in steps of the baseline.
MOST_STEPS = 20.0
# Blocks this much slower than the baseline hold something of the user's own,
# such as a checkpoint, unless a candidate ran.
_FOREIGN_RATIO = 3.0


class Overhead:
  """Sums what steps took beyond what they usually do, stalls and traces.

  Noise has both signs, so what blocks took beyond the usual is summed before it
  is cut off at 0: for each candidate, and for all of the rest, where the
  baseline's own spread is allowed for.
  """

  def __init__(self, most_steps: float):
    self._most_steps = most_steps
    self._stalls_s = 0.0
    self._beside_s = 0.0
    self._trials_s: list[float] = []
    self._before_s = 0.0

  @property
  def total_s(self) -> float:
    """What tuning has cost so far, in seconds."""
    trials_s = sum(max(it, 0.0) for it in self._trials_s)
    return self._stalls_s + max(self._beside_s, 0.0) + trials_s

  def count(
    self,
    script: script_lib.Script,
    played: surroundings.Played,
    usual_s: float,
    spread_s: float,
  ) -> None:
    """Counts a script that was played.

    Args:
      script: The script.
      played: What it took.
      usual_s: What a step of the variant in use takes.
      spread_s: By how much that varies.
    """
    self._stalls_s += played.stall_s
    for segment, seconds in zip(
      script.segments, played.durations_s, strict=True
    ):
      if seconds is None or segment.is_watched:
        continue
      beyond_s = seconds - segment.num_calls * usual_s
      if segment.variant == script.in_use:
        if seconds < _FOREIGN_RATIO * segment.num_calls * usual_s:
          self._beside_s += beyond_s - segment.num_calls * spread_s
      elif script.state is script_lib.State.PROFILE:
        self._beside_s += beyond_s
      else:
        self._trials_s[-1] += beyond_s

  def restart(self) -> None:
    """Begins a search that may cost as much as the first."""
    self._before_s = self.total_s

  def begin_trial(self) -> None:
    """Another proposal is tried from now on."""
    self._trials_s.append(0.0)

  def objection(self, step_s: float) -> str | None:
    """Why nothing more should be tried; None if something may be.

    What comes next is taken to cost as much as the worst proposal so far: the
    next proposal, or as many more pairs of the one that is being measured.
    """
    so_far = (self.total_s - self._before_s) / step_s
    worst = max([0.0, *self._trials_s]) / step_s
    if so_far + worst <= self._most_steps:
      return None
    return (
      f"tuning has cost {so_far:.1f} steps, and to try more might make it more"
      f" than {self._most_steps:g}"
    )
