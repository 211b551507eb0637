# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Stops: Ctrl-C, SIGTERM and a time budget, raised where the command is.

The first one is raised as `errors.Stopped`, so that what was found so far can
be written; the next one ends the process at once, as signals do by themselves.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
import contextlib
import re
import signal
from typing import NoReturn

from lagom_xla import errors

_UNITS_S = {"": 1, "s": 1, "m": 60, "h": 3600}
# What shells report of a process that such a signal ended.
_SIGNALED = 128
_SIGNALS = (signal.SIGINT, signal.SIGTERM)


def add_time_budget(command: argparse.ArgumentParser) -> None:
  """Adds --time-budget."""
  command.add_argument(
    "--time-budget",
    type=_seconds,
    metavar="TIME",
    help="keep the best that is found in this time, such as 120s, 5m or 1h;"
    " Ctrl-C and SIGTERM keep it, too",
  )


@contextlib.contextmanager
def raised(time_budget_s: float | None = None) -> Iterator[None]:
  """Raises `errors.Stopped` inside, at the first reason to stop.

  Args:
    time_budget_s: from now on; None for all the time that it takes.
  """

  def stop(number: int, _: object) -> NoReturn:
    signal.setitimer(signal.ITIMER_REAL, 0)
    for one in _SIGNALS:
      signal.signal(one, signal.SIG_DFL)
    if number == signal.SIGALRM:
      assert time_budget_s is not None
      raise errors.Stopped(f"the time budget of {time_budget_s:g} s", 0)
    name = "Ctrl-C" if number == signal.SIGINT else "SIGTERM"
    raise errors.Stopped(name, _SIGNALED + number)

  before = {one: signal.signal(one, stop) for one in _SIGNALS}
  before[signal.SIGALRM] = signal.signal(signal.SIGALRM, stop)
  signal.setitimer(signal.ITIMER_REAL, time_budget_s or 0)
  try:
    yield
  finally:
    signal.setitimer(signal.ITIMER_REAL, 0)
    for one, handler in before.items():
      signal.signal(one, handler)


def _seconds(text: str) -> float:
  found = re.fullmatch(r"(\d+(?:\.\d+)?)([smh]?)", text)
  if found is None or float(found[1]) == 0:
    raise argparse.ArgumentTypeError(
      f"{text!r} is no time such as 120s, 5m or 1h"
    )
  return float(found[1]) * _UNITS_S[found[2]]
