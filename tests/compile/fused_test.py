# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Compiles that leave parts out: those before fusion, and those of code.

The step of `sgd_steps.lower_wide` fits an L40S of 48 GB, and one of 24 GB only
if XLA computes activations again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
import functools
from typing import Any

import jax
import pytest

import compiles
from lagom_xla import cluster as cluster_lib
from lagom_xla import temporary
from lagom_xla.compile import compiler
from lagom_xla.compile import config as config_lib
from lagom_xla.compile import deviceless
from lagom_xla.compile import devices as devices_lib
from lagom_xla.compile import fused as fused_lib
from lagom_xla.compile import job as job_lib
from lagom_xla.compile import lowered as lowered_lib
from lagom_xla.compile import xla
from lagom_xla.jax_internals import request as request_lib
from lagom_xla.passes import hlo
from lagom_xla.passes import hlo_pb2
from lagom_xla.passes import registry
from lagom_xla.passes.schedule import digest
from lagom_xla.passes.schedule import memory as memory_lib
import sgd_steps

_Options = Mapping[str, bool | int | float | str]
_NO_RECOMPUTING = {"xla_disable_hlo_passes": "rematerialization"}
_ALLOC, _FREE, _SHARE_WITH = 0, 1, 2


def _cluster(device_bytes: float) -> cluster_lib.Cluster:
  gpu = {"base": "l40s", "hbm_bytes": int(device_bytes)}
  return cluster_lib.from_dict(
    {"num_nodes": 1, "gpus_per_node": 8, "gpu": gpu}, where="a test"
  )


@functools.cache
def _wide_step(device_bytes: float) -> lowered_lib.LoweredStep:
  if registry.plugin_path() is None:
    pytest.skip("JAX's CUDA plugin is not installed (extra aot)")
  cluster = _cluster(device_bytes)
  lowered = sgd_steps.lower_wide(devices_lib.devices(cluster))
  return lowered_lib.LoweredStep(lowered, cluster)


def _job(lowered: lowered_lib.LoweredStep, options: _Options) -> job_lib.Job:
  request = lowered.request(options, None)
  assert request is not None
  return job_lib.Job(
    name=lowered.name, cluster=lowered.cluster, request=request, stage=None
  )


def _fused(job: job_lib.Job) -> hlo_pb2.HloModuleProto:
  """The module that others go on from."""
  scheduled, fused = fused_lib.from_the_beginning(job)
  assert scheduled is not None and fused is not None
  return fused


@functools.cache
def _fused_wide(device_bytes: float) -> hlo_pb2.HloModuleProto:
  return _fused(_job(_wide_step(device_bytes), {}))


def _compile_wide(device_bytes: float, options: _Options) -> Any:
  job = _job(_wide_step(device_bytes), options)
  return request_lib.compile(job.request, devices_lib.devices(job.cluster))


def _before_code(device_bytes: float, options: _Options) -> xla.Assigned:
  with temporary.folder() as folder:
    ending = xla.options_before_code(_wide_step(device_bytes).name, folder)
    return xla.until_assigned(
      folder, lambda: _compile_wide(device_bytes, {**ending, **options})
    )


@pytest.mark.parametrize("device_bytes", [48e9, 24e9])
def test_module_and_memory_are_those_of_the_executable(
  device_bytes: float,
) -> None:
  if _cluster(device_bytes).gpu.compile_obstacle:
    pytest.skip("there is no compile to the end to compare with")
  expected = xla.assigned(_compile_wide(device_bytes, {}))
  found = _before_code(device_bytes, {})
  assert found.peak_bytes == expected.peak_bytes
  modules = [hlo.Module(it.module) for it in (found, expected)]
  assert compiles.text(modules[0]) == compiles.text(modules[1])
  is_short = device_bytes == 24e9
  assert bool(memory_lib.recomputed(modules[1])) == is_short


@pytest.mark.parametrize(
  "options",
  [
    {},
    {"xla_gpu_all_reduce_combine_threshold_bytes": 0},
    {"xla_gpu_enable_latency_hiding_scheduler": True},
    _NO_RECOMPUTING,
  ],
  ids=str,
)
@pytest.mark.parametrize("device_bytes", [48e9, 24e9])
def test_from_a_fused_module_it_runs_the_same_in_as_much_memory(
  device_bytes: float, options: _Options
) -> None:
  ended = fused_lib.end_from_fused(
    _fused_wide(device_bytes), _job(_wide_step(device_bytes), options)
  )
  assert ended is not None
  _, found = ended
  expected = _before_code(device_bytes, options)
  assert digest.of(found.module) == digest.of(expected.module)
  assert found.peak_bytes == expected.peak_bytes
  is_recomputed = bool(memory_lib.recomputed(hlo.Module(found.module)))
  is_short = device_bytes == 24e9
  assert is_recomputed == (is_short and options != _NO_RECOMPUTING)


def test_what_xla_refuses_it_still_refuses() -> None:
  with pytest.raises(Exception, match="xla_no_such_option"):
    _before_code(48e9, {"xla_no_such_option": True})


@pytest.mark.parametrize(
  ("options", "flags", "is_possible"),
  [
    ([], "", True),
    (["xla_gpu_enable_latency_hiding_scheduler"], "", True),
    (["xla_dump_to"], "", False),
    ([], "--xla_dump_to=dumps", True),
    ([], "--xla_gpu_kernel_cache_file=kernels", False),
    ([], "flags.txt", False),
  ],
)
def test_where_a_config_dumps_or_kernels_are_kept_it_compiles_to_the_end(
  monkeypatch: pytest.MonkeyPatch,
  options: list[str],
  flags: str,
  is_possible: bool,
) -> None:
  monkeypatch.setenv("XLA_FLAGS", flags)
  assert xla.can_end_before_code(options) == is_possible


@pytest.mark.parametrize(
  ("sizes", "lasting", "events", "peak_bytes"),
  [
    # Of 30, 20 and 7 at most 50 are live.
    (
      {1: 100, 2: 30, 3: 20, 4: 7},
      [1],
      [(_ALLOC, 2), (_ALLOC, 3), (_FREE, 2), (_ALLOC, 4)],
      100 + 30 + 20,
    ),
    # 4 comes while 3, in the memory of 2, is still read; or after that.
    (
      {1: 1, 2: 30, 3: 30, 4: 7},
      [1],
      [(_ALLOC, 2), (_SHARE_WITH, 3, 2), (_FREE, 2), (_ALLOC, 4)],
      1 + 30 + 7,
    ),
    (
      {1: 1, 2: 30, 3: 30, 4: 7},
      [1],
      [(_ALLOC, 2), (_SHARE_WITH, 3, 2), (_FREE, 2), (_FREE, 3), (_ALLOC, 4)],
      1 + 30,
    ),
    # An argument counts once, though results are in its memory.
    ({1: 64, 2: 48}, [1, 2], [], 64),
  ],
)
def test_peak_is_what_lasts_and_what_is_live_at_once(
  sizes: dict[int, int],
  lasting: list[int],
  events: Sequence[tuple[int, ...]],
  peak_bytes: int,
) -> None:
  assignment = hlo_pb2.BufferAssignmentProto()
  for id_, size in sizes.items():
    assignment.logical_buffers.add(id=id_, size=size)
  allocation = assignment.buffer_allocations.add(
    is_entry_computation_parameter=True
  )
  for id_ in lasting:
    allocation.assigned.add(logical_buffer_id=id_)
  trace = assignment.heap_simulator_traces.add()
  for kind, id_, *canonical in events:
    trace.events.add(
      kind=kind, buffer_id=id_, share_with_canonical_id=sum(canonical)
    )
  assert xla.peak_bytes_of(assignment) == peak_bytes


_H100S = cluster_lib.parse("1x8xh100")
_IN_FLIGHT = "xla_gpu_experimental_parallel_collective_overlap_limit"
_ESTIMATES = {compiler.ESTIMATES: True}

_KNOBS = (
  {},
  {"xla_gpu_all_gather_combine_threshold_bytes": 0},
  {"xla_gpu_all_gather_combine_threshold_bytes": 2**30},
  {"xla_gpu_reduce_scatter_combine_threshold_bytes": 0},
  {"xla_gpu_all_reduce_combine_threshold_bytes": 2**30},
  {"xla_gpu_experimental_enable_heuristic_collective_combining": True},
  {_IN_FLIGHT: 4},
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
  {"xla_gpu_enable_while_loop_double_buffering": True},
  {"xla_gpu_enable_dus_accumulator_zero_init_elimination": True},
  {"xla_disable_hlo_passes": "rematerialization"},
)


@pytest.fixture(scope="module")
def lowered(
  fsdp_step: Callable[..., jax.stages.Lowered],
) -> lowered_lib.LoweredStep:
  return lowered_lib.LoweredStep(fsdp_step(), _H100S)


@pytest.fixture(scope="module")
def fused(lowered: lowered_lib.LoweredStep) -> hlo_pb2.HloModuleProto:
  return _fused(_sent(lowered, {}))


@pytest.mark.parametrize("options", _KNOBS, ids=str)
def test_a_fused_module_is_scheduled_as_its_program(
  lowered: lowered_lib.LoweredStep,
  fused: hlo_pb2.HloModuleProto,
  options: _Options,
) -> None:
  got = fused_lib.schedule_from_fused(fused, _sent(lowered, options))
  assert got is not None
  expected = compiler.schedule(lowered, config_lib.XlaConfig(options=options))
  assert digest.of(expected.proto) == digest.of(got)


def test_a_schedule_with_library_calls_shows_neither_what_made_it(
  lowered: lowered_lib.LoweredStep,
) -> None:
  library: _Options = {"xla_gpu_enable_triton_gemm": False}
  fused = _fused(_sent(lowered, library))
  options = {**library, _IN_FLIGHT: 4}
  got = fused_lib.schedule_from_fused(fused, _sent(lowered, options))
  assert got is not None
  expected = compiler.schedule(lowered, config_lib.XlaConfig(options=options))
  calls = [i for i in expected.entry.instructions if i.custom_call_target]
  assert any("cublas" in i.custom_call_target for i in calls)
  assert digest.of(expected.proto) == digest.of(got)


def test_a_module_is_proven_if_it_becomes_what_its_program_does(
  lowered: lowered_lib.LoweredStep, fused: hlo_pb2.HloModuleProto
) -> None:
  job = _sent(lowered, {})

  def proven(options: _Options) -> hlo_pb2.HloModuleProto | None:
    config = config_lib.XlaConfig(options=options)
    scheduled = compiler.schedule(lowered, config).proto
    return fused_lib.proven(scheduled, fused, job)

  again, found = fused_lib.schedule_from_fused(fused, job), proven({})
  assert found is not None and again is not None
  assert compiles.text(hlo.Module(found)) == compiles.text(hlo.Module(again))
  assert proven({"xla_gpu_all_gather_combine_threshold_bytes": 0}) is None


def test_options_of_passes_before_fusion_are_not_shared() -> None:
  options = {
    "xla_gpu_enable_pipelined_all_gather": True,
    "xla_disable_hlo_passes": "rematerialization",
    "xla_gpu_enable_command_buffer": "",
    _IN_FLIGHT: 4,
  }
  assert fused_lib.options_before_fusion(options) == {
    "xla_gpu_enable_pipelined_all_gather": True
  }


@pytest.mark.parametrize(
  ("disabled", "may_share"),
  [
    ("rematerialization", True),
    ("rematerialization,config-assigner", True),
    ("rematerialization,gpu-all-gather-combiner", False),
  ],
)
def test_what_chooses_passes_itself_compiles_from_the_beginning(
  disabled: str, may_share: bool
) -> None:
  disabling = {"xla_disable_hlo_passes": disabled}
  assert fused_lib.may_share(disabling) == may_share


def test_dumps_for_a_job_are_not_in_the_way(
  lowered: lowered_lib.LoweredStep, monkeypatch: pytest.MonkeyPatch
) -> None:
  monkeypatch.setenv("XLA_FLAGS", "--xla_dump_to=dumps")
  asked = deviceless.asked(
    lowered, _ESTIMATES, keeps_names=False, generates_code=False
  )
  assert fused_lib.may_share(asked)
  assert not fused_lib.may_share({"xla_dump_to": "mine"})


def _sent(lowered: lowered_lib.LoweredStep, options: _Options) -> job_lib.Job:
  """What a worker gets for a schedule."""
  asked = deviceless.asked(
    lowered,
    {**_ESTIMATES, **options},
    keeps_names=False,
    generates_code=False,
  )
  return _job(lowered, asked)
