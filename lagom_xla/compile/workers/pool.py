# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""The pool: as many workers as there are cores, and the jobs that wait.

    with pool_lib.Pool() as pool:
      target = target.with_workers(pool)
      module = target.schedule()

A worker is started when a job finds all others at work, and lives until the
pool is closed. A thread serves each and starts it: the kernel ends a worker
with the thread that it came from.
"""

from __future__ import annotations

import atexit
from collections.abc import Callable
from concurrent import futures
import contextlib
import os
import queue
import sys
import threading
import time

from lagom_xla import errors
from lagom_xla.compile.workers import cache as cache_lib
from lagom_xla.compile.workers import fusions as fusions_lib
from lagom_xla.compile.workers import job as job_lib
from lagom_xla.compile.workers import patience as patience_lib
from lagom_xla.compile.workers import running as running_lib
from lagom_xla.compile.workers import worker as worker_lib

# How long `close` waits for a thread to see that its worker is gone.
_LONGEST_JOIN_S = 5.0

_CLOSED = "The pool is closed."

Future = running_lib.Future


def num_cores() -> int:
  """The cores that this process may run on."""
  return len(os.sched_getaffinity(0))


class Pool:
  """Compiles jobs in processes of their own."""

  def __init__(
    self,
    num_workers: int | None = None,
    *,
    cache: cache_lib.Cache | None = None,
    warn: Callable[[str], None] = lambda _: None,
    hang_s: float | None = None,
    worth_stopping_s: float | None = None,
  ):
    """Starts the first worker, which takes its time beside this process.

    Args:
      num_workers: at most; None for one per core.
      cache: of what was compiled before; None for what this pool compiles.
      warn: told, once, why there are no workers after all.
      hang_s: a compile that takes longer hangs; None to go by the others.
      worth_stopping_s: one that was dropped is stopped if the longest so far
        took as long; None for the usual time.
    """
    self._max_workers = num_workers or num_cores()
    self._owned = contextlib.ExitStack()
    self._cache = cache or self._owned.enter_context(cache_lib.temporary())
    self._warn = warn
    self._patience = patience_lib.Patience(hang_s, worth_stopping_s)
    self._path = os.pathsep.join(filter(None, sys.path))
    self._lock = threading.RLock()
    self._jobs: queue.SimpleQueue[tuple[job_lib.Job, Future] | None]
    self._jobs = queue.SimpleQueue()
    self._at_hand: dict[str, Future] = {}
    self._workers: set[worker_lib.Worker] = set()
    self._running = running_lib.Running()
    self._fusions = fusions_lib.Fusions(self._cache)
    self._threads: list[threading.Thread] = []
    self._num_open = 0
    self._is_closed = False
    self._obstacle = ""
    atexit.register(self.close)
    with self._lock:
      self._add_worker()

  def __enter__(self) -> Pool:
    return self

  def __exit__(self, *_: object) -> None:
    self.close()

  @property
  def is_usable(self) -> bool:
    """Whether workers can be had."""
    return not self._obstacle

  @property
  def max_workers(self) -> int:
    """Workers that there are at most."""
    return self._max_workers

  @property
  def worker_pids(self) -> tuple[int, ...]:
    """The processes that there are now."""
    with self._lock:
      return tuple(worker.pid for worker in self._workers)

  @property
  def num_at_work(self) -> int:
    """Compiles that go on now."""
    with self._lock:
      return len(self._running)

  def submit(self, job: job_lib.Job) -> Future:
    """Compiles a job, or finds what was compiled before.

    The future raises what `worker.Worker.run` does. A job that is waited for
    already is not compiled twice.
    """
    with self._lock:
      known = self._at_hand.get(job.digest)
      if known is not None and not known.cancelled():
        return known
      future: Future = futures.Future()
      cached = self._cache.get(job.digest)
      if cached is not None:
        future.set_result(cached)
        return future
      if self._is_closed or self._obstacle:
        future.set_exception(errors.WorkerError(self._obstacle or _CLOSED))
        return future
      self._at_hand[job.digest] = future
    self._begin(job, future)
    return future

  def _begin(self, job: job_lib.Job, future: Future) -> None:
    """Queues a job, once the one that leads its fusion is done."""
    with self._lock:
      leader = self._fusions.awaited(job)
      if leader is None and not future.cancelled():
        self._put(self._fusions.assigned(job, future), future)
    if leader is not None:
      leader.add_done_callback(lambda _: self._begin(job, future))

  def _put(self, job: job_lib.Job, future: Future) -> None:
    """Queues a job for the next worker; the lock is held."""
    self._jobs.put((job, future))
    self._num_open += 1
    must_wait = self._num_open > self._max_workers
    if must_wait and self._patience.is_worth_stopping:
      self._running.stop_abandoned()
    if len(self._threads) < min(self._num_open, self._max_workers):
      self._add_worker()

  def forget(self, job: job_lib.Job) -> None:
    """Lets go of a job's result, as whoever asked for it has it."""
    with self._lock:
      self._at_hand.pop(job.digest, None)

  def drop(self, job: job_lib.Job) -> None:
    """Keeps a job from being compiled.

    If that has begun, and takes long, it ends when another job waits for it.
    """
    with self._lock:
      future = self._at_hand.pop(job.digest, None)
      if future is not None and not future.cancel():
        self._running.abandon(future)

  def close(self) -> None:
    """Ends all workers at once; what is not compiled never will be."""
    atexit.unregister(self.close)
    with self._lock:
      self._is_closed = True
      for _ in self._threads:
        self._jobs.put(None)
      for worker in self._workers:
        worker.stop()
    for thread in self._threads:
      thread.join(_LONGEST_JOIN_S)
    self._owned.close()

  def _add_worker(self) -> None:
    thread = threading.Thread(target=self._serve, daemon=True)
    self._threads.append(thread)
    thread.start()

  def _serve(self) -> None:
    """In a thread: one worker, and another when it ends, until `close`."""
    worker: worker_lib.Worker | None = None
    try:
      while True:
        if worker is None and not self._obstacle:
          worker = self._start()
        task = self._jobs.get()
        if task is None:
          return
        job, future = task
        if future.set_running_or_notify_cancel():
          worker = self._run(worker, job, future)
        else:
          self.forget(job)
        with self._lock:
          self._num_open -= 1
    finally:
      self._end(worker)

  def _start(self) -> worker_lib.Worker | None:
    """A worker that is ready, so that no job waits for one that is not."""
    worker = None
    try:
      with self._lock:
        if self._is_closed:
          return None
        worker = worker_lib.Worker(self._path)
        self._workers.add(worker)
      worker.await_start()
    except errors.WorkerError as error:
      self._end(worker)
      self._give_up(error)
      return None
    return worker

  def _run(
    self, worker: worker_lib.Worker | None, job: job_lib.Job, future: Future
  ) -> worker_lib.Worker | None:
    """Runs a job; returns the worker unless it has ended."""
    started_s = time.monotonic()
    try:
      if worker is None:
        raise errors.WorkerError(self._obstacle or _CLOSED)
      with self._lock:
        self._running.begin(future, worker)
        limit_s = self._patience.limit_s
      result = worker.run(job, limit_s)
    except Exception as error:
      if isinstance(error, errors.CompileAbortedError):
        self._end(worker)
        worker = None
      future.set_exception(error)
      return worker
    finally:
      with self._lock:
        self._running.end(future)
    with self._lock:
      self._patience.add(time.monotonic() - started_s)
      # First, so that whoever has the result never compiles it again.
      self._fusions.keep(job, result)
    if result.module is not None:
      self._cache.put(job.digest, result)
    future.set_result(result)
    return worker

  def _give_up(self, error: errors.WorkerError) -> None:
    with self._lock:
      if not self._obstacle and not self._is_closed:
        self._obstacle = str(error)
        self._warn(
          "compiles in this process, as no other one can: an abort in XLA ends"
          f" it, and Ctrl-C waits. {error}"
        )

  def _end(self, worker: worker_lib.Worker | None) -> None:
    with self._lock:
      if worker is not None:
        self._workers.discard(worker)
        worker.close()
