# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Fusions: which of the jobs that share one does it, and what came of it.

The first compiles from the beginning, and leads: it gives its fused module,
where others may go on from that (`fused/after_fusion.py`). The next one has it
kept in the cache. That there is none is kept as well. It has no lock of its
own: the pool's is held around all calls.
"""

from __future__ import annotations

import dataclasses

from lagom_xla.compile.workers import cache as cache_lib
from lagom_xla.compile.workers import job as job_lib
from lagom_xla.compile.workers import running as running_lib


class Fusions:
  """The fusions of a pool's jobs."""

  def __init__(self, cache: cache_lib.Cache):
    self._cache = cache
    self._leaders: dict[str, running_lib.Future] = {}
    self._unused: dict[str, bytes] = {}

  def awaited(self, job: job_lib.Job) -> running_lib.Future | None:
    """The job that this one has to wait for, if it has to."""
    leader = self._leaders.get(job.fusion)
    if job.must_begin or leader is None or leader.done():
      return None
    return leader

  def assigned(
    self, job: job_lib.Job, future: running_lib.Future
  ) -> job_lib.Job:
    """The job with its part in its fusion; `awaited` says that it may begin."""
    leader = self._leaders.get(job.fusion)
    if not job.fusion or (leader is not None and not leader.done()):
      return job
    is_unused = job.fusion in self._unused
    known = None if is_unused else self._cache.get(job.fusion)
    if known is None and not is_unused:
      self._leaders[job.fusion] = future
      return dataclasses.replace(job, leads=True)
    if job.must_begin:
      return job
    if known is None:
      known = job_lib.Result(module=self._unused.pop(job.fusion))
      self._cache.put(job.fusion, known)
    return dataclasses.replace(job, fused=known.module)

  def keep(self, job: job_lib.Job, result: job_lib.Result) -> None:
    """Keeps what a job gave for others: a fused module, or that there is none.

    A module is kept here until somebody goes on from it.
    """
    if job.leads and result.fused is not None:
      self._unused[job.fusion] = result.fused
    elif job.leads:
      self._cache.put(job.fusion, job_lib.Result(module=None))
