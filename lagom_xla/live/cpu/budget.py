# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Budget of a search beside training, and what it still has time to look at.

A search does one thing at a time, but XLA does its part in threads of its own,
whose processor time nothing tells apart from that of the steps beside it. By
wall clock a search takes what it takes of a core at least, so that is counted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
import contextlib
import time


class Budget:
  """Seconds from now on, of which each look takes some.

  Args:
    most_s: How many; None for no bound.
    clock: Tells seconds.
  """

  def __init__(
    self, most_s: float | None, clock: Callable[[], float] = time.monotonic
  ):
    self._most_s = most_s
    self._clock = clock
    self._began_s = clock()
    # Of each kind of look, and with whatever was done as one.
    self._dearest_s: dict[object, float] = {}

  def has_time(self, kind: object) -> bool:
    """Whether one more look is within it.

    It is taken to be as dear as the dearest of its kind so far, or where there
    was none, as the dearest of all.
    """
    if self._most_s is None:
      return True
    dearest_s = max(self._dearest_s.values(), default=0.0)
    next_s = self._dearest_s.get(kind, dearest_s)
    return self._clock() - self._began_s + next_s <= self._most_s

  @contextlib.contextmanager
  def looking(self, kind: object) -> Iterator[None]:
    """Around a look of a kind, also one that comes to nothing."""
    began_s = self._clock()
    try:
      yield
    finally:
      took_s = self._clock() - began_s
      self._dearest_s[kind] = max(self._dearest_s.get(kind, 0.0), took_s)
