# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Student's t of the live loop is that of scipy."""

from __future__ import annotations

import pytest
from scipy import special

from lagom_xla.live.loop import student_t


@pytest.mark.parametrize("degrees", [1, 2, 3, 4, 5, 11, 23, 100])
@pytest.mark.parametrize("probability", [0.5, 0.95, 1 - 0.05 / 3, 0.999])
def test_half_widths_are_quantiles_of_both_sides(
  probability: float, degrees: int
):
  quantile = special.stdtrit(degrees, (1 + probability) / 2)
  half = student_t.half_width(probability, degrees)
  assert half == pytest.approx(quantile, rel=1e-9)
