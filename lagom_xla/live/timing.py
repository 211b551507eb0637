# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Times of a step while it trains: in turns, while nothing is tried, and after.

Blocks are calls of one variant that are timed together; those of two variants
take turns. What tuning costs is told against the mean of the baseline's, so an
error of it counts at every call of a search: there are many, which cost the run
nothing but a wait at the end of each.

Once tuning is done windows of calls are timed, with nothing waited for. The
first ones tell what the step takes and how much that varies; it has drifted
when several in a row are beyond that on the same side.
"""

from __future__ import annotations

from collections.abc import Sequence
import dataclasses
import math
import statistics

from lagom_xla.live import phases

# A block is as many calls as take this long, within bounds.
_BLOCK_S = 0.2
_BLOCK_CALLS = (2, 10)
# The same between two looks at a search or a compile, and of a baseline, which
# such calls are compared with: at the end of each there is a wait.
_CHUNK_S = 1.0
_CHUNK_CALLS = (1, 20)


def block(
  variant: int, num_calls: int, *, is_traced: bool = False
) -> phases.Segment:
  """So many calls that are timed together."""
  return phases.Segment(
    variant=variant, num_calls=num_calls, is_timed=True, is_traced=is_traced
  )


def chunk(variant: int, step_s: float) -> phases.Segment:
  """Calls of the variant in use while something happens beside them."""
  return block(variant, _calls_within(_CHUNK_S, step_s, _CHUNK_CALLS))


def blocks_in_turns(
  ours: int, theirs: int, *, step_s: float, num_before: int, num_pairs: int
) -> list[phases.Segment]:
  """Pairs of blocks of the variant in use and a candidate, in order A B B A.

  So many pairs of them, after `num_before` that ran before.
  """
  num_calls = _calls_within(_BLOCK_S, step_s, _BLOCK_CALLS)
  return [
    block(variant, num_calls)
    for index in range(num_before, num_before + num_pairs)
    for variant in ((theirs, ours) if index % 2 else (ours, theirs))
  ]


def pairs(
  segments: Sequence[phases.Segment],
  durations_s: Sequence[float | None],
  ours: int,
) -> list[tuple[float, float]]:
  """The times of pairs of blocks, that of the variant in use first."""
  found = []
  for first in range(0, len(segments), 2):
    one, two = durations_s[first : first + 2]
    assert one is not None and two is not None
    is_ours_first = segments[first].variant == ours
    found.append((one, two) if is_ours_first else (two, one))
  return found


def _calls_within(
  seconds: float, step_s: float, bounds: tuple[int, int]
) -> int:
  """Calls that take so long, within bounds, of a step that takes `step_s`."""
  lowest, highest = bounds
  return min(max(math.ceil(seconds / step_s), lowest), highest)


# Calls of the first blocks of a baseline: to warm up, and to tell how many make
# a block of those that follow.
FIRST_BLOCKS = (3, 2, 2, 2, 2, 2)
NUM_BLOCKS = 12
# Blocks this much slower than others hold something of the program's own, such
# as a checkpoint.
FOREIGN_RATIO = 3.0


@dataclasses.dataclass(frozen=True, kw_only=True)
class Usual:
  """What a step takes while nothing is tried, in seconds.

  The mean of a call, its standard error, and the standard deviation of one call
  if calls were independent of each other.
  """

  step_s: float
  error_s: float
  deviation_s: float

  def times(self, ratio: float, error: float) -> Usual:
    """Of a variant that takes so much of it, with that error of the ratio."""
    step_s = self.step_s * ratio
    return Usual(
      step_s=step_s,
      error_s=math.hypot(self.error_s * ratio, step_s * error),
      deviation_s=self.deviation_s * ratio,
    )


def of_blocks(blocks_s: Sequence[float], num_calls: int) -> Usual:
  """What a step takes, by two blocks or more of so many calls each."""
  middle_s = statistics.median(blocks_s)
  own_s = [it for it in blocks_s if it < FOREIGN_RATIO * middle_s]
  deviation_s = statistics.stdev(own_s)
  return Usual(
    step_s=statistics.fmean(own_s) / num_calls,
    error_s=deviation_s / math.sqrt(len(own_s)) / num_calls,
    deviation_s=deviation_s / math.sqrt(num_calls),
  )


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
) -> phases.Segment:
  """A window of a variant that takes so long, of so many calls at most."""
  calls = max(MIN_CALLS, math.ceil(MIN_WINDOW_S / step_s))
  return phases.Segment(
    variant=variant, num_calls=int(min(calls, most_calls)), is_watched=True
  )


class Watch:
  """Says when the step's time has left what it was.

  Medians are taken, so that a window with a checkpoint or an evaluation in it
  neither counts as usual nor, as it comes alone, as a drift.
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
      f"the step time went from {1e3 * self.usual_s:.3g} ms to"
      f" {1e3 * step_s:.3g} ms and stayed there"
    )

  @property
  def usual_s(self) -> float:
    """What the step usually takes."""
    return statistics.median(self._usual_s)
