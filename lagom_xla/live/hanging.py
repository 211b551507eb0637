# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Log messages about long waits.

A hanging GPU kernel ends only with its process, so the log names it early.
"""

from __future__ import annotations

from collections.abc import Iterator
import contextlib
import threading

from absl import logging

# Longer than a first call that sets up communicators, in seconds.
AFTER_S = 120.0
# Wait in a first call before a message, in seconds.
FIRST_CALL_S = 20.0
OTHERS = "the other processes of the job to make theirs"


def told(step: str, variant: str) -> contextlib.AbstractContextManager[None]:
  """A context that logs the running variant if it takes too long."""
  words = f"{variant} has been running for {AFTER_S:g} s and may hang"
  return _logged(logging.ERROR, AFTER_S, step, words)


def first_call(
  step: str, waits_for: str
) -> contextlib.AbstractContextManager[None]:
  """A context that logs what a step's first call waits for, if it is long."""
  words = f"the first call is waiting for {waits_for}"
  return _logged(logging.WARNING, FIRST_CALL_S, step, words)


@contextlib.contextmanager
def _logged(
  level: int, after_s: float, step: str, words: str
) -> Iterator[None]:
  timer = threading.Timer(
    after_s, logging.log, (level, "lagom_xla.tune, %s: %s", step, words)
  )
  timer.daemon = True
  with contextlib.suppress(RuntimeError):  # No more threads can start.
    timer.start()
  try:
    yield
  finally:
    timer.cancel()
