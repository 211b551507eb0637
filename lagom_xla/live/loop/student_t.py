# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Student's t, for intervals of a mean of a few values.

By its finite series (Abramowitz and Stegun, 26.7.3 and 26.7.4): to import
scipy.special takes longer than a step, in the thread that trains.
"""

from __future__ import annotations

import functools
import math

# Each halves what is not known of the angle: all bits of a double.
_NUM_HALVINGS = 54


@functools.cache
def half_width(probability: float, degrees: int) -> float:
  """What |t| stays below with a probability.

  Args:
    probability: Above 0 and below 1.
    degrees: Of freedom; one at least.
  """
  low, high = 0.0, math.pi / 2
  for _ in range(_NUM_HALVINGS):
    middle = (low + high) / 2
    if _probability(middle, degrees) < probability:
      low = middle
    else:
      high = middle
  return math.sqrt(degrees) * math.tan(low)


def _probability(angle: float, degrees: int) -> float:
  """Of |t| below sqrt(degrees) tan(angle)."""
  is_odd = degrees % 2
  term = math.cos(angle) if is_odd else 1.0
  total = 0.0
  for index in range(2 + is_odd, degrees + 1, 2):
    total += term
    term *= math.cos(angle) ** 2 * (index - 1) / index
  total *= math.sin(angle)
  return 2 / math.pi * (angle + total) if is_odd else total
