# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Companions: values that gain together, though nothing foretold it.

Products that XLA leaves apart cost a step nothing or little, and let a double-
buffered loop hide more; a schedule by fixed costs may need two collectives in
flight. Of pairs with such values nothing is predicted (`predictions.py` has the
others), so where no value gains any more alone, a few pairs are compiled: those
whose values have cost least.
"""

from __future__ import annotations

from collections.abc import Sequence
import itertools

from lagom_xla.search.xla import hindsight as hindsight_lib
from lagom_xla.search.xla import knobs
from lagom_xla.search.xla import predictions

# Pairs that are compiled in a round.
MOST = 2
# What a pair costs alone it has to win back from what collectives cost, of
# which options hide a part: a pair that gained cost an eighth of it.
_SHARE = 1 / 5
# A value that changes less of the step did nothing: it makes the same schedule.
_NOTHING = 1e-6


def of(
  values: Sequence[knobs.Value],
  hindsight: hindsight_lib.Hindsight,
  to_gain: float,
) -> list[knobs.Value]:
  """Pairs of values one of which nothing is predicted of.

  Args:
    values: of single knobs.
    hindsight: what they came to alone. What did nothing, cost much or was not
      compiled is in no pair.
    to_gain: what collectives cost the step, as a share of it.
  """
  known = [
    (value, gain)
    for value in values
    if (gain := hindsight.gain(value)) is not None
    and -hindsight_lib.DEAR < gain
    and abs(gain) >= _NOTHING
  ]
  found = [
    (one, other)
    for one, other in itertools.combinations(known, 2)
    if None in (one[0].changes, other[0].changes)
    and one[0].options.keys().isdisjoint(other[0].options)
    and one[1] + other[1] >= -_SHARE * to_gain
  ]
  found.sort(key=lambda pair: -pair[0][1] - pair[1][1])
  return [
    predictions.together([one[0], other[0]]) for one, other in found[:MOST]
  ]
