# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Times of a step while it trains: blocks, and windows after tuning.

A block is a series of calls of one variant, timed together. Blocks of two
variants alternate. The cost of tuning is relative to the mean of the baseline's
blocks, so an error of that mean counts at every call of a search. So the
baseline has many blocks. Each costs only a wait at its end.

After tuning, windows of calls are timed without waiting. The first windows give
the usual time and its variation. The step has drifted if several windows in a
row are outside this range on the same side.
"""

from __future__ import annotations

from collections.abc import Sequence
import dataclasses
import math
import statistics

from lagom_xla.live import phases

# Length of a block in seconds, and bounds of its calls.
_BLOCK_S = 0.2
_BLOCK_CALLS = (2, 10)
# The same for chunks, which also are the blocks of a baseline. A search or
# compile is checked after each chunk. Each ends with a wait.
_CHUNK_S = 1.0
_CHUNK_CALLS = (1, 20)


def block(
  variant: int, num_calls: int, *, is_traced: bool = False
) -> phases.Segment:
  """A block: calls that are timed together."""
  return phases.Segment(
    variant=variant, num_calls=num_calls, is_timed=True, is_traced=is_traced
  )


def chunk(variant: int, step_s: float) -> phases.Segment:
  """A chunk: calls of the variant in use while a search or compile runs."""
  return block(variant, _calls_within(_CHUNK_S, step_s, _CHUNK_CALLS))


def blocks_in_turns(
  ours: int, theirs: int, *, step_s: float, num_before: int, num_pairs: int
) -> list[phases.Segment]:
  """`num_pairs` pairs of blocks of `ours` and `theirs`, in the order A B B A.

  `num_before` pairs ran before.
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
  """Times of pairs of blocks, the variant in use first."""
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
  """Number of calls that take `seconds` at `step_s` each, within bounds."""
  lowest, highest = bounds
  return min(max(math.ceil(seconds / step_s), lowest), highest)


# Calls of a baseline's first blocks. They warm up, and set the size of others.
FIRST_BLOCKS = (3, 2, 2, 2, 2, 2)
NUM_BLOCKS = 12
# Blocks this many times slower include other work, such as a checkpoint.
FOREIGN_RATIO = 3.0


@dataclasses.dataclass(frozen=True, kw_only=True)
class Usual:
  """Time of a step without trials, in seconds.

  Attributes:
    step_s: The mean per call.
    error_s: The standard error of the mean.
    deviation_s: The standard deviation of a call, as if calls were independent.
  """

  step_s: float
  error_s: float
  deviation_s: float

  def times(self, ratio: float, error: float) -> Usual:
    """The time of a variant with this ratio, of relative error `error`."""
    step_s = self.step_s * ratio
    return Usual(
      step_s=step_s,
      error_s=math.hypot(self.error_s * ratio, step_s * error),
      deviation_s=self.deviation_s * ratio,
    )


def of_blocks(blocks_s: Sequence[float], num_calls: int) -> Usual:
  """Time of a step, from two or more blocks of `num_calls` calls each."""
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
# Number of windows that define the usual time.
_NUM_USUAL = 8
# A window is outside if it is off by this many standard deviations and by this
# share of the mean. Without the latter, a very steady step would always drift.
_NUM_DEVIATIONS = 4.0
_MIN_PART = 0.05
# Windows in a row that must be outside, for the first drift.
_NUM_BEYOND = 6


def window(
  variant: int, step_s: float, most_calls: float = math.inf
) -> phases.Segment:
  """A window of a variant, with at most `most_calls` calls."""
  calls = max(MIN_CALLS, math.ceil(MIN_WINDOW_S / step_s))
  return phases.Segment(
    variant=variant, num_calls=int(min(calls, most_calls)), is_watched=True
  )


class Watch:
  """Detects lasting changes of the step time.

  Uses medians and several windows in a row, so that a single window with a
  checkpoint or an evaluation does not count.
  """

  def __init__(self) -> None:
    self._usual_s: list[float] = []
    self._side = 0
    self._num_beyond = 0
    self._most_beyond = _NUM_BEYOND

  def restart(self) -> None:
    """Relearns the usual time; the next drift needs twice as many windows."""
    self._usual_s.clear()
    self._num_beyond = 0
    self._most_beyond *= 2

  def has_drifted(self, step_s: float) -> bool:
    """Adds the mean step time of a window; returns whether the step drifted."""
    if len(self._usual_s) < _NUM_USUAL:
      self._usual_s.append(step_s)
      return False
    usual_s = self.usual_s
    # For normal noise, 1.4826 median absolute deviations are one standard
    # deviation.
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
    """The drift to `step_s`, in words."""
    return (
      f"the step time went from {1e3 * self.usual_s:.3g} ms to"
      f" {1e3 * step_s:.3g} ms and stayed there"
    )

  @property
  def usual_s(self) -> float:
    """The usual step time."""
    return statistics.median(self._usual_s)
