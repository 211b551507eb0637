# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Jobs of several processes are tuned on GPUs like one, and end as under jit.

Their step has an all-reduce for each layer, with nothing beside it. Proposals
run all-reduces beside products, or let XLA combine them.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
import dataclasses
import functools
import json
import pathlib
import signal
import threading
import time
from typing import Any
import warnings

import jax
import jax.numpy as jnp
from jax.sharding import AxisType
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec

import fixed_proposals
import gpu_jobs
import lagom_xla
from lagom_xla.compile import config as config_lib
from lagom_xla.live import gpu
from lagom_xla.live import proposals as proposals_lib
import live_job
import live_step
import signalled

_NUM_LAYERS, _SIZE, _NUM_ROWS = 2, 1024, 128
# In ms: products take 20 and all-reduces 17 on two devices, 25 on four.
_SETTINGS = {"kernels": "4000 gemm\n4000 nvjet\n", "LINK_GBPS": 0.5}
_FLAGS = (
  "--xla_gpu_all_reduce_combine_threshold_bytes=1",
  "--xla_gpu_disable_async_collectives=ALLREDUCE",
  # NCCL's all-reduces make ranks wait for each other.
  "--xla_gpu_unsupported_use_all_reduce_one_shot_kernel=false",
  # Quick compiles.
  "--xla_gpu_autotune_level=0",
  "--xla_backend_optimization_level=0",
  "--xla_llvm_disable_expensive_passes=true",
)
_OPTIONS = {
  "combined": {"xla_gpu_all_reduce_combine_threshold_bytes": 2**30},
  "overlapped": {"xla_gpu_disable_async_collectives": ""},
}
_ENDED = "ended.json"
# A job that is not tuned.
_JIT = "jit"
_ABORTED, _KILLED = -signal.SIGABRT, -signal.SIGKILL
_INTERRUPTED = -signal.SIGINT


@dataclasses.dataclass(kw_only=True)
class _Proposer(fixed_proposals.Proposer):
  """Makes its proposals after collectives were traced.

  It compiles proposals with additional options.
  """

  beside: dict[str, str]

  def proposals(
    self,
    lowered: jax.stages.Lowered,
    measured: proposals_lib.Measured,
    stop: threading.Event,
  ) -> Generator[proposals_lib.Proposal, None, None]:
    assert measured.trace_dir is not None
    (trace,) = measured.trace_dir.rglob("*.xplane.pb")
    assert b"ncclDevKernel_AllReduce" in trace.read_bytes()
    yield from super().proposals(lowered, measured, stop)

  def compile(
    self, lowered: jax.stages.Lowered, payload: bytes
  ) -> jax.stages.Compiled:
    proposed = gpu.read(payload)
    xla = proposed.xla.with_options(self.beside)
    changed = dataclasses.replace(proposed, xla=xla)
    return super().compile(lowered, changed.to_bytes())


@dataclasses.dataclass(frozen=True)
class _Meeting:
  """A signal to some processes between two calls, in a state."""

  state: str
  number: signal.Signals
  ranks: tuple[int, ...]

  @property
  def ends(self) -> bool:
    """Whether it ends a process, here as under jit."""
    return self.number != signal.SIGTERM  # JAX treats it as a notice.

  def is_here(self, rank: int, report: str) -> bool:
    """Whether a process gets it after a call."""
    if rank not in self.ranks:
      return False
    if self.state == "searching" and not signalled.has_search():
      return False
    return self.state == _JIT or f"now: {self.state}" in report


def _shardings() -> tuple[NamedSharding, NamedSharding]:
  """Shardings of rows, split over all devices, and of replicated arrays."""
  mesh = jax.make_mesh(
    (jax.device_count(),), ("data",), axis_types=(AxisType.Auto,)
  )
  rows = NamedSharding(mesh, PartitionSpec("data"))
  return rows, NamedSharding(mesh, PartitionSpec())


def _train(
  rank: int,
  *,
  meeting: _Meeting,
  names: tuple[str, ...],
  odd: dict[str, str] | None = None,
) -> None:
  """Trains until tuning or a signal ends it; writes the variants that ran."""
  rows, whole = _shardings()

  def begin() -> tuple[list[jax.Array], jax.Array]:
    weights = [jnp.zeros((_SIZE, _SIZE)) for _ in range(_NUM_LAYERS)]
    return weights, jnp.zeros((_NUM_ROWS * jax.device_count(), _SIZE))

  def loss(weights: list[jax.Array], x: jax.Array) -> jax.Array:
    for weight in weights:
      x = x @ weight
    return (x**2).mean()

  def train_step(
    weights: list[jax.Array], x: jax.Array
  ) -> tuple[list[jax.Array], jax.Array]:
    value, gradients = jax.value_and_grad(loss)(weights, x)
    return [w - g for w, g in zip(weights, gradients, strict=True)], value

  weights, x = jax.jit(begin, out_shardings=(whole, rows))()
  step: Any = jax.jit(train_step)
  is_tuned = meeting.state != _JIT
  proposer = _Proposer(
    cluster=proposals_lib.of_live_gpus(),
    num_workers=0,
    beside=(odd or {}) if rank == 1 else {},
    configs={
      name: config_lib.XlaConfig(options=_OPTIONS[name]) for name in names
    },
    searches=meeting.state == "searching",
  )
  variants: list[int] = []
  report = ""
  with live_step.proposed_by(
    proposer, waits_for="nothing", now_s=time.perf_counter
  ):
    if is_tuned:
      step = lagom_xla.tune(step, log=signalled.LOG, cache=signalled.PLANS)
    while meeting.ends or not live_job.is_done(report):
      weights, value = step(weights, x)
      value.block_until_ready()
      if is_tuned:
        report = step.report()
        assert "now: stopped" not in report
        variants.append(step._current.variant)
      if meeting.is_here(rank, report):
        signal.raise_signal(meeting.number)
  pathlib.Path(f"trained{rank}").write_text(json.dumps((variants, report)))


def _predict(rank: int) -> None:
  """Calls a step tuned on predictions, and writes the result."""
  rows, whole = _shardings()
  zeros = jnp.zeros((256, 256))
  weight, x = jax.jit(lambda: (zeros, zeros), out_shardings=(whole, rows))()
  step = lagom_xla.tune(
    jax.jit(lambda weight, x: ((x @ weight) ** 2).mean()), measure=False
  )
  with warnings.catch_warnings():
    warnings.simplefilter("error")
    step(weight, x).block_until_ready()
  pathlib.Path(f"trained{rank}").write_text(step.report())


def _run(*stages: dict[str, gpu_jobs.Job]) -> None:
  """Runs jobs; those of later stages use the compiles of earlier ones."""
  statuses: dict[str, list[int]] = {}
  orphans: list[int] = []
  for stage in stages:
    ended = gpu_jobs.run(stage)
    statuses |= ended.statuses
    orphans += ended.orphans
  ended = gpu_jobs.Ended(statuses, orphans)
  pathlib.Path(_ENDED).write_text(json.dumps(dataclasses.asdict(ended)))


def a_job_of_four() -> None:
  train = functools.partial(
    _train,
    meeting=_Meeting("measuring", signal.SIGTERM, (0, 2)),
    names=("combined", "overlapped"),
    odd={
      "xla_disable_hlo_passes": "all-reduce-combiner,gpu-all-reduce-combiner"
    },
  )
  _run({"job": gpu_jobs.Job(train, 4)})


def a_job_on_predictions() -> None:
  autotuned = {rank: {"XLA_FLAGS": ""} for rank in range(2)}
  _run({"job": gpu_jobs.Job(_predict, variables=autotuned)})


def jobs_that_end_early() -> None:
  def met(
    state: str,
    number: signal.Signals,
    *ranks: int,
    name: str = "overlapped",
    **options: Any,
  ) -> gpu_jobs.Job:
    meeting = _Meeting(state, number, ranks)
    train = functools.partial(_train, meeting=meeting, names=(name,))
    return gpu_jobs.Job(train, **options)

  # This candidate takes time to compile, as no earlier job compiled it.
  new = {"name": "combined"}
  alone = {"shutdown_s": 5}
  _run(
    {"watching": met("watching", signal.SIGKILL, 0)},
    {
      _JIT: met(_JIT, signal.SIGKILL, 1),
      "baseline": met("baseline", signal.SIGKILL, 0),
      "profiling": met("profiling", signal.SIGKILL, 1),
      "searching": met("searching", signal.SIGKILL, 0),
      "compiling": met("compiling", signal.SIGKILL, 0, **new),
      "measuring": met("measuring", signal.SIGKILL, 1),
      "Ctrl-C to all": met("compiling", signal.SIGINT, 0, 1, **new),
      "Ctrl-C to one": met("measuring", signal.SIGINT, 0, **alone),
      "Ctrl-C under jit": met(_JIT, signal.SIGINT, 0, **alone),
    },
  )


def _ended(
  on_gpus: Callable[..., str], folder: pathlib.Path, jobs: Callable[[], None]
) -> gpu_jobs.Ended:
  """The ends of jobs that share their compiles."""
  variables = {
    "JAX_COMPILATION_CACHE_DIR": str(folder / "compiled"),
    "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
    "XLA_FLAGS": " ".join(_FLAGS),
  }
  on_gpus(jobs, num_devices=1, variables=variables, **_SETTINGS)
  return gpu_jobs.Ended(**json.loads((folder / _ENDED).read_text()))


def test_four_processes_run_the_same_variant_at_each_call(on_gpus, tmp_path):
  ended = _ended(on_gpus, tmp_path, a_job_of_four)
  folder = tmp_path / "job"
  assert ended.statuses["job"] == [0] * 4, gpu_jobs.said(folder, 4)
  variants, reports = zip(
    *(json.loads((folder / f"trained{i}").read_text()) for i in range(4)),
    strict=True,
  )
  assert all(theirs == variants[0] for theirs in variants)
  # jit's step, the build for profiling, and the adopted variant.
  assert set(variants[0]) == {0, -1, 2}
  assert "combined: not measured: process 1 got another result" in (reports[0])
  assert "overlapped: 0." in reports[0] and ", adopted" in reports[0]
  # The first process writes for all.
  assert signalled.num_trials(folder) == 2
  assert signalled.num_plans(folder) == 1


def test_the_first_process_can_search_while_no_other_one_compiles(
  on_gpus, tmp_path
):
  ended = _ended(on_gpus, tmp_path, a_job_on_predictions)
  folder = tmp_path / "job"
  assert ended.statuses["job"] == [0, 0], gpu_jobs.said(folder, 2)
  one, other = ((folder / f"trained{i}").read_text() for i in range(2))
  assert "per step by default and" in one
  assert "runs with the plan of process 0, predicted " in other
  assert other.endswith("not measured")


def test_jobs_end_as_under_jit_in_every_tuning_state(on_gpus, tmp_path):
  ended = _ended(on_gpus, tmp_path, jobs_that_end_early)
  said = "".join(gpu_jobs.said(tmp_path / it, 2) for it in ended.statuses)
  assert ended.statuses == {
    "watching": [_KILLED, _ABORTED],
    _JIT: [_ABORTED, _KILLED],
    "baseline": [_KILLED, _ABORTED],
    "profiling": [_ABORTED, _KILLED],
    "searching": [_KILLED, _ABORTED],
    "compiling": [_KILLED, _ABORTED],
    "measuring": [_ABORTED, _KILLED],
    "Ctrl-C to all": [_INTERRUPTED, _INTERRUPTED],
    "Ctrl-C to one": [_ABORTED, _ABORTED],
    "Ctrl-C under jit": [_ABORTED, _ABORTED],
  }, said
  # A search that is not killed runs to its end and exits with 0, as do
  # compilers that XLA has started.
  assert any(ended.orphans), ended.orphans
  for name in ended.statuses:  # What was written can be read.
    num_trials = signalled.num_trials(tmp_path / name)
    assert num_trials == (name == "watching")
    assert signalled.num_plans(tmp_path / name) <= num_trials
  assert not list((tmp_path / "Ctrl-C to all" / signalled.TEMPORARY).iterdir())
