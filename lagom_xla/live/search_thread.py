# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Search for proposals in a thread, while the step trains."""

from __future__ import annotations

import queue
import threading

from lagom_xla.live import ending
from lagom_xla.live import proposals
from lagom_xla.live.history import memory as memory_lib


class Search:
  """One search for proposals, at most one ahead of who takes them."""

  def __init__(self, memory: memory_lib.Memory, measured: proposals.Measured):
    self._stop = threading.Event()
    self._found: queue.Queue[proposals.Proposal | Exception] = queue.Queue(1)
    self._memory = memory
    self._measured = measured
    ending.start("lagom_xla search", self._run, self._stop)

  def found(self) -> proposals.Proposal | None:
    """The next proposal; None where there is none yet.

    Raises:
      StopIteration: There will be no more; its value, if any, says why.
      Exception: Whatever the proposer raised.
    """
    try:
      found = self._found.get_nowait()
    except queue.Empty:
      return None
    if isinstance(found, Exception):
      raise found
    return found

  def stop(self) -> None:
    """Nobody waits for more."""
    self._stop.set()

  def _run(self) -> None:
    found = self._memory.proposals(self._measured, self._stop)
    try:
      while not self._stop.is_set():
        self._put(next(found))
    except Exception as error:  # Whatever it is, the loop has to hear of it.
      self._put(error)

  def _put(self, found: proposals.Proposal | Exception) -> None:
    while not self._stop.is_set():
      try:
        self._found.put(found, timeout=0.2)
        return
      except queue.Full:
        continue
