# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Interruption of a program by Ctrl-C, which is to end it at once.

A thread that comes out of XLA while Python ends aborts the process, and it may
be long in there. So a program that Ctrl-C ends does not wait for it, and goes
by the signal, as Python itself has it go, before the thread can come out.
"""

from __future__ import annotations

import atexit
import os
import signal
import sys

# How long threads are waited for after Ctrl-C, in seconds.
LONGEST_S = 0.5


def is_ending() -> bool:
  """Whether this program ends because nobody caught a KeyboardInterrupt."""
  is_interactive = hasattr(sys, "ps1")  # What was raised there was caught.
  return not is_interactive and _latest_error() is KeyboardInterrupt


def end() -> None:
  """Calls what else is to be called at the end, and ends."""
  atexit._run_exitfuncs()
  for stream in (sys.stdout, sys.stderr):
    if stream is not None:
      stream.flush()
  signal.signal(signal.SIGINT, signal.SIG_DFL)
  os.kill(os.getpid(), signal.SIGINT)


def _latest_error() -> object:
  """The type of what ended the program; None if nothing did."""
  return getattr(sys, "last_type", None)
