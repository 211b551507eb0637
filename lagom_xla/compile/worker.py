# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Workers: processes that compile, so that an abort in XLA ends only a worker.

`Worker` is the parent's handle of such a process. The process has the parent's
environment, so that XLA reads the same flags, but never its GPUs, and ends with
the thread that started it. It runs `main`: it first sends `READY`, or why it
cannot compile, through a socket; then it answers each job with a `job.Result`,
or with the error that `Worker.run` raises. Only `main` imports JAX.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import multiprocessing
from multiprocessing import connection
import os
import re
import signal
import subprocess
import sys
import tempfile
from typing import Any

from lagom_xla import errors
from lagom_xla.compile import job as job_lib

# A worker's first message if it can compile.
READY = "ready"
# The worker's program; its arguments are the socket's file descriptor and the
# parent's process ID.
_PROGRAM = "from lagom_xla.compile import worker; worker.main()"
# Importing JAX takes two seconds, and longer on a busy machine.
_LONGEST_START_S = 300
_MOST_WORDS = 400
# glog's form: F1120 14:04:52.525738    3541 file.cc:234] words
_FATAL = re.compile(r"^F\d{4} .*?\] (.*)", re.MULTILINE)


class RefusedError(Exception):
  """A compile failed; the message is XLA's."""


class Worker:
  """A process that compiles one job at a time."""

  def __init__(self, path: str):
    """Starts it, with `path` as PYTHONPATH; it imports JAX in the background.

    Raises a WorkerError if it cannot be started.
    """
    self._said = tempfile.TemporaryFile()
    self._channel, other_end = multiprocessing.Pipe()
    env = {**os.environ, "PYTHONPATH": path, "JAX_PLATFORMS": "cpu"}
    command = (sys.executable, "-P", "-c", _PROGRAM)
    try:
      self._process = subprocess.Popen(
        [*command, str(other_end.fileno()), str(os.getpid())],
        env=env,
        pass_fds=[other_end.fileno()],
        stdin=subprocess.DEVNULL,
        stdout=self._said,
        stderr=self._said,
        # A process group for signals, in this session so that nice works.
        process_group=0,
      )
    except OSError as error:
      self._channel.close()
      self._said.close()
      raise errors.WorkerError(f"Cannot start Python: {error}") from error
    finally:
      other_end.close()

  @property
  def pid(self) -> int:
    """Its process ID."""
    return self._process.pid

  @property
  def has_ended(self) -> bool:
    """Whether the process has ended."""
    return self._process.poll() is not None

  def await_start(self) -> None:
    """Waits until it can compile; raises a WorkerError if it cannot."""
    try:
      if not self._channel.poll(_LONGEST_START_S):
        raise errors.WorkerError(
          f"The process did not start within {_LONGEST_START_S} s."
        )
      greeting = self._channel.recv()
    except (EOFError, OSError) as error:
      raise errors.WorkerError(self._last_words(0)) from error
    if greeting != READY:
      raise errors.WorkerError(greeting)

  def run(self, job: job_lib.Job, limit_s: float) -> job_lib.Result:
    """Compiles a job; call `await_start` first.

    Raises:
      CompileAbortedError: XLA ended the process, or took longer than `limit_s`
        and was killed. A new worker is needed.
      RefusedError: XLA failed.
      LagomError: one of our passes failed.
    """
    before = self._said.seek(0, os.SEEK_END)
    try:
      self._channel.send(job)
      if not self._channel.poll(limit_s):
        self.stop()
        raise errors.CompileAbortedError(
          f"XLA was stopped: it did not finish within {limit_s:.0f} s."
        )
      answer = self._channel.recv()
    except (EOFError, OSError) as error:
      raise errors.CompileAbortedError(self._last_words(before)) from error
    if isinstance(answer, Exception):
      raise answer
    return answer

  def stop(self) -> None:
    """Kills the process and its children."""
    with contextlib.suppress(ProcessLookupError):
      os.killpg(self._process.pid, signal.SIGKILL)
    self._process.wait()

  def close(self) -> None:
    """Kills the process and frees its resources."""
    self.stop()
    self._channel.close()
    self._said.close()

  def _last_words(self, since: int) -> str:
    """Why the process ended, if known."""
    status = self._process.wait()
    self._said.seek(since)
    said = self._said.read().decode(errors="replace")
    ended = f"XLA ended its process ({_status_in_words(status)})"
    fatal = _FATAL.search(said)
    return (
      f"{ended}: {fatal.group(1)[:_MOST_WORDS].strip()}" if fatal else ended
    )


def _status_in_words(status: int) -> str:
  if status >= 0:
    return f"exit status {status}"
  name = signal.Signals(-status).name
  if -status == signal.SIGKILL:
    return f"{name}, as when memory runs out"
  return name


_PR_SET_PDEATHSIG = 1  # linux/prctl.h


def main() -> None:
  """Runs a worker: answers jobs until the socket is closed."""
  channel, parent = int(sys.argv[1]), int(sys.argv[2])
  end_with(parent)
  # The parent handles Ctrl-C.
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
      parent_end.send(_answer(run_job, job))


def _imported() -> Any:
  """Imports the function that runs a job, with garbage collection off.

  JAX's modules stay until the end. Collecting garbage during the import took a
  sixth of its time.
  """
  gc.disable()
  from lagom_xla.compile import fused as fused_lib

  gc.freeze()
  gc.enable()
  return fused_lib.run


def _answer(run: Any, job: job_lib.Job) -> Any:
  try:
    return run(job)
  except errors.LagomError as error:
    return error
  except Exception as error:
    return RefusedError(str(error) or type(error).__name__)


def end_with(parent: int) -> None:
  """Makes the kernel kill this process when its parent ends for any reason."""
  ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
  if os.getppid() != parent:  # The parent had already ended.
    os._exit(1)
