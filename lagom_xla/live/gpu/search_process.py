# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Search in a process of its own, as the training process sees it.

    with search_process.begun(lowered, cluster, task) as found:
      for facts in found: ...

It takes no GPU and not this process's lock on Python, can be killed, and an
abort of XLA's compiler ends it alone. `cli/background.py` is what
runs there.
"""

from __future__ import annotations

from collections.abc import Iterator
import contextlib
import dataclasses
import json
import os
import pathlib
import subprocess
import sys
import threading
import time
from typing import Any

import jax

from lagom_xla import cluster as cluster_lib
from lagom_xla import errors
from lagom_xla import module_path
from lagom_xla import temporary
from lagom_xla import validation
from lagom_xla.compile import config as config_lib
from lagom_xla.compile import lowered as lowered_lib

Begun = contextlib.AbstractContextManager[Iterator[dict[str, Any]]]

FOUND = "found.jsonl"

# By name: live/ is below cli/, and takes nothing of it into this process.
_PROGRAM = "lagom_xla.cli.background"
_TASK = "task.json"
_SAID = "said.txt"
_POLL_S = 0.1
# A compile that has begun must end before a search can be stopped: minutes, for
# the largest public modules. After this long beyond its budget it is killed.
_GRACE_S = 600.0
_MOST_WORDS = 400


@dataclasses.dataclass(frozen=True, kw_only=True)
class Task:
  """What to do with a step.

  Attributes:
    searcher: of NCCL settings.
    trace: folder of a trace of the step as it runs; None to predict costs.
    time_budget_s: after which the best so far is taken.
    num_workers: processes that compile; 0 for the search's own.
    prove: only compile this config, and search nothing.
  """

  __pydantic_config__ = validation.STRICT

  searcher: str
  trace: str | None
  time_budget_s: float
  num_workers: int
  prove: config_lib.XlaConfig | None = None


def read_task(folder: pathlib.Path) -> Task:
  """The task in a folder that `begun` wrote."""
  return validation.read(Task, json.loads((folder / _TASK).read_text()))


@contextlib.contextmanager
def begun(
  lowered: jax.stages.Lowered,
  cluster: cluster_lib.Cluster,
  task: Task,
  stop: threading.Event,
) -> Iterator[Iterator[dict[str, Any]]]:
  """Starts a search, and ends it at the end of the block at the latest.

  Args:
    lowered: the step.
    cluster: what it was lowered for.
    task: what to do.
    stop: set from another thread to end the search at once.

  Yields:
    What is found, as it is found.

  Raises:
    TargetError: the step cannot be compiled in another process.
    WorkerError: there can be no such process.
  """
  with temporary.folder() as folder:
    lowered_lib.write_step(lowered, cluster, folder)
    (folder / _TASK).write_text(json.dumps(validation.write(task)))
    process = _start(folder)
    try:
      yield _found(process, folder, task, stop)
    finally:
      process.kill()
      process.wait()


def _start(folder: pathlib.Path) -> subprocess.Popen[bytes]:
  env = {
    **os.environ,
    "PYTHONPATH": module_path.in_environment(),
    "JAX_PLATFORMS": "cpu",
    "JAX_SKIP_CUDA_CONSTRAINTS_CHECK": "1",
  }
  command = (sys.executable, "-P", "-m", _PROGRAM, folder, str(os.getpid()))
  try:
    with (folder / _SAID).open("wb") as said:
      return subprocess.Popen(
        command,
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=said,
        stderr=said,
        # Its own group, for signals; in this session niceness counts.
        process_group=0,
      )
  except OSError as error:
    raise errors.WorkerError(f"Python does not start: {error}") from error


def _found(
  process: subprocess.Popen[bytes],
  folder: pathlib.Path,
  task: Task,
  stop: threading.Event,
) -> Iterator[dict[str, Any]]:
  """The facts that the process says, until it ends.

  Raises:
    WorkerError: it said that it failed, ended otherwise than well, or hangs.
  """
  deadline_s = time.monotonic() + task.time_budget_s + _GRACE_S
  num_read = 0
  while not stop.is_set():
    has_ended = process.poll() is not None
    lines = _whole_lines(folder / FOUND)
    for line in lines[num_read:]:
      facts = json.loads(line)
      if "error" in facts:
        raise errors.WorkerError(f"The search failed: {facts['error']}")
      yield facts
    num_read = len(lines)
    if has_ended:
      _check_ended_well(process.returncode, folder)
      return
    if time.monotonic() > deadline_s:
      raise errors.WorkerError(
        f"The search did not end {_GRACE_S:.0f} s after its budget of"
        f" {task.time_budget_s:.0f} s, and was killed."
      )
    stop.wait(_POLL_S)


def _whole_lines(path: pathlib.Path) -> list[str]:
  """The lines of a file that another process is writing."""
  if not path.exists():
    return []
  return path.read_text().split("\n")[:-1]


def _check_ended_well(status: int, folder: pathlib.Path) -> None:
  if status == 0:
    return
  said = (folder / _SAID).read_text(errors="replace").strip()
  last = said.rpartition("\n")[2][:_MOST_WORDS]
  raise errors.WorkerError(
    f"The search ended with status {status}: {last or 'it said nothing'}"
  )
