# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Background threads, and their end with the process.

A thread that is inside XLA when Python exits may abort the process. A finished
training would then end with an error. So the exit waits for threads for a
while. After Ctrl-C the program must end at once: it does not wait, and kills
itself by the signal, as Python does, before the thread can return.
"""

from __future__ import annotations

import atexit
from collections.abc import Callable
import contextlib
import os
import signal
import sys
import threading
import time
from typing import Protocol
import weakref

from lagom_xla import errors

# Wait for threads after Ctrl-C, in seconds.
_INTERRUPTED_S = 0.5


def _is_ending() -> bool:
  """Whether this program ends because of an uncaught KeyboardInterrupt."""
  is_interactive = hasattr(sys, "ps1")  # The prompt caught it.
  latest = getattr(sys, "last_type", None)
  return not is_interactive and latest is KeyboardInterrupt


def _go_by_signal() -> None:
  """Runs the other exit functions, then ends the process by SIGINT."""
  atexit._run_exitfuncs()
  for stream in (sys.stdout, sys.stderr):
    if stream is not None:
      stream.flush()
  signal.signal(signal.SIGINT, signal.SIG_DFL)
  os.kill(os.getpid(), signal.SIGINT)


# Wait for all threads together, in seconds. A hanging thread is abandoned.
_LONGEST_S = 20.0
# Time for messages to the other processes, in seconds.
_LEAVE_S = 1.0

_running: dict[threading.Thread, threading.Event] = {}
_leaving: weakref.WeakSet[Leaving] = weakref.WeakSet()
# Set when the process ends: threads no longer start.
_is_over = threading.Event()
_lock = threading.Lock()


def start(
  name: str, run: Callable[[], None], stop: threading.Event
) -> threading.Thread:
  """Starts a thread; `stop` is set when the process ends."""

  def run_noted() -> None:
    # Ctrl-C may have ended the thread that started this one.
    if _note(threading.current_thread(), stop):
      run()

  thread = threading.Thread(target=run_noted, name=name, daemon=True)
  _register()
  thread.start()
  _note(thread, stop)
  return thread


class Leaving(Protocol):
  """Tells the job's other processes when this one ends."""

  def leave(self) -> None:
    """Tells them that this process ends; raises a ProcessesError on failure."""


def leave_at_end(leaving: Leaving) -> None:
  """Calls `leaving.leave` at exit, if the object still exists.

  JAX processes wait for each other at exit. So a process that ends, for example
  by Ctrl-C, would deadlock with others that wait for its decision. The call
  comes before the wait for threads.
  """
  _register()
  _leaving.add(leaving)


def join(longest_s: float = _LONGEST_S) -> bool:
  """Waits a while for the running threads; returns whether all have ended."""
  with _lock:
    running = list(_running)
  deadline = time.monotonic() + longest_s
  for thread in running:
    thread.join(max(deadline - time.monotonic(), 0))
  return not any(thread.is_alive() for thread in running)


def _note(thread: threading.Thread, stop: threading.Event) -> bool:
  """Registers a thread to wait for; False if the process is already ending."""
  with _lock:
    for ended in [it for it in _running if not it.is_alive()]:
      del _running[ended]
    if not _is_over.is_set():
      _running[thread] = stop
    return not _is_over.is_set()


def _register() -> None:
  """Registers `_end` again, so that it runs before other exit functions."""
  atexit.unregister(_end)
  atexit.register(_end, os.getpid())


def _end(process: int) -> None:
  if process != os.getpid():
    return  # A fork does not have these threads.
  _leave()
  with _lock:
    _is_over.set()
    for stop in _running.values():
      stop.set()
  is_interrupted = _is_ending()
  have_ended = join(_INTERRUPTED_S if is_interrupted else _LONGEST_S)
  if is_interrupted and not have_ended:
    atexit.unregister(_end)
    _go_by_signal()


def _leave() -> None:
  """Calls `leave` of all registered objects that still exist."""

  def leave() -> None:
    for one in leaving:
      with contextlib.suppress(errors.ProcessesError):
        one.leave()

  leaving = list(_leaving)
  if not leaving:
    return
  thread = threading.Thread(target=leave, name="lagom_xla leave", daemon=True)
  with contextlib.suppress(RuntimeError):  # No more threads can start.
    thread.start()
    thread.join(_LEAVE_S)
