# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Fusions: which of the jobs that share one does it, and what came of it.

The first compiles from the beginning, and leads: its fused module is kept in
the cache, and others go on from there (`fused/after_fusion.py`). That there is
none is kept as well. It has no lock of its own: the pool's is held around all
calls.
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
    known = self._cache.get(job.fusion)
    if known is None:
      self._leaders[job.fusion] = future
      return dataclasses.replace(job, leads=True)
    if job.must_begin:
      return job
    return dataclasses.replace(job, fused=known.module)

  def keep(self, job: job_lib.Job, result: job_lib.Result) -> None:
    """Keeps what a job gave, if it led."""
    if job.leads:
      self._cache.put(job.fusion, job_lib.Result(module=result.fused))
