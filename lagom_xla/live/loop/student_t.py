# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Student's t, for intervals of a mean of a few values."""

from __future__ import annotations

import functools


@functools.cache
def half_width(probability: float, degrees: int) -> float:
  """What |t| stays below with a probability.

  Args:
    probability: Above 0 and below 1.
    degrees: Of freedom; one at least.
  """
  # Imported here, as that takes longer than a step: `deferred.py` has done so
  # in a thread by the time of a verdict.
  from scipy import special

  return float(special.stdtrit(degrees, (1 + probability) / 2))
