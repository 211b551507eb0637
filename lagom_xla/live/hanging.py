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


@contextlib.contextmanager
def told(step: str, variant: str) -> Iterator[None]:
  """Logs which variant of a step it is that this takes so long for."""

  def tell() -> None:
    logging.error(
      "lagom_xla.tune, %s: %s has run for %g s, and may never end",
      *(step, variant, AFTER_S),
    )

  timer = threading.Timer(AFTER_S, tell)
  timer.daemon = True
  with contextlib.suppress(RuntimeError):  # There can be no more threads.
    timer.start()
  try:
    yield
  finally:
    timer.cancel()
