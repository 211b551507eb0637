# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""The end by a stop while there is nothing to lose: at once, in one line.

It is imported before anything else, so it imports next to nothing.
"""

from __future__ import annotations

import importlib
import os

# What `signal` is made of, built in: that takes longer to import than all else.
_signal = importlib.import_module("_signal")
# What shells report of a process that a signal ended is that and its number.
SIGNALED = 128
_STDERR = 2


def at_once() -> None:
  """Has Ctrl-C end the process from now on."""
  _signal.signal(_signal.SIGINT, _end)


def now(reason: str, exit_status: int) -> None:
  """Ends the process, with a line that says who stopped it."""
  try:
    # Not by `print`, which may be at work below the signal.
    os.write(_STDERR, f"lagom-xla: stopped by {reason}.\n".encode())
  finally:
    os._exit(exit_status)


def _end(number: int, _: object) -> None:
  now("Ctrl-C", SIGNALED + number)
