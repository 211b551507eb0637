# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Proposals for GPUs: plans from a search.

The first proposal is the plan that `lagom-xla tune --in-process` finds with
costs from a trace of the step. Runners-up of other kinds follow. NCCL settings
act only when a process starts, so proposals change only XLA's configuration.

The search (`cli/background.py`) runs in a separate process: it uses no GPU,
does not hold this process's GIL, can be killed, and survives aborts of XLA's
compiler. The plan must be faster despite the model's error. Runners-up need
only a shorter predicted time, because their steps are measured. Each is of a
new kind, because predictions for one kind tend to be wrong together.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
import contextlib
import dataclasses
import hashlib
import json
import os
import pathlib
import subprocess
import sys
import threading
import time
from typing import Any

from absl import logging
import jax

from lagom_xla import cluster as cluster_lib
from lagom_xla import errors
from lagom_xla import processes
from lagom_xla import validation
from lagom_xla.compile import config as config_lib
from lagom_xla.compile import lowered as lowered_lib
from lagom_xla.compile import nnx_step
from lagom_xla.compile import pool
from lagom_xla.compile import rewriting
from lagom_xla.compile import scheduler_profile
from lagom_xla.compile import target as target_lib
from lagom_xla.costs import in_words as words
from lagom_xla.flags import own_flags
from lagom_xla.live import proposals as proposals_lib
from lagom_xla.passes import collectives as collectives_lib
from lagom_xla.passes import hlo
from lagom_xla.passes.schedule import orders as orders_lib
from lagom_xla.search.xla import candidates as candidates_lib


@dataclasses.dataclass(frozen=True, kw_only=True)
class Payload:
  """A proposal as sent to every process of a job.

  Attributes:
    xla: XLA's configuration.
    is_proven: whether another process has compiled it without an abort, as far
      as possible without a GPU.
  """

  __pydantic_config__ = validation.STRICT

  xla: config_lib.XlaConfig
  is_proven: bool

  def to_bytes(self) -> bytes:
    """The payload as bytes, for `read`."""
    return json.dumps(validation.write(self), sort_keys=True).encode()


def read(payload: bytes) -> Payload:
  """Reads a payload; raises a PlanError if it is invalid."""
  try:
    return validation.read(Payload, json.loads(payload))
  except (ValueError, validation.InvalidError) as error:
    raise errors.PlanError(
      f"Another process proposed a config that cannot be read: {error}. Run"
      " the same version of lagom_xla on all processes."
    ) from error


def in_words(config: config_lib.XlaConfig) -> str:
  """A config in a few words, such as "2 XLA options, 5 combine groups"."""
  parts = []
  if config.options:
    parts.append(words.count(len(config.options), "XLA option"))
  if config.combine_groups is not None:
    parts.append(words.count(len(config.combine_groups), "combine group"))
  if not config.program.is_as_written:
    parts.append(rewriting.in_words(config.program))
  if config.scheduler_profile is not None:
    parts.append("costs for XLA's scheduler")
  if config.orders:
    parts.append(orders_lib.in_words(config.orders))
  return ", ".join(parts) or "XLA's defaults"


FOUND = "found.jsonl"

# By name, because live/ is below cli/ and must not import it.
PROGRAM = "lagom_xla.cli.background"
_TASK = "task.json"
_SAID = "said.txt"
_POLL_S = 0.1
# A search stops only between compiles, which take minutes for the largest
# public modules. It is killed this long after its budget.
_GRACE_S = 600.0
_MOST_WORDS = 400


@dataclasses.dataclass(frozen=True, kw_only=True)
class Task:
  """The task of a search process.

  Attributes:
    trace: folder of a trace of the running step; None to predict costs.
    time_budget_s: seconds until the search stops with the best plan so far.
    num_workers: number of compile processes; 0 to compile in the search's own.
    prove: a config to compile, without a search.
  """

  __pydantic_config__ = validation.STRICT

  time_budget_s: float
  num_workers: int
  trace: str | None = None
  prove: config_lib.XlaConfig | None = None


def read_task(folder: pathlib.Path) -> Task:
  """The task in a folder that `searched` wrote."""
  return validation.read(Task, json.loads((folder / _TASK).read_text()))


def searched(
  lowered: jax.stages.Lowered,
  cluster: cluster_lib.Cluster,
  task: Task,
  stop: threading.Event,
) -> Generator[dict[str, Any], None, None]:
  """Searches in another process, which ends no later than this iterator.

  Yields facts as they are found, until another thread sets `stop`.

  Raises:
    TargetError: The step cannot be compiled in another process.
    WorkerError: That process does not start, fails, is killed, or hangs.
  """
  with processes.temporary_folder() as folder:
    lowered_lib.write_step(lowered, cluster, folder)
    (folder / _TASK).write_text(json.dumps(validation.write(task)))
    process = _start(folder)
    try:
      yield from _facts(process, folder, task, stop)
    finally:
      process.kill()
      process.wait()


def _start(folder: pathlib.Path) -> subprocess.Popen[bytes]:
  env = {
    **os.environ,
    "XLA_FLAGS": own_flags.as_read(),
    "PYTHONPATH": processes.python_path(),
    "JAX_PLATFORMS": "cpu",
    "JAX_SKIP_CUDA_CONSTRAINTS_CHECK": "1",
  }
  command = (sys.executable, "-P", "-m", PROGRAM, folder, str(os.getpid()))
  try:
    with (folder / _SAID).open("wb") as said:
      return subprocess.Popen(
        command,
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=said,
        stderr=said,
        # Its own process group for signals; the same session, so that nice
        # works.
        process_group=0,
      )
  except OSError as error:
    raise errors.WorkerError(f"Cannot start Python: {error}") from error


def _facts(
  process: subprocess.Popen[bytes],
  folder: pathlib.Path,
  task: Task,
  stop: threading.Event,
) -> Iterator[dict[str, Any]]:
  """Yields the facts that the process writes, until it ends."""
  deadline_s = time.monotonic() + task.time_budget_s + _GRACE_S
  num_read = 0
  while not stop.is_set():
    has_ended = process.poll() is not None
    found = folder / FOUND
    # Complete lines only: the process may be writing one.
    lines = found.read_text().split("\n")[:-1] if found.exists() else []
    for line in lines[num_read:]:
      facts = json.loads(line)
      if "error" in facts:
        raise errors.WorkerError(f"The search failed: {facts['error']}")
      yield facts
    num_read = len(lines)
    if has_ended and process.returncode:
      said = (folder / _SAID).read_text(errors="replace").strip()
      last = said.rpartition("\n")[2][:_MOST_WORDS]
      raise errors.WorkerError(
        f"The search ended with status {process.returncode}:"
        f" {last or 'it printed nothing'}"
      )
    if has_ended:
      return
    if time.monotonic() > deadline_s:
      raise errors.WorkerError(
        f"The search was killed: it was still running {_GRACE_S:.0f} s after"
        f" its time budget of {task.time_budget_s:.0f} s."
      )
    stop.wait(_POLL_S)


# Most runners-up. More trials would likely cost more than they gain.
_MOST = 2


def ratio(
  search: candidates_lib.Search, candidate: candidates_lib.Candidate
) -> float:
  """A candidate's predicted step time over the default's.

  Both with NCCL's own choices: NCCL settings act only when a process starts.
  """
  default = search.default.under_nccl_defaults.step_time_us
  return candidate.under_nccl_defaults.step_time_us / default


def of(search: candidates_lib.Search) -> list[candidates_lib.Candidate]:
  """The runners-up: the fastest candidates of other kinds than the best.

  Fastest first. Excludes candidates predicted to be slower than XLA's defaults,
  and repeated schedules.
  """
  kinds = {_kind(search.planned), _kind(config_lib.DEFAULT)}
  schedules = [search.default.runs, search.best.runs]
  found: list[candidates_lib.Candidate] = []
  for candidate in sorted(search.scheduled, key=lambda c: ratio(search, c)):
    is_new = _kind(candidate.config) not in kinds and not any(
      candidate.runs is known for known in schedules
    )
    if is_new and len(found) < _MOST and ratio(search, candidate) < 1:
      kinds.add(_kind(candidate.config))
      schedules.append(candidate.runs)
      found.append(candidate)
  return found


def _kind(config: config_lib.XlaConfig) -> frozenset[str]:
  """The fields that a config sets."""
  fields = dataclasses.fields(config)
  return frozenset(
    field.name
    for field in fields
    if getattr(config, field.name) != getattr(config_lib.DEFAULT, field.name)
  )


# The profiler cannot attribute kernels in CUDA graphs to instructions.
_FOR_PROFILE = {"xla_gpu_enable_command_buffer": ""}
# Compiles use 1/4 of the host's cores, because training needs the others.
_SHARE_OF_CORES = 4
_TIME_BUDGET_S = 1800.0


@dataclasses.dataclass(kw_only=True)
class PlanProposer(proposals_lib.Proposer):
  """Tunes steps for a cluster in another process; see `proposals.Proposer`."""

  cluster: cluster_lib.Cluster
  # A search stops after this time, with the best plan so far.
  time_budget_s: float = _TIME_BUDGET_S
  num_workers: int = dataclasses.field(
    default_factory=lambda: max(pool.num_cores() // _SHARE_OF_CORES, 1)
  )
  has_profile_build: bool = dataclasses.field(default=True, init=False)

  def proposals(
    self,
    lowered: jax.stages.Lowered,
    measured: proposals_lib.Measured,
    stop: threading.Event,
  ) -> Generator[proposals_lib.Proposal, None, None]:
    """Yields the proposals of a search in another process, as found."""
    trace = measured.trace_dir
    task = self._task(trace=None if trace is None else str(trace.resolve()))
    self._target(lowered)
    with contextlib.closing(
      searched(lowered, self.cluster, task, stop)
    ) as found:
      for facts in found:
        if "warning" in facts:
          logging.warning("lagom_xla: %s", facts["warning"])
        else:
          yield proposals_lib.Proposal(
            name=facts["name"],
            payload=facts["payload"].encode(),
            predicted_ratio=facts["predicted_ratio"],
          )

  def compile(
    self, lowered: jax.stages.Lowered, payload: bytes
  ) -> jax.stages.Compiled:
    """Compiles a proposal, after another process, because XLA may abort."""
    proposed = read(payload)
    target = self._target(lowered)
    if proposed.xla.scheduler_profile is not None:
      scheduler_profile.check_reaches_xla()
    if not proposed.is_proven:
      task = self._task(prove=proposed.xla)
      list(searched(lowered, self.cluster, task, threading.Event()))
    return executable(target.compile(proposed.xla), target)

  def compile_for_profile(
    self, lowered: jax.stages.Lowered
  ) -> jax.stages.Compiled:
    """Compiles the step without CUDA graphs."""
    target = self._target(lowered)
    config = config_lib.XlaConfig(options=_FOR_PROFILE)
    return executable(target.compile(config), target)

  def digest(self, compiled: jax.stages.Compiled) -> str:
    """A hash of the collectives in order.

    NCCL matches collectives only by their order. In different orders, even
    equal collectives would mix up their arrays.
    """
    digest = hashlib.sha256()
    for collective in collectives_lib.find(hlo.load(compiled)):
      facts = (
        collective.kind,
        collective.channel_id,
        collective.computation,
        collective.array_bytes,
        collective.element_type,
        collective.groups,
        collective.pairs,
        collective.executions,
      )
      digest.update(repr(facts).encode())
    return digest.hexdigest()

  def _task(self, **parts: Any) -> Task:
    return Task(
      time_budget_s=self.time_budget_s,
      num_workers=self.num_workers,
      **parts,
    )

  def _target(self, lowered: jax.stages.Lowered) -> target_lib.StepTarget:
    inside = nnx_step.lowered_inside(lowered)
    return target_lib.of_step(inside, self.cluster, name="the step")


def executable(
  compilation: lowered_lib.Compilation | None, target: target_lib.Target
) -> jax.stages.Compiled:
  """The executable of a compile.

  Raises:
    TargetError: It is for the GPUs of another machine.
  """
  if compilation is None or compilation.compiled is None:
    raise errors.TargetError(
      f"There is no executable for {target.cluster.name}: {target.obstacle}."
    )
  return compilation.compiled
