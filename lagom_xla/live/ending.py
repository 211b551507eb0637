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

from lagom_xla.live import interruption

# Of all threads together, in seconds; a thread that hangs is left behind.
_LONGEST_S = 20.0

_running: dict[threading.Thread, threading.Event] = {}
_farewells: list[Callable[[], None]] = []
_lock = threading.Lock()


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
  _register()
  with _lock:
    for ended in [it for it in _running if not it.is_alive()]:
      del _running[ended]
    thread.start()
    _running[thread] = stop
  return thread


def call_first(farewell: Callable[[], None]) -> None:
  """Has something called when the process ends, before threads are waited for.

  Args:
    farewell: What is called; it raises nothing.
  """
  _register()
  if farewell not in _farewells:
    _farewells.append(farewell)


def join(longest_s: float = _LONGEST_S) -> bool:
  """Waits for the threads that run now, for a while; whether all have ended."""
  with _lock:
    running = list(_running)
  deadline = time.monotonic() + longest_s
  for thread in running:
    thread.join(max(deadline - time.monotonic(), 0))
  return not any(thread.is_alive() for thread in running)


def _register() -> None:
  """What was registered last is called first: `_end` calls all that is left."""
  atexit.unregister(_end)
  atexit.register(_end, os.getpid())


def _end(process: int) -> None:
  if process != os.getpid():
    return  # A fork has none of these threads.
  for farewell in _farewells:
    farewell()
  with _lock:
    for stop in _running.values():
      stop.set()
  is_interrupted = interruption.is_ending()
  have_ended = join(interruption.LONGEST_S if is_interrupted else _LONGEST_S)
  if is_interrupted and not have_ended:
    atexit.unregister(_end)
    interruption.end()
