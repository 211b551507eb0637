# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Says what a process waits for where that does not come.

Nobody can end a kernel of a GPU that hangs but the end of its process. So who
looks at the log is told what it is.
"""

from __future__ import annotations

from collections.abc import Iterator
import contextlib
import threading

from absl import logging

# Longer than the first call of a step takes that sets up communicators.
AFTER_S = 120.0
# What a first call may take before somebody wonders.
FIRST_CALL_S = 20.0
OTHERS = "the other processes of the job to make theirs"


def told(step: str, variant: str) -> contextlib.AbstractContextManager[None]:
  """Logs which variant of a step it is that this takes so long for."""
  words = f"{variant} has been running for {AFTER_S:g} s and may hang"
  return _logged(logging.ERROR, AFTER_S, step, words)


def first_call(
  step: str, waits_for: str
) -> contextlib.AbstractContextManager[None]:
  """Logs what a step's first call waits for, where this takes long."""
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
  with contextlib.suppress(RuntimeError):  # There can be no more threads.
    timer.start()
  try:
    yield
  finally:
    timer.cancel()
