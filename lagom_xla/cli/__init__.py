# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""The command line: `lagom-xla COMMAND`, a module of commands/ for each.

Imports take a while, and Ctrl-C may come in any of them. So this module, which
is imported before all others, imports next to nothing.
"""

from __future__ import annotations

import importlib
import os
import sys

# What `signal` is made of, built in: that takes longer to import than all else.
_signal = importlib.import_module("_signal")
# What shells report of a process that a signal ended is that and its number.
SIGNALED = 128
_STDERR = 2


def run() -> None:
  """The console script."""
  _signal.signal(_signal.SIGINT, _end_by_ctrl_c)
  from lagom_xla.cli import main

  try:
    main.run()
  except SystemExit as end:
    _end_quickly(end.code)
    raise


def end_now(reason: str, exit_status: int) -> None:
  """Ends the process, with a line that says who stopped it."""
  try:
    # Not by `print`, which may be at work below the signal.
    os.write(_STDERR, f"lagom-xla: stopped by {reason}.\n".encode())
  finally:
    os._exit(exit_status)


def _end_by_ctrl_c(number: int, _: object) -> None:
  end_now("Ctrl-C", SIGNALED + number)


def _end_quickly(exit_status: object) -> None:
  """Ends the process but for what Python takes down: half a second of it.

  What was registered for the end is done. Returns where Python has to end the
  process: it says what `exit_status` is, or waits for a thread.
  """
  import atexit
  import threading

  mine = threading.current_thread()
  others = [t for t in threading.enumerate() if t is not mine and not t.daemon]
  if others or not isinstance(exit_status, int | None):
    return
  atexit._run_exitfuncs()
  try:
    for stream in (sys.stdout, sys.stderr):
      if stream is not None:
        stream.flush()
  except (OSError, ValueError):  # Python says that it could not be written.
    return
  os._exit(exit_status or 0)
