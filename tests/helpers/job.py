# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Jobs of real processes on CPU, joined by `jax.distributed`.

They are forked from one that has imported JAX and used none of it, so that a
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

# A process that hangs is found by this, and none that works on a busy machine.
_LONGEST_S = 600
_LONGEST_JOIN_S = 60
_FINISHED = "finished"
_FAILED = "failed"
# What processes would import otherwise, each for itself.
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
  """What a process said, and its exit status: negative for a signal."""

  said: list[Any]
  status: int | None


def run(
  function: Callable[[int, Say], None],
  num_processes: int = 2,
  environ: Mapping[int, Mapping[str, str]] | None = None,
) -> list[Ended]:
  """Runs a function in each process of a job, and lets go of all together.

  It takes the number of its process, and what to say things with; `environ` is
  what processes have in their environment beside this one's.
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
  # The store is in the first one; the others must not see it go.
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
  """Joins this process to a job whose first one listens to a port.

  The others miss a process after so many seconds without a heartbeat, and all
  wait so long for each other when they end.
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
  """Ends this process as the kernel does it where memory is short."""
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
  join(port, num_processes, number)  # Who cannot ends without a word.
  try:
    function(number, pipe.send)
    pipe.send(_FINISHED)
  except BaseException:
    pipe.send((_FAILED, traceback.format_exc()))
  try:
    pipe.recv()
  except EOFError:
    os._exit(0)  # Not by JAX's barrier, where the dead would be waited for.


def _said(pipe: connection.Connection) -> list[Any]:
  """What a process says until it finishes or dies."""
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
  """A port that nobody listens to."""
  with socket.socket() as free:
    free.bind(("127.0.0.1", 0))
    return free.getsockname()[1]
