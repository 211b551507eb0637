# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""The program that a worker runs: compiles jobs until its parent is gone.

    python -m lagom_xla.compile.workers.serve FILE_DESCRIPTOR PARENT

The descriptor is one end of a socket. The first message is `READY` or why this
process cannot compile; then each job is answered by a `job.Result`, by an error
of lagom_xla, or by a `job.Refusal`, and before that perhaps by a `job.Shown`.
"""

from __future__ import annotations

import ctypes
import functools
import gc
from multiprocessing import connection
import os
import signal
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
  from lagom_xla.compile.workers import job as job_lib

READY = "ready"

_PR_SET_PDEATHSIG = 1  # linux/prctl.h


def main() -> None:
  """Serves whoever is at the other end of the socket."""
  channel, parent = int(sys.argv[1]), int(sys.argv[2])
  end_with(parent)
  # A Ctrl-C is the parent's to answer.
  signal.signal(signal.SIGINT, signal.SIG_IGN)
  with connection.Connection(channel) as parent_end:
    try:
      run_job = _imported()
    except Exception as error:
      parent_end.send(f"{type(error).__name__}: {error}")
      return
    parent_end.send(READY)
    while True:
      try:
        job = parent_end.recv()
      except EOFError:
        return
      run = functools.partial(run_job, show=parent_end.send)
      parent_end.send(_answer(run, job))


def _imported() -> Any:
  """What runs a job, imported without a look for garbage.

  JAX's modules stay until the end; looking through them while they came took a
  sixth of the import.
  """
  gc.disable()
  from lagom_xla.compile.workers import run as run_lib

  gc.freeze()
  gc.enable()
  return run_lib.run


def _answer(run: Any, job: job_lib.Job) -> Any:
  from lagom_xla import errors
  from lagom_xla.compile.workers import job as job_lib

  try:
    return run(job)
  except errors.LagomError as error:
    return error
  except Exception as error:
    return job_lib.Refusal(text=str(error) or type(error).__name__)


def end_with(parent: int) -> None:
  """Has the kernel kill this process when its parent ends, however it does."""
  ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
  if os.getppid() != parent:  # It ended before that.
    os._exit(1)


if __name__ == "__main__":
  main()
