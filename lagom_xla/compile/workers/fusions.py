# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Fusions: which of the jobs that share one does it, and what came of it.

The first compiles from the beginning, and leads: it gives its fused module. The
next one sees whether that is sound, before it goes on from there, and leads
meanwhile; then the module is kept in the cache, and others go on from it
(`fused/after_fusion.py`). That there is none is kept as well. It has no lock of
its own: the pool's is held around all calls.
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
    self._unproven: dict[str, tuple[bytes, job_lib.Proof]] = {}

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
    if known is None and job.fusion not in self._unproven:
      self._leaders[job.fusion] = future
      return dataclasses.replace(job, leads=True)
    if job.must_begin:
      return job
    if known is not None:
      return dataclasses.replace(job, fused=known.module)
    self._leaders[job.fusion] = future
    fused, proof = self._unproven[job.fusion]
    return dataclasses.replace(job, fused=fused, proof=proof)

  def keep(self, job: job_lib.Job, result: job_lib.Result) -> None:
    """Keeps what a job gave for others: a fused module, or that it is sound."""
    if job.leads and result.fused is not None:
      proof = job_lib.Proof(request=job.request, content=result.content)
      self._unproven[job.fusion] = result.fused, proof
    elif job.leads:
      self._cache.put(job.fusion, job_lib.Result(module=None))
    elif job.proof is not None:
      fused = job.fused if result.is_sound else None
      self._cache.put(job.fusion, job_lib.Result(module=fused))
      self._unproven.pop(job.fusion, None)
