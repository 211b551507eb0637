# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Silence: broken by a line where nothing was said for a while.

So a log tells that a command is at work and at what, and a quick one says
nothing. The second silence may last twice as long as the first, and so on.
"""

from __future__ import annotations

from collections.abc import Callable
import threading
import time

# Somebody who waits wonders after two seconds.
FIRST_S = 1.0
_LONGEST_S = 60.0
_LOOKS_S = 0.1


class Silence:
  """Calls a function, in a thread of its own, where it was silent too long."""

  def __init__(self, say: Callable[[], None]):
    """Begins to wait.

    Args:
      say: says what is going on.
    """
    self._say = say
    self._most_s = FIRST_S
    self._heard_s = time.monotonic()
    self._ended = threading.Event()
    self._thread = threading.Thread(target=self._watch, daemon=True)
    self._thread.start()

  def heard(self) -> None:
    """Something was said."""
    self._heard_s = time.monotonic()

  def end(self) -> None:
    """Says nothing more."""
    self._ended.set()
    self._thread.join()

  def _watch(self) -> None:
    while not self._ended.wait(_LOOKS_S):
      if time.monotonic() - self._heard_s >= self._most_s:
        self._say()
        self.heard()
        self._most_s = min(2 * self._most_s, _LONGEST_S)
