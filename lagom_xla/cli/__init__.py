# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""The command line: `lagom-xla COMMAND`. The commands are in commands/.

Imports take a while, and Ctrl-C may interrupt any of them. So this module,
which is imported first, imports almost nothing.
"""

from __future__ import annotations

import importlib
import os
import sys

# The built-in core of `signal`, which itself is slow to import.
_signal = importlib.import_module("_signal")
# Shells report this plus the signal's number if a signal ended the process.
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
  """Ends the process, with a line that says what stopped it."""
  try:
    # Not with `print`, which the signal may have interrupted.
    os.write(_STDERR, f"lagom-xla: stopped by {reason}.\n".encode())
  finally:
    os._exit(exit_status)


def _end_by_ctrl_c(number: int, _: object) -> None:
  end_now("Ctrl-C", SIGNALED + number)


def _end_quickly(exit_status: object) -> None:
  """Runs exit handlers and ends the process, without slow teardown.

  Returns if Python itself must end the process, to print `exit_status` or to
  wait for a thread.
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
  except (OSError, ValueError):  # Python reports it.
    return
  os._exit(exit_status or 0)
