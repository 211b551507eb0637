# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""What is at hand: compiles that somebody waits for, and those of before.

A job finds what was made under any of its digests; what it waits for itself is
under the first (`job.Job.digests`). It has no lock of its own: the pool's is
held around all calls but `keep`.
"""

from __future__ import annotations

from concurrent import futures

from lagom_xla.compile.workers import cache as cache_lib
from lagom_xla.compile.workers import job as job_lib

Future = futures.Future[job_lib.Result]


class AtHand:
  """The compiles of a pool, by digest."""

  def __init__(self, cache: cache_lib.Cache):
    self._cache = cache
    self._awaited: dict[str, Future] = {}

  def find(self, job: job_lib.Job) -> Future | None:
    """What a job asks for, if it is compiled or will be."""
    for digest in job.digests:
      future = self._awaited.get(digest)
      if future is not None and not future.cancelled():
        return future
      cached = self._cache.get(digest)
      if cached is not None:
        future = futures.Future()
        future.set_result(cached)
        return future
    return None

  def add(self, job: job_lib.Job, future: Future) -> None:
    """Has whoever asks for the same wait for this."""
    self._awaited[job.digests[0]] = future

  def pop(self, job: job_lib.Job) -> Future | None:
    """Lets go of a job; its own before what it found in its place."""
    for digest in job.digests:
      future = self._awaited.pop(digest, None)
      if future is not None:
        return future
    return None

  def keep(self, job: job_lib.Job, result: job_lib.Result) -> None:
    """Keeps a result for who asks for the same later."""
    digest = job.digests[0 if result.is_from_fused else -1]
    self._cache.put(digest, result)
