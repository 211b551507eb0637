# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Programs that get a signal while they train, and their ends.

Each is forked from a process that has imported JAX but not used it, so that it
starts quickly, and ends like any Python program.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
import contextlib
import ctypes
import dataclasses
import functools
import importlib
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import threading
import time
from typing import Any, NoReturn

import jax
import jax.numpy as jnp

import job
import lagom_xla
from lagom_xla import cluster as cluster_lib
from lagom_xla.live import gpu
from lagom_xla.live import plan_cache
from lagom_xla.live import proposals as proposals_lib
import live_job
import live_step

# The state of a program that trains under plain jit.
JIT = "jit"
PLANS = "plans"
LOG = "trials.jsonl"
TEMPORARY = "temporary"
ERRORS = "errors"
_PR_SET_CHILD_SUBREAPER = 36  # linux/prctl.h
_POLL_S = 0.01


@dataclasses.dataclass(frozen=True)
class Ended:
  """The ends of a program's processes, and of those they left behind.

  Statuses are negative for a signal; errors are each one's stderr.
  """

  statuses: list[int]
  orphans: list[int]
  errors: list[str]


class Programs:
  """Starts programs, one after the other, forked from a process of `main`."""

  def __init__(self, process: subprocess.Popen[str]):
    self._process = process

  def met(
    self,
    state: str,
    number: signal.Signals,
    folder: pathlib.Path,
    num_processes: int = 1,
  ) -> Ended:
    """Trains until a signal arrives while a step runs in a state of the loop.

    With JIT, trains under plain jit. The folder is empty before. All processes
    get the signal.
    """
    assert self._process.stdin is not None and self._process.stdout is not None
    words = (state, int(number), num_processes, folder)
    print(*words, file=self._process.stdin, flush=True)
    statuses, orphans = json.loads(self._process.stdout.readline())
    said = [folder / f"{ERRORS}{rank}" for rank in range(num_processes)]
    return Ended(statuses, orphans, [path.read_text() for path in said])


@contextlib.contextmanager
def programs() -> Iterator[Programs]:
  """Starts the process from which programs are forked, for the block."""
  path = os.pathsep.join((str(pathlib.Path(__file__).parent), *sys.path))
  with subprocess.Popen(
    (sys.executable, "-c", "import signalled; signalled.main()"),
    stdin=subprocess.PIPE,
    stdout=subprocess.PIPE,
    text=True,
    env={
      **os.environ,
      "JAX_PLATFORMS": "cpu",
      "PYTHONPATH": path,
      # With one device, callbacks run in the thread that calls the step.
      "XLA_FLAGS": "--xla_force_host_platform_device_count=2",
    },
  ) as process:
    yield Programs(process)


def main() -> None:
  """Forks a program for each line, and writes its end."""
  for name in job.PRELOADED:
    importlib.import_module(name)
  adopt_orphans()
  for line in iter(sys.stdin.readline, ""):
    state, number, num_processes, folder = line.split()
    ranks = range(int(num_processes))
    port = job.free_port() if len(ranks) > 1 else None
    met, meets = os.pipe()
    processes = []
    for rank in ranks:
      processes.append(os.fork())
      if not processes[-1]:
        prepare(pathlib.Path(folder), rank)
        if port is not None:
          job.join(port, len(ranks), rank)
        tell = functools.partial(_tell, meets)
        _train(state, pathlib.Path(folder), tell, is_job=port is not None)
    os.close(meets)
    for _ in ranks:
      os.read(met, 1)
    os.close(met)
    for process in processes:
      os.kill(process, int(number))
    statuses = [status_of(process) for process in processes]
    print(json.dumps((statuses, list(orphans()))), flush=True)


def _tell(pipe: int) -> None:
  os.write(pipe, b"!")


def num_trials(folder: pathlib.Path) -> int:
  """The number of trials in the log, all of which must be readable."""
  log = folder / LOG
  lines = log.read_text().splitlines() if log.exists() else []
  return len([json.loads(line) for line in lines])


def num_plans(folder: pathlib.Path) -> int:
  """The number of stored plans; they and records of risk must be readable."""
  plans = folder / PLANS
  keys = [it.name.removesuffix(".plan.json") for it in plans.glob("*")]
  assert all(plan_cache.PlanCache(plans, key).get() for key in keys)
  return sum(not key.endswith("-risk") for key in keys)


def adopt_orphans() -> None:
  """Makes this process adopt orphans of its children."""
  ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def orphans() -> Iterator[int]:
  """The statuses of the last program's orphans, after their end."""
  with contextlib.suppress(ChildProcessError):
    while True:
      yield status_of(-1)


def status_of(process: int) -> int:
  """Waits for a child; returns its status, negative for a signal."""
  return os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])


def prepare(folder: pathlib.Path, rank: int) -> None:
  """Makes this process independent, with its files in a folder."""
  errors = os.open(folder / f"{ERRORS}{rank}", os.O_WRONLY | os.O_CREAT)
  os.dup2(errors, sys.stdout.fileno())
  os.dup2(errors, sys.stderr.fileno())
  tempfile.tempdir = str(folder / TEMPORARY)
  os.makedirs(tempfile.tempdir, exist_ok=True)
  # For tests in the background, shells ignore it.
  signal.signal(signal.SIGINT, signal.default_int_handler)


def _train(
  state: str,
  folder: pathlib.Path,
  meet: Callable[[], None],
  *,
  is_job: bool,
) -> NoReturn:
  """Trains forever; a signal arrives in a step after the call of `meet`."""
  # The C handler writes to it before Python knows of the signal.
  arrived, wakes = os.pipe()
  os.set_blocking(wakes, False)
  signal.set_wakeup_fd(wakes)
  proposer = _Proposer(state)
  tuned: Any = None
  is_met = False

  def wait_for_the_signal(x: Any) -> Any:
    nonlocal is_met
    if not is_met and _is_there(state, tuned, folder, proposer):
      is_met = True
      meet()
      os.read(arrived, 1)
    return x

  def function(x: jax.Array) -> jax.Array:
    total = jnp.sum(x)
    shape = jax.ShapeDtypeStruct((), x.dtype)
    return x + jax.pure_callback(wait_for_the_signal, shape, total)

  step: Any = jax.jit(function)
  if state != JIT:
    step = tuned = lagom_xla.tune(step, log=folder / LOG, cache=folder / PLANS)
  x = _sharded()
  total_of = jax.jit(jnp.sum).lower(x).compile()
  proposed_by = functools.partial(live_step.proposed_by, waits_for="traces")
  with (live_job.joined if is_job else proposed_by)(proposer):
    try:
      while True:
        x = step(x).block_until_ready()
    finally:
      # Python aborts if it ends while XLA's threads call back into it, under
      # jit as well. XLA runs collectives in order, so this one ends last.
      total_of(x).block_until_ready()


def _is_there(
  state: str, tuned: Any, folder: pathlib.Path, proposer: _Proposer
) -> bool:
  """Whether a state is reached, including its work beside training."""
  if state == JIT:
    return True
  if f"now: {state}" not in tuned.report():
    return False
  match state:
    case "searching":
      _wait_until(has_search)
    case "compiling":
      proposer.compiles.wait()
    case "watching":
      _wait_until(lambda: any((folder / PLANS).glob("*.json")))
  return True


@dataclasses.dataclass
class _Proposer(proposals_lib.Proposer):
  """Proposes the step itself; `compiles` is set right before it compiles."""

  state: str
  compiles: threading.Event = dataclasses.field(default_factory=threading.Event)

  def proposals(
    self,
    lowered: jax.stages.Lowered,
    measured: proposals_lib.Measured,
    stop: threading.Event,
  ) -> Generator[proposals_lib.Proposal, None, str | None]:
    if self.state == "searching":  # In another process, as for GPUs.
      cluster = cluster_lib.parse("1x2xh100")
      search = gpu.PlanProposer(cluster=cluster, num_workers=0)
      other = jax.jit(lambda x: x * 2).lower(_sharded())
      yield from search.proposals(other, measured, stop)
    yield proposals_lib.Proposal(name="again", payload=b"null")
    return None

  def compile(
    self, lowered: jax.stages.Lowered, payload: bytes
  ) -> jax.stages.Compiled:
    if self.state == "compiling":
      slow = jax.jit(_slow_to_compile).lower(jnp.ones((64, 64)))
      self.compiles.set()
      slow.compile()
    return live_step.again(lowered)

  def digest(self, compiled: jax.stages.Compiled) -> str:
    return ""


def _sharded() -> jax.Array:
  """A sharded batch."""
  mesh = jax.make_mesh((2,), ("x",), devices=jax.local_devices())
  rows = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("x"))
  return jax.device_put(jnp.zeros(2), rows)


def _slow_to_compile(x: jax.Array) -> jax.Array:
  for i in range(100):
    x = jnp.sin(x @ x) + jnp.cumsum(x, 0)[::-1] * i
  return x


def has_search() -> bool:
  """Whether this process has a running search.

  XLA's compilers are children, too; ended processes have no command line.
  """
  tasks = pathlib.Path("/proc/self/task").glob("*/children")
  for child in [it for task in tasks for it in task.read_text().split()]:
    with contextlib.suppress(FileNotFoundError):  # It has just ended.
      if gpu.PROGRAM in pathlib.Path(f"/proc/{child}/cmdline").read_text():
        return True
  return False


def _wait_until(is_so: Callable[[], bool]) -> None:
  while not is_so():
    time.sleep(_POLL_S)
