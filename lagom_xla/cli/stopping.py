# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Stops: Ctrl-C, SIGTERM and a time budget, raised inside the command.

The first raises `errors.Stopped`, so that the command can write its result so
far. The next signal ends the process at once, as by default.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
import contextlib
import dataclasses
import logging
import os
import signal
import sys
import time
import types
from typing import Any, NoReturn

from absl import logging as absl_logging

from lagom_xla import cli
from lagom_xla import errors
from lagom_xla.cli import output

# The exit status without a result, like that of errors.
NOTHING_FOUND = 2
# Interval at which the exception is raised again, in seconds, because Python
# drops exceptions in some callbacks.
_AGAIN_S = 0.1
_AT_ONCE_S = 1e-3
# An exception may crash an extension that is being imported, so stops wait for
# imports. Only JAX's import takes longer, and there is no result yet then.
_LONGEST_IMPORT_S = 0.5
_IMPORTS = "<frozen importlib._bootstrap>"
_SIGNALS = (signal.SIGINT, signal.SIGTERM)


@contextlib.contextmanager
def raised(time_budget_s: float | None = None) -> Iterator[None]:
  """Raises `errors.Stopped` inside the block at the first reason to stop.

  A time budget counts from now; None for no limit.
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
    # From the user's program: SIGINT itself raises `errors.Stopped` here.
    raise first.stopped or _reason(signal.SIGINT, None) from error
  except Exception as error:
    if first.stopped is None or first.stopped.is_caught:
      raise
    # Extensions that are being imported convert it to an ImportError.
    raise first.stopped from error
  finally:
    signal.setitimer(signal.ITIMER_REAL, 0)
    for one, handler in before.items():
      signal.signal(one, handler)


@dataclasses.dataclass
class _First:
  """The first stop of a block; `stopped` is None until then."""

  time_budget_s: float | None
  stopped: errors.Stopped | None = None
  stopped_s: float = 0.0

  def stop(self, number: int, frame: types.FrameType | None) -> None:
    """Handles a signal: raises `stopped` until it is caught."""
    if self.stopped is None:
      self.stopped_s = time.monotonic()
      for one in _SIGNALS:
        signal.signal(one, signal.SIG_DFL)
      signal.setitimer(signal.ITIMER_REAL, _AGAIN_S, _AGAIN_S)
      self.stopped = _reason(number, self.time_budget_s)
    elif self.stopped.is_caught or sys.exception() is self.stopped:
      return  # It is already being raised.
    if _is_importing(frame):
      if time.monotonic() - self.stopped_s >= _LONGEST_IMPORT_S:
        status = self.stopped.exit_status or NOTHING_FOUND
        cli.end_now(self.stopped.reason, status)
      return
    raise self.stopped


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
  """Suppresses tracebacks of a dropped `Stopped`, which is raised again."""
  unraisable, uncaught = sys.unraisablehook, sys.excepthook

  def say_dropped(dropped: sys.UnraisableHookArgs) -> None:
    if not isinstance(dropped.exc_value, errors.Stopped):
      unraisable(dropped)

  # Extensions that are being imported print the exceptions that they convert.
  def print_uncaught(kind: Any, value: Any, trace: Any) -> None:
    if not isinstance(value, errors.Stopped):
      uncaught(kind, value, trace)

  # Libraries log the exceptions that they drop, as JAX does of its plugins'.
  def is_logged(record: logging.LogRecord) -> bool:
    _, value, _ = record.exc_info or (None, None, None)
    return not isinstance(value, errors.Stopped)

  sys.unraisablehook, sys.excepthook = say_dropped, print_uncaught
  handler = absl_logging.get_absl_handler().python_handler
  handler.addFilter(is_logged)
  try:
    yield
  finally:
    handler.removeFilter(is_logged)
    sys.unraisablehook, sys.excepthook = unraisable, uncaught


def pause_time_budget() -> Callable[[], None]:
  """Pauses stops by the time budget until the returned function is called.

  Time still counts: a budget that has run out by then stops at once.
  """
  left_s, _ = signal.setitimer(signal.ITIMER_REAL, 0)
  ends_s = time.monotonic() + left_s

  def go_on() -> None:
    if left_s:
      seconds = max(ends_s - time.monotonic(), _AT_ONCE_S)
      signal.setitimer(signal.ITIMER_REAL, seconds)

  return go_on


def end_time_budget() -> None:
  """Ends the time budget, because there is a result to write."""
  signal.setitimer(signal.ITIMER_REAL, 0)


def _is_importing(frame: types.FrameType | None) -> bool:
  """Whether a frame or one of its callers is inside an import."""
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
  """Ends the process now, because JAX's shutdown takes over a second."""
  output.flush()
  sys.stdout.flush()
  sys.stderr.flush()
  os._exit(exit_status)
