# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Jobs of real processes on CPUs, connected by `jax.distributed`.

They are forked from a process that has imported JAX but not used it, so that a
job starts in a fraction of a second.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
import dataclasses
import functools
import multiprocessing
from multiprocessing import connection
import os
import signal
import socket
import traceback
from typing import Any, NoReturn
import warnings

import jax

# A process that takes longer hangs, even on a busy machine.
_LONGEST_S = 600
_LONGEST_JOIN_S = 60
_FINISHED = "finished"
_FAILED = "failed"
# Imports that every process would make otherwise.
PRELOADED = (
  "jax",
  "lagom_xla.decorator",
  "lagom_xla.live.plan_cache",
  "lagom_xla.live.predicted",
  "job",
)

Say = Callable[[Any], None]


@dataclasses.dataclass(frozen=True)
class Ended:
  """The messages of a process, and its exit status: negative for a signal."""

  said: list[Any]
  status: int | None


def run(
  function: Callable[[int, Say], None],
  num_processes: int = 2,
  environ: Mapping[int, Mapping[str, str]] | None = None,
) -> list[Ended]:
  """Runs a function in each process of a job, and ends all together.

  The function takes the number of its process, and a function that sends
  messages. `environ` has the processes' additions to this environment.
  """
  context = _context()
  port = free_port()
  jobs = []
  for number in range(num_processes):
    here, there = context.Pipe()
    variables = dict((environ or {}).get(number, {}))
    process = context.Process(
      target=_main,
      args=(function, number, num_processes, port, variables, there),
      daemon=True,
    )
    process.start()
    there.close()
    jobs.append((process, here))
  said = [_said(here) for _, here in jobs]
  # The first one has the store, which must outlive the others.
  for process, here in reversed(jobs):
    here.close()
    process.join(_LONGEST_S)
  return [
    Ended(words, process.exitcode)
    for words, (process, _) in zip(said, jobs, strict=True)
  ]


def join(
  port: int,
  num_processes: int,
  number: int,
  *,
  heartbeat_s: int = 100,
  shutdown_s: int = 300,
) -> None:
  """Joins this process to a job, whose first process listens on a port.

  A process counts as dead after `heartbeat_s` without a heartbeat. At the end,
  all wait for each other for at most `shutdown_s`.
  """
  jax.distributed.initialize(
    f"127.0.0.1:{port}",
    num_processes,
    number,
    cluster_detection_method="deactivate",
    initialization_timeout=_LONGEST_JOIN_S,
    heartbeat_timeout_seconds=heartbeat_s,
    shutdown_timeout_seconds=shutdown_s,
  )


def die() -> NoReturn:
  """Ends this process like the kernel's out-of-memory killer."""
  os.kill(os.getpid(), signal.SIGKILL)
  raise AssertionError("unreachable")


@functools.cache
def _context() -> Any:
  context = multiprocessing.get_context("forkserver")
  context.set_forkserver_preload(list(PRELOADED))
  return context


def _main(
  function: Callable[[int, Say], None],
  number: int,
  num_processes: int,
  port: int,
  environ: Mapping[str, str],
  pipe: connection.Connection,
) -> None:
  os.environ.update(environ)
  warnings.simplefilter("error")
  join(port, num_processes, number)  # Ends silently if that is impossible.
  try:
    function(number, pipe.send)
    pipe.send(_FINISHED)
  except BaseException:
    pipe.send((_FAILED, traceback.format_exc()))
  try:
    pipe.recv()
  except EOFError:
    os._exit(0)  # Skips JAX's barrier, which would wait for dead processes.


def _said(pipe: connection.Connection) -> list[Any]:
  """The messages of a process until it finishes or dies."""
  words: list[Any] = []
  while True:
    assert pipe.poll(_LONGEST_S), f"a process hangs after saying {words}"
    try:
      word = pipe.recv()
    except (EOFError, ConnectionResetError):
      return words
    if word == _FINISHED:
      return words
    assert not (isinstance(word, tuple) and word[0] == _FAILED), word[1]
    words.append(word)


def free_port() -> int:
  """A free port."""
  with socket.socket() as free:
    free.bind(("127.0.0.1", 0))
    return free.getsockname()[1]
