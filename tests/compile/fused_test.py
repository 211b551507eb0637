# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Compiles that skip parts: those before fusion, and code generation.

The step of `sgd_steps.lower_wide` fits an L40S of 48 GB, but one of 24 GB only
if XLA recomputes activations.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
import dataclasses
from typing import Any

import jax
import pytest

import compiles
from lagom_xla import cluster as cluster_lib
from lagom_xla import errors
from lagom_xla import processes
from lagom_xla.compile import compiler
from lagom_xla.compile import config as config_lib
from lagom_xla.compile import deviceless
from lagom_xla.compile import devices as devices_lib
from lagom_xla.compile import fused as fused_lib
from lagom_xla.compile import job as job_lib
from lagom_xla.compile import lowered as lowered_lib
from lagom_xla.compile import pool as pool_lib
from lagom_xla.compile import xla
from lagom_xla.costs import step as step_lib
from lagom_xla.jax_internals import request as request_lib
from lagom_xla.passes import hlo
from lagom_xla.passes import hlo_pb2
from lagom_xla.passes.schedule import digest
from lagom_xla.passes.schedule import memory as memory_lib
import sgd_steps

_Options = Mapping[str, bool | int | float | str]
_NO_RECOMPUTING = {"xla_disable_hlo_passes": "rematerialization"}


@pytest.fixture(scope="module", params=[48e9, 24e9])
def wide(
  request: pytest.FixtureRequest, h100s: Sequence[jax.Device]
) -> lowered_lib.LoweredStep:
  """A step with enough memory, or with too little."""
  del h100s  # Only says whether there is anything to compile with.
  gpu = {"base": "l40s", "hbm_bytes": int(request.param)}
  cluster = cluster_lib.from_dict(
    {"num_nodes": 1, "gpus_per_node": 8, "gpu": gpu}, where="a test"
  )
  lowered = sgd_steps.lower_wide(devices_lib.devices(cluster))
  return lowered_lib.LoweredStep(lowered, cluster)


def _is_short(wide: lowered_lib.LoweredStep) -> bool:
  return wide.cluster.gpu.hbm_bytes == 24e9


def _job(
  lowered: lowered_lib.LoweredStep, options: lowered_lib.Options
) -> job_lib.Job:
  request = lowered.request(options)
  assert request is not None
  return job_lib.Job(
    name=lowered.name, cluster=lowered.cluster, request=request, stage=None
  )


def _fused(job: job_lib.Job) -> hlo_pb2.HloModuleProto:
  """The fused module from which other compiles continue."""
  scheduled, fused = fused_lib.from_the_beginning(job)
  assert scheduled is not None and fused is not None
  return fused


@pytest.fixture(scope="module")
def fused_wide(wide: lowered_lib.LoweredStep) -> hlo_pb2.HloModuleProto:
  return _fused(_job(wide, {}))


def _compiled(lowered: lowered_lib.LoweredStep, options: _Options) -> Any:
  request = _job(lowered, options).request
  return request_lib.compile(request, devices_lib.devices(lowered.cluster))


def _before_code(
  lowered: lowered_lib.LoweredStep, options: _Options
) -> xla.Assigned:
  with processes.temporary_folder() as folder:
    ending = xla.options_before_code(lowered.name, folder)
    return xla.until_assigned(
      folder, lambda: _compiled(lowered, {**ending, **options})
    )


def test_module_and_memory_before_code_equal_the_executables(wide):
  expected, found = xla.assigned(_compiled(wide, {})), _before_code(wide, {})
  assert found.peak_bytes == expected.peak_bytes
  modules = [hlo.Module(it.module) for it in (found, expected)]
  assert compiles.text(modules[0]) == compiles.text(modules[1])
  assert bool(memory_lib.recomputed(modules[1])) == _is_short(wide)
  with pytest.raises(Exception, match="xla_no_such_option"):
    _before_code(wide, {"xla_no_such_option": True})


@pytest.mark.parametrize(
  "options",
  [{"xla_gpu_enable_latency_hiding_scheduler": True}, _NO_RECOMPUTING],
  ids=str,
)
def test_a_compile_from_a_fused_module_has_the_same_module_and_memory(
  wide, fused_wide, options
):
  ended = fused_lib.end_from_fused(fused_wide, _job(wide, options))
  assert ended is not None
  _, found = ended
  expected = _before_code(wide, options)
  assert digest.of(found.module) == digest.of(expected.module)
  assert found.peak_bytes == expected.peak_bytes
  is_recomputed = bool(memory_lib.recomputed(hlo.Module(found.module)))
  may_recompute = options != _NO_RECOMPUTING
  assert is_recomputed == (_is_short(wide) and may_recompute)


@pytest.mark.parametrize(
  ("options", "flags", "is_possible"),
  [
    (["xla_gpu_enable_latency_hiding_scheduler"], "", True),
    (["xla_dump_to"], "", False),
    ([], "--xla_dump_to=dumps", True),
    ([], "--xla_gpu_kernel_cache_file=kernels", False),
    ([], "flags.txt", False),
  ],
)
def test_configs_that_dump_or_cache_kernels_are_compiled_to_the_end(
  monkeypatch, options, flags, is_possible
):
  monkeypatch.setenv("XLA_FLAGS", flags)
  assert xla.can_end_before_code(options) == is_possible


_IN_FLIGHT = compiles.IN_FLIGHT
_ESTIMATES = {compiler.ESTIMATES: True}

_KNOBS = (
  {
    "xla_gpu_all_gather_combine_threshold_bytes": 2**30,
    "xla_gpu_reduce_scatter_combine_threshold_bytes": 0,
    "xla_gpu_all_reduce_combine_threshold_bytes": 2**30,
  },
  {"xla_gpu_experimental_enable_heuristic_collective_combining": True},
  {
    _IN_FLIGHT: 4,
    "xla_gpu_experimental_collective_start_as_early_as_possible": True,
  },
  {"xla_gpu_memory_limit_slop_factor": 1},
  {"xla_gpu_enable_latency_hiding_scheduler": False},
  {
    "xla_gpu_enable_analytical_sol_latency_estimator": False,
    "xla_gpu_enable_latency_hiding_scheduler": True,
  },
  {
    "xla_gpu_enable_while_loop_double_buffering": True,
    "xla_gpu_enable_dus_accumulator_zero_init_elimination": True,
  },
  _NO_RECOMPUTING,
)


@pytest.fixture(scope="module")
def lowered(
  fsdp_step: Callable[..., jax.stages.Lowered],
) -> lowered_lib.LoweredStep:
  return lowered_lib.LoweredStep(fsdp_step(), compiles.H100S)


@pytest.fixture(scope="module")
def fused(lowered: lowered_lib.LoweredStep) -> hlo_pb2.HloModuleProto:
  return _fused(_sent(lowered, {}))


@pytest.mark.parametrize("options", _KNOBS, ids=str)
def test_a_fused_module_is_scheduled_like_its_program(lowered, fused, options):
  got = fused_lib.schedule_from_fused(fused, _sent(lowered, options))
  assert got is not None
  expected = compiler.schedule(lowered, config_lib.XlaConfig(options=options))
  assert digest.of(expected.proto) == digest.of(got)


def test_a_fused_module_is_proven_only_if_its_schedule_is_the_programs(
  lowered, fused
):
  job = _sent(lowered, {})

  def proven(options: _Options) -> hlo_pb2.HloModuleProto | None:
    config = config_lib.XlaConfig(options=options)
    scheduled = compiler.schedule(lowered, config).proto
    return fused_lib.proven(scheduled, fused, job)

  again, found = fused_lib.schedule_from_fused(fused, job), proven({})
  assert found is not None and again is not None
  assert compiles.text(hlo.Module(found)) == compiles.text(hlo.Module(again))
  assert proven({"xla_gpu_all_gather_combine_threshold_bytes": 0}) is None


@pytest.mark.parametrize(
  ("disabled", "may_share"),
  [
    ("rematerialization", True),
    ("rematerialization,config-assigner", True),
    ("rematerialization,gpu-all-gather-combiner", False),
  ],
)
def test_configs_that_disable_other_passes_share_no_fused_module(
  disabled, may_share
):
  disabling = {"xla_disable_hlo_passes": disabled}
  assert fused_lib.may_share(disabling) == may_share


def test_dumps_set_in_xla_flags_do_not_prevent_sharing(lowered, monkeypatch):
  monkeypatch.setenv("XLA_FLAGS", "--xla_dump_to=dumps")
  assert fused_lib.may_share(_asked(lowered, _ESTIMATES))
  assert not fused_lib.may_share({"xla_dump_to": "mine"})


def _sent(lowered: lowered_lib.LoweredStep, options: _Options) -> job_lib.Job:
  """The job of a worker for a schedule."""
  return _job(lowered, _asked(lowered, {**_ESTIMATES, **options}))


# Schedules skip work that only code generation needs.

_AUTOTUNER = "xla_gpu_experimental_enable_fusion_autotuner"
_TILING = "xla_gpu_experimental_enable_tiling_propagation"
_DISABLE = "xla_disable_hlo_passes"
_CONFIGS = "config-assigner"
_FOUR: _Options = {_IN_FLIGHT: 4}


@pytest.fixture(scope="module")
def pool() -> Iterator[pool_lib.Pool]:
  with pool_lib.Pool(2) as pool:
    yield pool


def _asked(
  lowered: lowered_lib.LoweredStep, options: _Options, **flags: bool
) -> lowered_lib.Options:
  flags = {"keeps_names": False, "generates_code": False, **flags}
  return deviceless.asked(lowered, options, **flags)


@pytest.mark.parametrize(
  ("options", "flags", "asked"),
  [
    (
      _FOUR,
      {},
      {_AUTOTUNER: False, _TILING: False, _DISABLE: _CONFIGS, **_FOUR},
    ),
    # Names stay where a job must find them.
    ({}, {"keeps_names": True}, {_AUTOTUNER: False, _DISABLE: _CONFIGS}),
    # Code generation needs tiles.
    ({}, {"generates_code": True}, {_AUTOTUNER: False}),
    # Options of a config take precedence.
    (
      {_AUTOTUNER: True, _TILING: True, _DISABLE: "algsimp"},
      {},
      {_AUTOTUNER: True, _TILING: True, _DISABLE: f"algsimp,{_CONFIGS}"},
    ),
  ],
)
def test_schedules_skip_work_that_only_code_generation_needs(
  lowered, options, flags, asked
):
  assert _asked(lowered, options, **flags) == asked


def test_values_set_in_xla_flags_are_kept(lowered, monkeypatch):
  flags = f"--{_TILING}=true --{_DISABLE}=algsimp"
  monkeypatch.setenv("XLA_FLAGS", flags)
  assert _asked(lowered, {}) == {_AUTOTUNER: False}


def test_options_are_unchanged_for_cpu_devices_or_a_gpu_backend(
  lowered, monkeypatch
):
  step = jax.jit(lambda x: x + 1).lower(1.0)
  on_cpus = lowered_lib.LoweredStep(step, compiles.H100S)
  assert _asked(on_cpus, {}) == {}
  monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
  assert _asked(lowered, _FOUR) == _FOUR


def test_skipped_work_does_not_change_the_schedule_or_its_time(
  lowered, monkeypatch
):
  def found() -> tuple[list[list[str]], float]:
    module = compiler.schedule(lowered)
    step = step_lib.of_module(module, lowered.cluster)
    scheduled = [
      [i.name for i in computation.instructions if i.opcode != "bitcast"]
      for computation_id, computation in module.computations.items()
      if computation_id in module.executions
    ]
    return scheduled, step.timeline(step.default).step_time_us

  ours = found()
  monkeypatch.setattr(
    deviceless, "asked", lambda lowered, options, **_: options
  )
  assert ours == found()


def _refused(words: str) -> compiler.Pending[hlo.Module]:
  def result() -> hlo.Module:
    raise errors.CompileError(words)

  return compiler.Pending(result=result)


def test_tiling_propagation_is_used_if_xla_has_no_tiles_for_a_fusion(
  lowered, pool
):
  other = cluster_lib.parse("1x8xh200")  # The program is remembered.
  lowered = dataclasses.replace(lowered, cluster=other, workers=pool)
  asked: list[lowered_lib.Options] = []

  def run() -> compiler.Pending[int]:
    asked.append(_asked(lowered, {}))
    return compiler.Pending(result=lambda: len(asked))

  def num_runs(refusal: str) -> int:
    return compiler.propagated_if_refused(
      run, lambda: _refused(refusal), lowered
    ).result()

  # Other refusals are not retried.
  assert num_runs("no such option") == 1
  no_tiles = "INTERNAL: No supported config found for HLO: %d"
  if jax.__version_info__ < (0, 12):
    assert num_runs(no_tiles) == 2  # XLA chooses no tiles, and nobody asks.
    return
  assert num_runs(no_tiles) == 3
  _, first, second = asked
  assert first == {**second, _TILING: False}
  # Later compiles of the program use propagation at once.
  assert num_runs(no_tiles) == 4
  assert asked[-1] == second
