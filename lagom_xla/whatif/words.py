# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Words and figures of a comparison, as the table and the page have them."""

from __future__ import annotations

_SUFFIXES = ((1e9, "G"), (1e6, "M"), (1e3, "k"))


def short(value: float) -> str:
  """A number in three digits, such as 312k."""
  for size, suffix in _SUFFIXES:
    if value >= 0.9995 * size:
      return f"{_digits(value / size)}{suffix}"
  return _digits(value)


def ms(us: float) -> str:
  """Milliseconds in three digits, or all before the point."""
  return _digits(us / 1e3)


def _digits(value: float) -> str:
  digits = 0 if value >= 99.95 else 1 if value >= 9.995 else 2
  return f"{value:,.{digits}f}"
