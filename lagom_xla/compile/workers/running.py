# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Running compiles: which worker each is in, and whether anybody waits for it.

It has no lock of its own: the pool's is held around all calls.
"""

from __future__ import annotations

from concurrent import futures
import threading

from lagom_xla.compile.workers import job as job_lib
from lagom_xla.compile.workers import worker as worker_lib

Future = futures.Future[job_lib.Result]


class Running:
  """The compiles that go on now."""

  def __init__(self, lock: threading.RLock):
    """Starts with none.

    Args:
      lock: the pool's, for what happens by itself.
    """
    self._lock = lock
    self._worker_of: dict[Future, worker_lib.Worker] = {}
    self._abandoned: dict[Future, threading.Timer] = {}

  def __len__(self) -> int:
    return len(self._worker_of)

  def begin(self, future: Future, worker: worker_lib.Worker) -> None:
    """A worker compiles from now on."""
    self._worker_of[future] = worker

  def end(self, future: Future) -> None:
    """A compile has come to its end, if it had begun."""
    self._worker_of.pop(future, None)
    timer = self._abandoned.pop(future, None)
    if timer is not None:
      timer.cancel()

  def abandon(self, future: Future, limit_s: float) -> None:
    """Nobody waits for a compile any more, but others may for what it leads.

    Args:
      future: of the compile.
      limit_s: if it takes that much longer it hangs, and is ended.
    """
    if future.done() or future in self._abandoned:
      return
    timer = threading.Timer(limit_s, self._stop, [future])
    timer.daemon = True
    self._abandoned[future] = timer
    timer.start()

  def stop_abandoned(self) -> None:
    """Ends one compile that nobody waits for, with its worker."""
    for future in self._abandoned.keys() & self._worker_of.keys():
      self._stop(future)
      return

  def _stop(self, future: Future) -> None:
    with self._lock:
      worker = self._worker_of.get(future)
      if worker is not None and future in self._abandoned:
        worker.stop()
        self.end(future)
