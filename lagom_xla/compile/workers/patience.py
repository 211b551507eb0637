# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Patience: how long a compile may take, to go by those before it."""

from __future__ import annotations

# A compile that takes this often as long as the longest so far hangs. Compiles
# to the end take some five times as long as those to the schedule.
_HANG_FACTOR = 30
_LEAST_HANG_S = 300.0
# Nothing is known of the first ones; the largest public modules take minutes.
_FIRST_HANG_S = 3600.0
# One that nobody waits for may lead to what others wait for, but not as long.
_DROPPED_FACTOR = 3
# Stopping a compile costs a new worker, which takes two seconds to start.
_WORTH_STOPPING_S = 10.0


class Patience:
  """What is known of how long compiles take."""

  def __init__(self, hang_s: float | None, worth_stopping_s: float | None):
    """Starts with nothing known.

    Args:
      hang_s: a compile that takes longer hangs; None to go by the others.
      worth_stopping_s: compiles are worth stopping if the longest so far took
        as long; None for the usual time.
    """
    self._hang_s = hang_s
    self._worth_stopping_s = (
      _WORTH_STOPPING_S if worth_stopping_s is None else worth_stopping_s
    )
    self._longest_s: float | None = None

  def add(self, taken_s: float) -> None:
    """Takes note of a compile that came to its end."""
    self._longest_s = max(self._longest_s or 0.0, taken_s)

  @property
  def limit_s(self) -> float:
    """A compile that takes longer hangs."""
    if self._hang_s is not None:
      return self._hang_s
    if self._longest_s is None:
      return _FIRST_HANG_S
    return max(_HANG_FACTOR * self._longest_s, _LEAST_HANG_S)

  @property
  def limit_of_dropped_s(self) -> float:
    """One that nobody waits for hangs if it takes longer from then on."""
    longest_s = self._longest_s or 0.0
    return max(_DROPPED_FACTOR * longest_s, self._worth_stopping_s)

  @property
  def is_worth_stopping(self) -> bool:
    """Whether a compile that nobody waits for may still take long."""
    longest_s = self._longest_s
    return longest_s is None or longest_s >= self._worth_stopping_s
