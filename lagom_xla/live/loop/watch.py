# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Watch over the step's time once tuning is done: does it leave what it was?

Times are means over windows of at least 32 calls and 10 s, taken by the wall
clock with nothing waited for. The first windows say what the step takes and how
much that varies; it has drifted when several windows in a row are beyond that
on the same side. After each drift that led to a new search, more is asked.
"""

from __future__ import annotations

import math
import statistics

from lagom_xla.live import script as script_lib

MIN_CALLS = 32
MIN_WINDOW_S = 10.0
# Windows that tell what is usual.
_NUM_USUAL = 8
# A window is beyond the usual by as many standard deviations, and by this part
# of the mean: a step that varies by nothing would drift by nothing.
_NUM_DEVIATIONS = 4.0
_MIN_PART = 0.05
# So many windows in a row are beyond it, the first time.
_NUM_BEYOND = 6


def window(
  variant: int, step_s: float, most_calls: float = math.inf
) -> script_lib.Segment:
  """A window of a variant that takes so long, of so many calls at most."""
  calls = max(MIN_CALLS, math.ceil(MIN_WINDOW_S / step_s))
  return script_lib.Segment(
    variant=variant, num_calls=int(min(calls, most_calls)), is_watched=True
  )


class Watch:
  """Says when the step's time has left what it was.

  A window that holds a checkpoint or an evaluation is longer than the others.
  Medians are taken, so that such windows neither count as usual nor, as they
  come alone, as a drift.
  """

  def __init__(self) -> None:
    self._usual_s: list[float] = []
    self._side = 0
    self._num_beyond = 0
    self._most_beyond = _NUM_BEYOND

  def restart(self) -> None:
    """Learns anew what is usual, and asks for twice as much from now on."""
    self._usual_s.clear()
    self._num_beyond = 0
    self._most_beyond *= 2

  def has_drifted(self, step_s: float) -> bool:
    """Takes the mean step time of a window; whether it is one too many."""
    if len(self._usual_s) < _NUM_USUAL:
      self._usual_s.append(step_s)
      return False
    usual_s = self.usual_s
    # 1.4826 makes the median deviation that of normal noise.
    deviation_s = 1.4826 * statistics.median(
      abs(it - usual_s) for it in self._usual_s
    )
    far_s = max(_NUM_DEVIATIONS * deviation_s, _MIN_PART * usual_s)
    side = (step_s > usual_s + far_s) - (step_s < usual_s - far_s)
    if side != self._side:
      self._side, self._num_beyond = side, 0
    self._num_beyond += abs(side)
    return self._num_beyond >= self._most_beyond

  def in_words(self, step_s: float) -> str:
    """What has drifted to so much."""
    return (
      f"a step takes {1e3 * step_s:.3g} ms for long now, where it took"
      f" {1e3 * self.usual_s:.3g} ms"
    )

  @property
  def usual_s(self) -> float:
    """What the step usually takes."""
    return statistics.median(self._usual_s)
