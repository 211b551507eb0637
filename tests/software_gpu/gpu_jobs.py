# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Jobs of processes with a GPU each, and their ends.

Processes are forked from one that has imported JAX but not used it, and end
like any Python program.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
import dataclasses
import gc
import importlib
import os
import pathlib
import signal
import sys

import job
import signalled

# Seconds until a dead process is noticed; JAX's default is 100.
_HEARTBEAT_S = 15
# A process that runs longer hangs, on any machine.
_LONGEST_S = 600


@dataclasses.dataclass(frozen=True)
class Job:
  """The task of a job's processes.

  Attributes:
    run: Called with the number of each process, in the job's own folder.
    num_processes: Number of processes.
    shutdown_s: Seconds that they wait for each other at the end.
    variables: Environment variables of processes, by their numbers.
  """

  run: Callable[[int], None]
  num_processes: int = 2
  shutdown_s: int = 300
  variables: Mapping[int, Mapping[str, str]] = dataclasses.field(
    default_factory=dict
  )


@dataclasses.dataclass(frozen=True)
class Ended:
  """The statuses of each job's processes, negative for a signal.

  Orphans are processes that they left behind.
  """

  statuses: dict[str, list[int]]
  orphans: list[int]


def run(jobs: Mapping[str, Job]) -> Ended:
  """Runs jobs at the same time, each in a folder with its name."""
  for name in job.PRELOADED:
    importlib.import_module(name)
  gc.freeze()
  signalled.adopt_orphans()
  started = {name: list(_started(it, name)) for name, it in jobs.items()}
  statuses = {
    name: [signalled.status_of(process) for process in processes]
    for name, processes in started.items()
  }
  return Ended(statuses, list(signalled.orphans()))


def said(folder: pathlib.Path, num_processes: int) -> str:
  """The files and output of the processes of a job in a folder."""
  paths = [folder / f"{signalled.ERRORS}{i}" for i in range(num_processes)]
  return "\n".join(f"{path}:\n{path.read_text()}" for path in paths)


def _started(one: Job, folder: str) -> Iterator[int]:
  port = job.free_port()
  os.mkdir(folder)
  for rank in range(one.num_processes):
    process = os.fork()
    if process:
      yield process
      continue
    signal.alarm(_LONGEST_S)
    os.chdir(folder)
    signalled.prepare(pathlib.Path.cwd(), rank)
    os.environ["SOFTWARE_GPU_FIRST"] = str(rank)
    os.environ.update(one.variables.get(rank, {}))
    job.join(
      port,
      one.num_processes,
      rank,
      heartbeat_s=_HEARTBEAT_S,
      shutdown_s=one.shutdown_s,
    )
    one.run(rank)
    sys.exit()
