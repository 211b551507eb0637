# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Farewell of a process that ends to those that may be waiting for it.

JAX has processes wait for each other when they end. So one that ended, as by
Ctrl-C, and others that wait for what it decides would wait for each other.
"""

from __future__ import annotations

import contextlib
import threading
from typing import Protocol
import weakref

from lagom_xla import errors

# Seconds in which the others must have been told.
_LONGEST_S = 1.0


class Leaving(Protocol):
  """Whoever has something to say."""

  def leave(self) -> None:
    """Tells the others.

    Raises:
      ProcessesError: They cannot be reached.
    """
    ...


_leaving: weakref.WeakSet[Leaving] = weakref.WeakSet()


def prepare(leaving: Leaving) -> None:
  """Has somebody tell the others by `say`, if it is still there."""
  _leaving.add(leaving)


def say() -> None:
  """Tells the others; to be called when Python ends."""
  thread = threading.Thread(
    target=_leave,
    args=(list(_leaving),),
    name="lagom_xla farewell",
    daemon=True,
  )
  with contextlib.suppress(RuntimeError):  # There can be no more threads.
    thread.start()
    thread.join(_LONGEST_S)


def _leave(leaving: list[Leaving]) -> None:
  for one in leaving:
    with contextlib.suppress(errors.ProcessesError):
      one.leave()
