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
# Set when the process ends: no thread begins any more.
_is_over = threading.Event()
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

  def run_noted() -> None:
    # Ctrl-C may have met the thread that started this one, and ended it.
    if _note(threading.current_thread(), stop):
      run()

  thread = threading.Thread(target=run_noted, name=name, daemon=True)
  _register()
  thread.start()
  _note(thread, stop)
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


def _note(thread: threading.Thread, stop: threading.Event) -> bool:
  """Has the process wait for a thread when it ends; whether it has not yet."""
  with _lock:
    for ended in [it for it in _running if not it.is_alive()]:
      del _running[ended]
    if not _is_over.is_set():
      _running[thread] = stop
    return not _is_over.is_set()


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
    _is_over.set()
    for stop in _running.values():
      stop.set()
  is_interrupted = interruption.is_ending()
  have_ended = join(interruption.LONGEST_S if is_interrupted else _LONGEST_S)
  if is_interrupted and not have_ended:
    atexit.unregister(_end)
    interruption.end()
