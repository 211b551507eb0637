# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Staff: the workers of a pool, and the threads that serve them.

A thread starts its worker, hands it one job after the other, and starts another
when it ends: the kernel ends a worker with the thread that it came from.
"""

from __future__ import annotations

from collections.abc import Callable
import queue
import threading

from lagom_xla import errors
from lagom_xla import module_path
from lagom_xla.compile.workers import job as job_lib
from lagom_xla.compile.workers import running as running_lib
from lagom_xla.compile.workers import worker as worker_lib

# How long `close` waits for a thread to see that its worker is gone.
_LONGEST_JOIN_S = 5.0

Future = running_lib.Future
# Runs a job in a worker, None where there can be none, and says what came of it
# in its future; returns the worker unless that has ended.
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
    """Starts the first workers, which take their time beside this process.

    Args:
      num_workers: at most.
      run: see `Run`.
      num_early: workers that are started before there are jobs for them.
      lock: of the pool.
      warn: told, once, why there are no workers after all.
    """
    self.num_workers = num_workers
    self.obstacle = ""
    self.is_closed = False
    self._run = run
    self._lock = lock
    self._warn = warn
    self._path = module_path.in_environment()
    self._jobs: queue.SimpleQueue[tuple[job_lib.Job, Future] | None]
    self._jobs = queue.SimpleQueue()
    self._workers: set[worker_lib.Worker] = set()
    self._threads: list[threading.Thread] = []
    self._num_open = 0
    # Each takes a core while it starts; this process needs one to lower a step.
    self._starting = threading.Semaphore(max(1, num_workers - 1))
    with lock:
      for _ in range(min(num_early, num_workers)):
        self._add_worker()

  @property
  def pids(self) -> tuple[int, ...]:
    """The processes that there are now."""
    return tuple(worker.pid for worker in self._workers)

  def put(self, job: job_lib.Job, future: Future) -> bool:
    """Queues a job; returns whether it must wait. The pool holds its lock."""
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
    """In a thread: one worker, and another when it ends, until `close`."""
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
          # Stopped as nobody waits for what it answered just then.
          self.end(worker)
          worker = None
        with self._lock:
          self._num_open -= 1
    finally:
      self.end(worker)

  def _start(self) -> worker_lib.Worker | None:
    """A worker that is ready, so that no job waits for one that is not."""
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
          "compiles in this process, as no other one can: an abort in XLA ends"
          f" it, and Ctrl-C waits. {error}"
        )
