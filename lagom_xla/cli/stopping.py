# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Stops: Ctrl-C, SIGTERM and a time budget, raised where the command is.

The first one is raised as `errors.Stopped`, so that what was found so far can
be written; the next one ends the process at once, as signals do by themselves.
"""

from __future__ import annotations

from collections.abc import Iterator
import contextlib
import dataclasses
import os
import signal
import sys
import time
import types
from typing import Any, NoReturn

from lagom_xla import cli
from lagom_xla import errors
from lagom_xla.cli import output

# There is no result: the exit status of errors.
NOTHING_FOUND = 2
# Python drops what is raised in some callbacks; then it is raised again.
_AGAIN_S = 0.1
# Extensions that are being imported may crash of what is raised in them. So an
# import is waited for; one that takes longer is JAX's, and nothing was found.
_LONGEST_IMPORT_S = 0.5
_IMPORTS = "<frozen importlib._bootstrap>"
_SIGNALS = (signal.SIGINT, signal.SIGTERM)


@contextlib.contextmanager
def raised(time_budget_s: float | None = None) -> Iterator[None]:
  """Raises `errors.Stopped` inside, at the first reason to stop.

  A time budget counts from now on; with None it may take all the time.
  """
  first = _First(time_budget_s)
  before = {
    one: signal.signal(one, first.stop) for one in (*_SIGNALS, signal.SIGALRM)
  }
  try:
    with _quiet():
      signal.setitimer(signal.ITIMER_REAL, time_budget_s or 0)
      yield
  except KeyboardInterrupt as error:
    # Of the user's program: here SIGINT raises `errors.Stopped`.
    raise first.stopped or _reason(signal.SIGINT, None) from error
  except Exception as error:
    if first.stopped is None or first.stopped.is_caught:
      raise
    # Extensions that are being imported make an ImportError of it.
    raise first.stopped from error
  finally:
    signal.setitimer(signal.ITIMER_REAL, 0)
    for one, handler in before.items():
      signal.signal(one, handler)


@dataclasses.dataclass
class _First:
  """What stops a block first; None before anything does."""

  time_budget_s: float | None
  stopped: errors.Stopped | None = None
  stopped_s: float = 0.0

  def stop(self, number: int, frame: types.FrameType | None) -> None:
    """Handles a signal: raises what stops it, until that is caught."""
    if self.stopped is None:
      self.stopped_s = time.monotonic()
      for one in _SIGNALS:
        signal.signal(one, signal.SIG_DFL)
      signal.setitimer(signal.ITIMER_REAL, _AGAIN_S, _AGAIN_S)
      self.stopped = _reason(number, self.time_budget_s)
    elif self.stopped.is_caught or sys.exception() is self.stopped:
      return  # It is on its way.
    if _is_importing(frame):
      if time.monotonic() - self.stopped_s >= _LONGEST_IMPORT_S:
        status = self.stopped.exit_status or NOTHING_FOUND
        cli.end_now(self.stopped.reason, status)
      return
    raise self.stopped


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
  """What is dropped is raised again, and not worth a traceback."""
  unraisable, uncaught = sys.unraisablehook, sys.excepthook

  def say_dropped(dropped: sys.UnraisableHookArgs) -> None:
    if not isinstance(dropped.exc_value, errors.Stopped):
      unraisable(dropped)

  # Extensions that are being imported print what they make errors of.
  def print_uncaught(kind: Any, value: Any, trace: Any) -> None:
    if not isinstance(value, errors.Stopped):
      uncaught(kind, value, trace)

  sys.unraisablehook, sys.excepthook = say_dropped, print_uncaught
  try:
    yield
  finally:
    sys.unraisablehook, sys.excepthook = unraisable, uncaught


def end_time_budget() -> None:
  """Says that there is a result, which is to be written whatever it takes."""
  signal.setitimer(signal.ITIMER_REAL, 0)


def _is_importing(frame: types.FrameType | None) -> bool:
  """Whether an import goes on in a frame, or in one that called it."""
  while frame is not None:
    if frame.f_code.co_filename == _IMPORTS:
      return True
    frame = frame.f_back
  return False


def _reason(number: int, time_budget_s: float | None) -> errors.Stopped:
  if number == signal.SIGALRM:
    assert time_budget_s is not None
    return errors.Stopped(f"the time budget of {time_budget_s:g} s", 0)
  name = "Ctrl-C" if number == signal.SIGINT else "SIGTERM"
  return errors.Stopped(name, cli.SIGNALED + number)


def end(exit_status: int) -> NoReturn:
  """Ends the process now: taking JAX down takes longer than a second."""
  output.flush()
  sys.stdout.flush()
  sys.stderr.flush()
  os._exit(exit_status)
