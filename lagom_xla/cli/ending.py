# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""The end by Ctrl-C while there is nothing to lose: at once, in one line.

It is imported before anything else, so it imports next to nothing.
"""

from __future__ import annotations

import os
import signal

# What shells report of a process that a signal ended is that and its number.
SIGNALED = 128
_STDERR = 2
_SAID = b"lagom-xla: stopped by Ctrl-C.\n"


def at_once() -> None:
  """Has Ctrl-C end the process from now on."""
  signal.signal(signal.SIGINT, _end)


def _end(number: int, _: object) -> None:
  try:
    # Not by `print`, which may be at work below the signal.
    os.write(_STDERR, _SAID)
  finally:
    os._exit(SIGNALED + number)
