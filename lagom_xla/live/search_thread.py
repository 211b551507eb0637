# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Search for proposals in a thread, while the step trains."""

from __future__ import annotations

import queue
import threading
import weakref

from lagom_xla.live import ending
from lagom_xla.live import proposals
from lagom_xla.live.history import memory as memory_lib

_Found = queue.Queue[proposals.Proposal | Exception]


class Search:
  """One search for proposals, at most one ahead of who takes them.

  It ends when nobody has this object any more, too.
  """

  def __init__(self, memory: memory_lib.Memory, measured: proposals.Measured):
    stop = threading.Event()
    found: _Found = queue.Queue(1)
    self._found = found
    # The thread does not know this object, or it would never be let go of.
    self.stop = weakref.finalize(self, stop.set)
    ending.start(
      "lagom_xla search", lambda: _run(memory, measured, found, stop), stop
    )

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


def _run(
  memory: memory_lib.Memory,
  measured: proposals.Measured,
  found: _Found,
  stop: threading.Event,
) -> None:
  made = memory.proposals(measured, stop)
  try:
    while not stop.is_set():
      _put(next(made), found, stop)
  except Exception as error:  # Whatever it is, the loop has to hear of it.
    _put(error, found, stop)


def _put(
  one: proposals.Proposal | Exception, found: _Found, stop: threading.Event
) -> None:
  while not stop.is_set():
    try:
      found.put(one, timeout=0.2)
      return
    except queue.Full:
      continue
