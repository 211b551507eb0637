# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""The pool: as many workers as cores, and the waiting jobs.

    with pool_lib.Pool() as pool:
      target = target.with_workers(pool)
      module = target.schedule()

A worker starts when a job finds all others busy, and lives until the pool is
closed. A thread starts it, passes it one job after another, and starts a new
one when it ends: the kernel kills a worker when the thread that started it
ends.

The pool's one lock guards its state; the classes below without a lock of their
own are called with it held.
"""

from __future__ import annotations

import atexit
from collections.abc import Callable
from concurrent import futures
import contextlib
import dataclasses
import os
import queue
import threading
import time

from lagom_xla import errors
from lagom_xla import processes
from lagom_xla.compile import cache as cache_lib
from lagom_xla.compile import job as job_lib
from lagom_xla.compile import worker as worker_lib

# A compile that takes this many times the longest so far hangs. Compiles to the
# end take about five times as long as those to the schedule.
_HANG_FACTOR = 30
_LEAST_HANG_S = 300.0
# For the first compiles; the largest public modules take minutes.
_FIRST_HANG_S = 3600.0
# A dropped compile may go on, as others may need its fusion, but not as long.
_DROPPED_FACTOR = 3
# Stopping a compile costs a new worker, which takes two seconds to start.
_WORTH_STOPPING_S = 10.0


class Patience:
  """How long compiles take, and when to stop waiting."""

  def __init__(self, hang_s: float | None, worth_stopping_s: float | None):
    """Starts with nothing known; for the arguments see `Pool`."""
    self._hang_s = hang_s
    self._worth_stopping_s = (
      _WORTH_STOPPING_S if worth_stopping_s is None else worth_stopping_s
    )
    self._longest_s: float | None = None

  def add(self, taken_s: float) -> None:
    """Notes the time of a finished compile."""
    self._longest_s = max(self._longest_s or 0.0, taken_s)

  @property
  def limit_s(self) -> float:
    """Time after which a compile counts as hanging."""
    if self._hang_s is not None:
      return self._hang_s
    if self._longest_s is None:
      return _FIRST_HANG_S
    return max(_HANG_FACTOR * self._longest_s, _LEAST_HANG_S)

  @property
  def limit_of_dropped_s(self) -> float:
    """Time after which a dropped compile is stopped."""
    longest_s = self._longest_s or 0.0
    return max(_DROPPED_FACTOR * longest_s, self._worth_stopping_s)

  @property
  def is_worth_stopping(self) -> bool:
    """Whether a dropped compile may still take long."""
    longest_s = self._longest_s
    return longest_s is None or longest_s >= self._worth_stopping_s


Future = futures.Future[job_lib.Result]


class Running:
  """The compiles that are running."""

  def __init__(self, lock: threading.RLock):
    self._lock = lock  # The pool's, for timers.
    self._worker_of: dict[Future, worker_lib.Worker] = {}
    self._abandoned: dict[Future, threading.Timer] = {}

  def __len__(self) -> int:
    return len(self._worker_of)

  def begin(self, future: Future, worker: worker_lib.Worker) -> None:
    """Notes that a worker started a compile."""
    self._worker_of[future] = worker

  def end(self, future: Future) -> None:
    """Notes that a compile ended, if it had begun."""
    self._worker_of.pop(future, None)
    timer = self._abandoned.pop(future, None)
    if timer is not None:
      timer.cancel()

  def abandon(self, future: Future, limit_s: float) -> None:
    """Stops a compile that was dropped after `limit_s`.

    Others may still be waiting for its fusion until then.
    """
    if future.done() or future in self._abandoned:
      return
    timer = threading.Timer(limit_s, self._stop, [future])
    timer.daemon = True
    self._abandoned[future] = timer
    timer.start()

  def stop_abandoned(self) -> None:
    """Stops one dropped compile, with its worker."""
    for future in self._abandoned.keys() & self._worker_of.keys():
      self._stop(future)
      return

  def _stop(self, future: Future) -> None:
    with self._lock:
      worker = self._worker_of.get(future)
      if worker is not None and future in self._abandoned:
        worker.stop()
        self.end(future)


class Fusions:
  """The fusions of a pool's jobs."""

  def __init__(self, cache: cache_lib.Cache):
    self._cache = cache
    self._leaders: dict[str, Future] = {}
    self._unused: dict[str, bytes] = {}

  def awaited(self, job: job_lib.Job) -> Future | None:
    """The job that this one must wait for, if any."""
    leader = self._leaders.get(job.fusion)
    if job.must_begin or leader is None or leader.done():
      return None
    return leader

  def assigned(self, job: job_lib.Job, future: Future) -> job_lib.Job:
    """The job with its part in its fusion, once `awaited` returns None."""
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
    """Keeps a job's fused module for others, or that there is none.

    A module is kept here until its first use.
    """
    if job.leads and result.fused is not None:
      self._unused[job.fusion] = result.fused
    elif job.leads:
      self._cache.put(job.fusion, job_lib.Result(module=None))


# How long `close` waits for a thread to notice that its worker is gone.
_LONGEST_JOIN_S = 5.0

# Runs a job in a worker (None if none can be started) and sets its future;
# returns the worker unless it has ended.
Run = Callable[
  [worker_lib.Worker | None, job_lib.Job, Future], worker_lib.Worker | None
]


class Staff:
  """Workers that take jobs off a queue."""

  def __init__(
    self,
    num_workers: int,
    run: Run,
    *,
    num_early: int,
    lock: threading.RLock,
    warn: Callable[[str], None],
  ):
    """Starts the first workers; see `Pool` for most arguments."""
    self.num_workers = num_workers
    self.obstacle = ""
    self.is_closed = False
    self._run = run
    self._lock = lock
    self._warn = warn
    self._path = processes.python_path()
    self._jobs: queue.SimpleQueue[tuple[job_lib.Job, Future] | None]
    self._jobs = queue.SimpleQueue()
    self._workers: set[worker_lib.Worker] = set()
    self._threads: list[threading.Thread] = []
    self._num_open = 0
    # Each needs a core to start, and this process one to lower a step.
    self._starting = threading.Semaphore(max(1, num_workers - 1))
    with lock:
      for _ in range(min(num_early, num_workers)):
        self._add_worker()

  @property
  def pids(self) -> tuple[int, ...]:
    """The current worker processes."""
    return tuple(worker.pid for worker in self._workers)

  def put(self, job: job_lib.Job, future: Future) -> bool:
    """Queues a job; returns whether it must wait. Called with the lock held."""
    self._jobs.put((job, future))
    self._num_open += 1
    if len(self._threads) < min(self._num_open, self.num_workers):
      self._add_worker()
    return self._num_open > self.num_workers

  def close(self) -> None:
    """Ends all workers at once."""
    with self._lock:
      self.is_closed = True
      for _ in self._threads:
        self._jobs.put(None)
      for worker in self._workers:
        worker.stop()
    for thread in self._threads:
      thread.join(_LONGEST_JOIN_S)

  def end(self, worker: worker_lib.Worker | None) -> None:
    """Ends a worker."""
    with self._lock:
      if worker is not None:
        self._workers.discard(worker)
        worker.close()

  def _add_worker(self) -> None:
    thread = threading.Thread(target=self._serve, daemon=True)
    self._threads.append(thread)
    thread.start()

  def _serve(self) -> None:
    """In a thread: runs one worker after another until `close`."""
    worker: worker_lib.Worker | None = None
    try:
      while True:
        if worker is None and not self.obstacle:
          worker = self._start()
        task = self._jobs.get()
        if task is None:
          return
        worker = self._run(worker, *task)
        if worker is not None and worker.has_ended:
          # It was stopped as abandoned just when it answered.
          self.end(worker)
          worker = None
        with self._lock:
          self._num_open -= 1
    finally:
      self.end(worker)

  def _start(self) -> worker_lib.Worker | None:
    """A worker that is ready, so that no job waits for it to start."""
    worker = None
    try:
      with self._starting:
        with self._lock:
          if self.is_closed:
            return None
          worker = worker_lib.Worker(self._path)
          self._workers.add(worker)
        worker.await_start()
    except errors.WorkerError as error:
      self.end(worker)
      self._give_up(error)
      return None
    return worker

  def _give_up(self, error: errors.WorkerError) -> None:
    with self._lock:
      if not self.obstacle and not self.is_closed:
        self.obstacle = str(error)
        self._warn(
          "cannot compile in other processes, so this one does: an abort in XLA"
          f" ends it, and Ctrl-C waits for the compile. {error}"
        )


_CLOSED = "The pool is closed."


def num_cores() -> int:
  """The cores that this process may use; all if that is unknown."""
  if hasattr(os, "sched_getaffinity"):
    return len(os.sched_getaffinity(0))
  return os.cpu_count() or 1


class Pool:
  """Compiles jobs in worker processes."""

  def __init__(
    self,
    num_workers: int | None = None,
    *,
    cache: cache_lib.Cache | None = None,
    warn: Callable[[str], None] = lambda _: None,
    generates_code: bool = False,
    num_early: int = 1,
    hang_s: float | None = None,
    worth_stopping_s: float | None = None,
  ):
    """Starts the first workers in the background.

    Args:
      num_workers: maximum number; None for one per core.
      cache: of earlier compiles; None for a temporary one.
      warn: called once with the reason if there can be no workers.
      generates_code: whether compiles to the end generate code, to see that
        they can; it takes most of their time.
      num_early: workers to start before there are jobs.
      hang_s: time after which a compile counts as hanging; None to derive it
        from earlier compiles.
      worth_stopping_s: stop dropped compiles if the longest took as long; None
        for the usual time.
    """
    self.generates_code = generates_code
    self._owned = contextlib.ExitStack()
    if cache is None:
      folder = self._owned.enter_context(processes.temporary_folder())
      cache = cache_lib.Cache(folder)
    self._patience = Patience(hang_s, worth_stopping_s)
    self._lock = threading.RLock()
    self._cache = cache
    self._awaited: dict[str, Future] = {}
    self._running = Running(self._lock)
    self._fusions = Fusions(cache)
    self._staff = Staff(
      num_workers or num_cores(),
      self._run,
      num_early=num_early,
      lock=self._lock,
      warn=warn,
    )
    atexit.register(self.close)

  def __enter__(self) -> Pool:
    return self

  def __exit__(self, *_: object) -> None:
    self.close()

  @property
  def is_usable(self) -> bool:
    """Whether workers can be started."""
    return not self._staff.obstacle

  @property
  def max_workers(self) -> int:
    """Maximum number of workers."""
    return self._staff.num_workers

  @property
  def worker_pids(self) -> tuple[int, ...]:
    """The current worker processes."""
    with self._lock:
      return self._staff.pids

  @property
  def num_at_work(self) -> int:
    """Number of running compiles."""
    with self._lock:
      return len(self._running)

  def submit(self, job: job_lib.Job) -> Future:
    """Compiles a job, or finds it in the cache.

    The future raises what `worker.Worker.run` does. A job that is already
    pending is not compiled twice.
    """
    with self._lock:
      known = self._at_hand(job)
      if known is not None:
        return known
      future: Future = futures.Future()
      if obstacle := self._obstacle:
        future.set_exception(errors.WorkerError(obstacle))
        return future
      self._awaited[job.digests[0]] = future
      # With code its schedule would come late.
      if job.gives_schedule and not job.needs_code:
        self._promise(job.to_schedule, future)
    self._begin(job, future)
    return future

  @property
  def _obstacle(self) -> str:
    """Why nothing can be compiled, or ""."""
    return self._staff.obstacle or (_CLOSED if self._staff.is_closed else "")

  def _at_hand(self, job: job_lib.Job) -> Future | None:
    """A job's result, if it is cached or pending."""
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

  def _promise(self, job: job_lib.Job, end: Future) -> None:
    """Makes requests for a schedule wait for the compile to the end."""
    if self._at_hand(job) is not None:
      return
    promised: Future = futures.Future()
    self._awaited[job.digests[0]] = promised

    def give(end: Future) -> None:
      if end.cancelled():
        self.drop(job)
        return
      error = end.exception()
      result = None if error else end.result()
      if isinstance(error, worker_lib.RefusedError) or (
        result is not None and result.schedule is None
      ):
        self._begin(job, promised)  # It may still have a schedule.
      elif promised.set_running_or_notify_cancel():
        if result is None:
          promised.set_exception(error)
        else:
          promised.set_result(_scheduled(result))

    end.add_done_callback(give)

  def _begin(self, job: job_lib.Job, future: Future) -> None:
    """Queues a job, after the one that leads its fusion."""
    with self._lock:
      leader = self._fusions.awaited(job)
      if leader is None and not future.cancelled():
        must_wait = self._staff.put(self._fusions.assigned(job, future), future)
        if must_wait and self._patience.is_worth_stopping:
          self._running.stop_abandoned()
    if leader is not None:
      leader.add_done_callback(lambda _: self._begin(job, future))

  def forget(self, job: job_lib.Job) -> Future | None:
    """Forgets a job's pending result, after it was received.

    Its own is forgotten before a substitute.
    """
    with self._lock:
      for digest in job.digests:
        future = self._awaited.pop(digest, None)
        if future is not None:
          return future
    return None

  def drop(self, job: job_lib.Job) -> None:
    """Cancels a job.

    If it has begun, and takes long, it is stopped when another job waits for a
    worker, or after its time limit.
    """
    with self._lock:
      future = self.forget(job)
      if future is not None and not future.cancel():
        self._running.abandon(future, self._patience.limit_of_dropped_s)

  def close(self) -> None:
    """Ends all workers at once; pending jobs are never compiled."""
    atexit.unregister(self.close)
    self._staff.close()
    self._owned.close()

  def _run(
    self, worker: worker_lib.Worker | None, job: job_lib.Job, future: Future
  ) -> worker_lib.Worker | None:
    """Runs a job unless it was cancelled; see `Run`."""
    if not future.set_running_or_notify_cancel():
      return worker
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
        self._staff.end(worker)
        worker = None
      future.set_exception(error)
      return worker
    finally:
      with self._lock:
        self._running.end(future)
    with self._lock:
      self._patience.add(time.monotonic() - started_s)
      # Before the result is set, so that it is never compiled again.
      self._fusions.keep(job, result)
    if result.module is not None:
      self._keep(job, result)
    if result.schedule is not None:
      self._keep(job.to_schedule, _scheduled(result))
    future.set_result(result)
    return worker

  def _keep(self, job: job_lib.Job, result: job_lib.Result) -> None:
    """Saves a result for later requests."""
    digest = job.digests[0 if result.is_from_fused else -1]
    self._cache.put(digest, result)


def _scheduled(result: job_lib.Result) -> job_lib.Result:
  """The schedule in the result of a compile to the end."""
  return job_lib.Result(
    module=result.schedule, is_from_fused=result.is_from_fused
  )
