# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Threads beside training, and how they end with the process.

A thread that is inside XLA when Python ends may abort the process, and a
training that is done would end with an error. So it is waited for, for a while.
A program that Ctrl-C ends is to end at once: it does not wait, and goes by the
signal, as Python itself has it go, before the thread can come out.
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

# How long threads are waited for after Ctrl-C, in seconds.
_INTERRUPTED_S = 0.5


def _is_ending() -> bool:
  """Whether this program ends because nobody caught a KeyboardInterrupt."""
  is_interactive = hasattr(sys, "ps1")  # What was raised there was caught.
  latest = getattr(sys, "last_type", None)
  return not is_interactive and latest is KeyboardInterrupt


def _go_by_signal() -> None:
  """Calls what else is to be called at the end, and ends."""
  atexit._run_exitfuncs()
  for stream in (sys.stdout, sys.stderr):
    if stream is not None:
      stream.flush()
  signal.signal(signal.SIGINT, signal.SIG_DFL)
  os.kill(os.getpid(), signal.SIGINT)


# Of all threads together, in seconds; a thread that hangs is left behind.
_LONGEST_S = 20.0
# Seconds in which the others must have been told.
_LEAVE_S = 1.0

_running: dict[threading.Thread, threading.Event] = {}
_leaving: weakref.WeakSet[Leaving] = weakref.WeakSet()
# Set when the process ends: no thread begins any more.
_is_over = threading.Event()
_lock = threading.Lock()


def start(
  name: str, run: Callable[[], None], stop: threading.Event
) -> threading.Thread:
  """Starts a thread."""

  def run_noted() -> None:
    # Ctrl-C may have met the thread that started this one, and ended it.
    if _note(threading.current_thread(), stop):
      run()

  thread = threading.Thread(target=run_noted, name=name, daemon=True)
  _register()
  thread.start()
  _note(thread, stop)
  return thread


class Leaving(Protocol):
  """Whoever has something to say to the other processes of the job."""

  def leave(self) -> None:
    """Tells them that this process ends; a ProcessesError if it cannot."""


def leave_at_end(leaving: Leaving) -> None:
  """Has somebody tell the others when the process ends, if it is still there.

  JAX has processes wait for each other when they end. So one that ended, as by
  Ctrl-C, and others that wait for what it decides would wait for each other.
  That is before threads are waited for.
  """
  _register()
  _leaving.add(leaving)


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
  """Has those that are there tell the others."""

  def leave() -> None:
    for one in leaving:
      with contextlib.suppress(errors.ProcessesError):
        one.leave()

  leaving = list(_leaving)
  if not leaving:
    return
  thread = threading.Thread(target=leave, name="lagom_xla leave", daemon=True)
  with contextlib.suppress(RuntimeError):  # There can be no more threads.
    thread.start()
    thread.join(_LEAVE_S)
