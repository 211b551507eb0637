# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Threads beside training, and how they end with the process.

A thread that is inside XLA when Python ends may abort the process, and a
training that is done would end with an error. So it is waited for, for a while.
"""

from __future__ import annotations

import atexit
from collections.abc import Callable
import os
import threading
import time

# Of all threads together, in seconds; a thread that hangs is left behind.
_LONGEST_S = 20.0

_running: dict[threading.Thread, threading.Event] = {}
_lock = threading.Lock()
_process = os.getpid()


def start(
  name: str, run: Callable[[], None], stop: threading.Event
) -> threading.Thread:
  """Starts a thread.

  Args:
    name: Of the thread.
    run: What it does; it raises nothing.
    stop: Set when the process ends.
  """
  thread = threading.Thread(target=run, name=name, daemon=True)
  with _lock:
    for ended in [it for it in _running if not it.is_alive()]:
      del _running[ended]
    thread.start()
    _running[thread] = stop
  return thread


def join() -> None:
  """Waits for the threads that run now, for a while."""
  with _lock:
    running = list(_running)
  deadline = time.monotonic() + _LONGEST_S
  for thread in running:
    thread.join(max(deadline - time.monotonic(), 0))


@atexit.register
def _end() -> None:
  if _process != os.getpid():
    return  # A fork has none of these threads.
  with _lock:
    for stop in _running.values():
      stop.set()
  join()
