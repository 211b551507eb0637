# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Shown schedules: what compiles to the end give on their way.

Whoever asks for such a schedule waits for the compile to the end to come to it,
in place of a compile of his own. It has no lock of its own: the pool's is held
around all calls.
"""

from __future__ import annotations

from concurrent import futures

from lagom_xla.compile.workers import job as job_lib

Future = futures.Future[job_lib.Result]


class ShownSchedules:
  """Schedules that compiles to the end are going to show."""

  def __init__(self):
    self._promised: dict[Future, tuple[job_lib.Job, Future]] = {}

  def promise(self, end: Future, job: job_lib.Job) -> Future:
    """A future of the job whose schedule a compile to the end shows."""
    promised: Future = futures.Future()
    self._promised[end] = job, promised
    return promised

  def is_promised(self, end: Future) -> bool:
    """Whether somebody may wait for a compile to the end to show one."""
    return end in self._promised

  def keep(self, end: Future, result: job_lib.Result) -> None:
    """Keeps a promise."""
    _, promised = self._promised.pop(end)
    if promised.set_running_or_notify_cancel():
      promised.set_result(result)

  def end(self, end: Future) -> job_lib.Job | None:
    """Breaks a promise that was not kept when a compile to the end is over.

    Returns:
      Its job.
    """
    job, promised = self._promised.pop(end, (None, None))
    if promised is None:
      return None
    if end.cancelled():
      promised.cancel()
    elif promised.set_running_or_notify_cancel():
      if (error := end.exception()) is None:  # It finished with no schedule.
        promised.set_result(job_lib.Result(module=None))
      else:
        promised.set_exception(error)
    return job
