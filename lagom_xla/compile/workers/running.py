# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Running compiles: which worker each is in, and whether anybody waits for it.

It has no lock of its own: the pool's is held around all calls.
"""

from __future__ import annotations

from concurrent import futures

from lagom_xla.compile.workers import job as job_lib
from lagom_xla.compile.workers import worker as worker_lib

Future = futures.Future[job_lib.Result]


class Running:
  """The compiles that go on now."""

  def __init__(self):
    self._worker_of: dict[Future, worker_lib.Worker] = {}
    self._abandoned: set[Future] = set()

  def __len__(self) -> int:
    return len(self._worker_of)

  def begin(self, future: Future, worker: worker_lib.Worker) -> None:
    """A worker compiles from now on."""
    self._worker_of[future] = worker

  def end(self, future: Future) -> None:
    """A compile has come to its end, if it had begun."""
    self._worker_of.pop(future, None)
    self._abandoned.discard(future)

  def abandon(self, future: Future) -> None:
    """Nobody waits for a compile any more."""
    if not future.done():
      self._abandoned.add(future)

  def stop_abandoned(self) -> None:
    """Ends one compile that nobody waits for, with its worker."""
    for future in self._abandoned & self._worker_of.keys():
      self._worker_of[future].stop()
      self.end(future)
      return
