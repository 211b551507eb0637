# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Swaps: other values of what a search set, where predictions are too close.

A search keeps the first value of a knob that gains, which is the one predicted
to gain most. Another may gain more once other options are beside it, and by
less than predictions are off: collectives combined up to 1 GiB, say, in place
of 2 GiB. So where nothing more is promising, those that are predicted to be as
good, by little more or less, are compiled, too.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from collections.abc import Set as AbstractSet
import itertools

from lagom_xla.search.xla import knobs
from lagom_xla.search.xla import predictions

MOST = 3
# What predictions are off by, as shares of the step: a schedule with another
# threshold came out up to 0.8 % shorter than predicted (Llama 70B on A100s), so
# what is predicted to cost this much may gain. What is predicted to change less
# than the second makes the same schedule.
_CLOSE = 5e-3
_SAME = 1e-6


def of(
  predicted: Iterable[predictions.Predicted], added: AbstractSet[str]
) -> Iterator[knobs.Value]:
  """The most promising swaps of a config.

  Args:
    predicted: single values beside it, the most promising first.
    added: the options that the search added; what it began with stays.
  """
  swaps = (
    p.value
    for p in predicted
    if p.value.options.keys() <= added
    and not p.is_promising
    and p.gain >= -_CLOSE
    and abs(p.gain) >= _SAME
  )
  return itertools.islice(swaps, MOST)
