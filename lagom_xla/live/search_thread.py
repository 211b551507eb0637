# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Search for proposals in a thread, while the step trains."""

from __future__ import annotations

import queue
import threading

import jax

from lagom_xla.live import ending
from lagom_xla.live import proposals


class Search:
  """One run of a proposer, at most one proposal ahead."""

  def __init__(
    self,
    proposer: proposals.Proposer,
    lowered: jax.stages.Lowered,
    measured: proposals.Measured,
  ):
    self._stop = threading.Event()
    self._found: queue.Queue[proposals.Proposal | Exception] = queue.Queue(1)
    self._proposer = proposer
    self._lowered = lowered
    self._measured = measured
    ending.start("lagom_xla search", self._run, self._stop)

  def found(self) -> proposals.Proposal | None:
    """The next proposal; None where there is none yet.

    Raises:
      StopIteration: There will be no more.
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
    try:
      for proposal in self._proposer.proposals(
        self._lowered, self._measured, self._stop
      ):
        self._put(proposal)
        if self._stop.is_set():
          return
      self._put(StopIteration())
    except Exception as error:  # Whatever it is, the loop has to hear of it.
      self._put(error)

  def _put(self, found: proposals.Proposal | Exception) -> None:
    while not self._stop.is_set():
      try:
        self._found.put(found, timeout=0.2)
        return
      except queue.Full:
        continue
