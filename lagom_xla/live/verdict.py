# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Verdict on a candidate, from blocks of steps that alternate with its rival's.

Blocks of the step in use (A) and of the candidate (B) run in the order A B B A,
so that a drift of the machine affects both alike. Each pair of neighbors gives
the logarithm of a ratio of times; Student's t gives an interval of their mean.
There are at most three looks at the pairs. Each has a third of the error
of one look at 95 % (Bonferroni). Together they adopt a candidate that is no
faster in at most 2.5 % of all cases:

    adopted   at the first look whose interval ends below 1
    rejected  at the first look whose interval begins above 1, else at the last
              look; also after two pairs that are both slower by a quarter

The last rule saves time; it never adopts a slower candidate.
"""

from __future__ import annotations

from collections.abc import Sequence
import dataclasses
import functools
import math


@functools.cache
def half_width(probability: float, degrees: int) -> float:
  """The bound on |t| with this probability and degrees of freedom."""
  # The import takes longer than a step. `proposals.deferred` has already done
  # it in a thread before the first verdict.
  from scipy import special

  return float(special.stdtrit(degrees, (1 + probability) / 2))


# Number of pairs at each look.
_LOOKS = (6, 12, 24)
# Pairs at the look for a hopeless candidate, and its least ratio.
_HOPELESS_LOOK = 2
_HOPELESS_RATIO = 1.25

_ALPHA = 0.05


@dataclasses.dataclass(frozen=True, kw_only=True)
class Verdict:
  """The result of `num_pairs` pairs of blocks.

  `ratio` is the candidate's step time over that of the step in use, and (`low`,
  `high`) its interval. `is_adopted` is None if more pairs must be measured.
  """

  ratio: float
  low: float
  high: float
  num_pairs: int
  is_adopted: bool | None
  words: str

  @property
  def error(self) -> float:
    """Relative standard error of the ratio, conservatively large."""
    return math.log(self.high / self.low) / 4


def num_pairs_to_next_look(num_pairs: int) -> int:
  """The number of pairs to measure before the next look."""
  looks = (_HOPELESS_LOOK, *_LOOKS)
  return next((look - num_pairs for look in looks if look > num_pairs), 0)


def judge(pairs: Sequence[tuple[float, float]]) -> Verdict:
  """The verdict on two or more pairs: (step in use, candidate) times."""
  ratio, low, high = interval(pairs)
  is_adopted = None
  if len(pairs) in _LOOKS:
    if high < 1:
      is_adopted = True
    elif low > 1 or len(pairs) == _LOOKS[-1]:
      is_adopted = False
  elif all(theirs > _HOPELESS_RATIO * ours for ours, theirs in pairs):
    is_adopted = False
  shown = f"{ratio:.3f} of the time"
  if len(pairs) in _LOOKS:
    shown += f" ({low:.3f} to {high:.3f})"
  return Verdict(
    ratio=ratio,
    low=low,
    high=high,
    num_pairs=len(pairs),
    is_adopted=is_adopted,
    words=f"{shown}, {len(pairs)} pairs of blocks",
  )


def interval(
  pairs: Sequence[tuple[float, float]],
) -> tuple[float, float, float]:
  """The ratio of times, and the two ends of its interval at one look."""
  logs = [math.log(theirs / ours) for ours, theirs in pairs]
  num = len(logs)
  mean = math.fsum(logs) / num
  variance = math.fsum((log - mean) ** 2 for log in logs) / (num - 1)
  quantile = half_width(1 - _ALPHA / len(_LOOKS), num - 1)
  half = quantile * math.sqrt(variance / num)
  return math.exp(mean), math.exp(mean - half), math.exp(mean + half)
