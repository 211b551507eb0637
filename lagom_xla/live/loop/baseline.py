# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Baseline: what a step takes while nothing is tried, and how surely.

A few calls warm up, and tell how many make a block; then blocks of equal length
are timed. What tuning costs later is told against their mean, so an error of it
counts at every call of a search: there are many blocks, which cost the run
nothing but a wait at the end of each.
"""

from __future__ import annotations

from collections.abc import Sequence
import dataclasses
import math
import statistics

from lagom_xla.live import script as script_lib
from lagom_xla.live.loop import blocks
from lagom_xla.live.loop import surroundings

_NUM_WARM_UP = 3
_FIRST_BLOCKS = 5
_FIRST_BLOCK_CALLS = 2
NUM_BLOCKS = 12
# Blocks this much slower than others hold something of the program's own, such
# as a checkpoint.
FOREIGN_RATIO = 3.0


@dataclasses.dataclass(frozen=True, kw_only=True)
class Usual:
  """What a step takes while nothing is tried.

  Attributes:
    step_s: Mean time of a call, in seconds.
    error_s: Standard error of that mean.
    deviation_s: Standard deviation of the time of one call, if calls were
      independent of each other.
    processor_s: What the process takes of cores in a call.
  """

  step_s: float
  error_s: float
  deviation_s: float
  processor_s: float

  def times(self, ratio: float, error: float) -> Usual:
    """What a variant takes.

    Args:
      ratio: Its step time over this one's.
      error: Standard error of the ratio, as a part of it.
    """
    step_s = self.step_s * ratio
    return Usual(
      step_s=step_s,
      error_s=math.hypot(self.error_s * ratio, step_s * error),
      deviation_s=self.deviation_s * ratio,
      processor_s=self.processor_s,
    )


def of_blocks(
  blocks_s: Sequence[float], processor_s: Sequence[float], num_calls: int
) -> Usual:
  """What a step takes, by blocks of equally many calls, two at least.

  Args:
    blocks_s: What the blocks took.
    processor_s: What the process took of cores in each.
    num_calls: Of a block.
  """
  middle_s = statistics.median(blocks_s)
  own_s = [it for it in blocks_s if it < FOREIGN_RATIO * middle_s]
  deviation_s = statistics.stdev(own_s)
  return Usual(
    step_s=statistics.fmean(own_s) / num_calls,
    error_s=deviation_s / math.sqrt(len(own_s)) / num_calls,
    deviation_s=deviation_s / math.sqrt(num_calls),
    processor_s=statistics.median(processor_s) / num_calls,
  )


@dataclasses.dataclass(kw_only=True)
class Baseline:
  """One baseline, of the variant in use.

  Attributes:
    in_use: That variant.
    compile_s: What the calls that warm up took of cores beyond the steps in
      them; 0 before they were made.
    usual: What a step takes, as far as it is known; None before.
  """

  in_use: int
  compile_s: float = 0.0
  usual: Usual | None = None
  _num_calls: int = 0

  def begin(self, words: str = "") -> script_lib.Script:
    """The first script, for a reason in words."""
    warm_up, block = map(self._timed, (_NUM_WARM_UP, _FIRST_BLOCK_CALLS))
    return self._script((warm_up, *[block] * _FIRST_BLOCKS), words)

  def next(self, played: surroundings.Played) -> script_lib.Script | None:
    """The next script; None once `usual` is all that is to be known."""
    blocks_s = [it for it in played.durations_s if it is not None]
    if self._num_calls:
      self.usual = of_blocks(blocks_s, played.processor_s, self._num_calls)
      return None
    first_s, *others_s = played.processor_s
    self.usual = of_blocks(blocks_s[1:], others_s, _FIRST_BLOCK_CALLS)
    steps_s = _NUM_WARM_UP * statistics.median(others_s) / _FIRST_BLOCK_CALLS
    self.compile_s = max(first_s - steps_s, 0.0)
    block = blocks.chunk(self.in_use, self.usual.step_s)
    self._num_calls = block.num_calls
    return self._script([block] * NUM_BLOCKS)

  def _timed(self, num_calls: int) -> script_lib.Segment:
    return script_lib.Segment(
      variant=self.in_use, num_calls=num_calls, is_timed=True
    )

  def _script(
    self, segments: Sequence[script_lib.Segment], words: str = ""
  ) -> script_lib.Script:
    return script_lib.Script(
      state=script_lib.State.BASELINE,
      segments=tuple(segments),
      in_use=self.in_use,
      words=words,
    )
