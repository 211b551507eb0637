# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Schedules from a fused module, which for this step are XLA's own."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import jax
import pytest

import compiles
from lagom_xla import cluster as cluster_lib
from lagom_xla.compile import compiler
from lagom_xla.compile import config as config_lib
from lagom_xla.compile import deviceless
from lagom_xla.compile import fused as fused_lib
from lagom_xla.compile import lowered as lowered_lib
from lagom_xla.jax_internals import request as request_lib
from lagom_xla.passes import hlo
from lagom_xla.passes import hlo_pb2
from lagom_xla.passes.schedule import digest

_H100S = cluster_lib.parse("1x8xh100")
_IN_FLIGHT = "xla_gpu_experimental_parallel_collective_overlap_limit"
_ESTIMATES = {compiler.ESTIMATES: True}
_Options = Mapping[str, int | bool | str]

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
  return _fused(lowered, {})


@pytest.mark.parametrize("options", _KNOBS, ids=str)
def test_a_fused_module_is_scheduled_as_its_program(
  lowered: lowered_lib.LoweredStep,
  fused: hlo_pb2.HloModuleProto,
  options: _Options,
) -> None:
  got = fused_lib.schedule_from_fused(fused, _H100S, _request(lowered, options))
  assert got is not None
  expected = compiler.schedule(lowered, config_lib.XlaConfig(options=options))
  assert digest.of(expected.proto) == digest.of(got)


def test_a_schedule_with_library_calls_shows_neither_what_made_it(
  lowered: lowered_lib.LoweredStep,
) -> None:
  library: _Options = {"xla_gpu_enable_triton_gemm": False}
  fused = _fused(lowered, library)
  request = _request(lowered, {**library, _IN_FLIGHT: 4})
  got = fused_lib.schedule_from_fused(fused, _H100S, request)
  assert got is not None
  config = config_lib.XlaConfig(options={**library, _IN_FLIGHT: 4})
  expected = compiler.schedule(lowered, config)
  calls = [i for i in expected.entry.instructions if i.custom_call_target]
  assert any("cublas" in i.custom_call_target for i in calls)
  assert digest.of(expected.proto) == digest.of(got)


def test_a_knob_changes_what_is_scheduled(
  lowered: lowered_lib.LoweredStep, fused: hlo_pb2.HloModuleProto
) -> None:
  def of(options: _Options) -> hlo_pb2.HloModuleProto:
    request = _request(lowered, options)
    module = fused_lib.schedule_from_fused(fused, _H100S, request)
    assert module is not None
    return module

  threshold = {"xla_gpu_all_gather_combine_threshold_bytes": 0}
  assert digest.of(of({})) != digest.of(of(threshold))


def test_a_module_is_proven_if_it_becomes_what_its_program_does(
  lowered: lowered_lib.LoweredStep, fused: hlo_pb2.HloModuleProto
) -> None:
  def proven(options: _Options) -> hlo_pb2.HloModuleProto | None:
    config = config_lib.XlaConfig(options=options)
    scheduled = compiler.schedule(lowered, config).proto
    return fused_lib.proven(scheduled, fused, _H100S, _request(lowered, {}))

  again = fused_lib.schedule_from_fused(fused, _H100S, _request(lowered, {}))
  found = proven({})
  assert found is not None and again is not None
  texts = [compiles.text(hlo.Module(it)) for it in (found, again)]
  assert texts[0] == texts[1]
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


def test_what_chooses_passes_itself_compiles_from_the_beginning() -> None:
  def is_possible(disabled: str) -> bool:
    return fused_lib.may_share({"xla_disable_hlo_passes": disabled})

  assert is_possible("rematerialization")
  assert is_possible("rematerialization,config-assigner")
  assert not is_possible("rematerialization,gpu-all-gather-combiner")


def test_dumps_for_a_job_are_not_in_the_way(
  lowered: lowered_lib.LoweredStep, monkeypatch: pytest.MonkeyPatch
) -> None:
  monkeypatch.setenv("XLA_FLAGS", "--xla_dump_to=dumps")
  asked = deviceless.asked(
    lowered, _ESTIMATES, keeps_names=False, generates_code=False
  )
  assert fused_lib.may_share(asked)
  assert not fused_lib.may_share({"xla_dump_to": "mine"})


def _request(
  lowered: lowered_lib.LoweredStep, options: _Options
) -> request_lib.Request:
  asked = deviceless.asked(
    lowered,
    {**_ESTIMATES, **options},
    keeps_names=False,
    generates_code=False,
  )
  request = lowered.request(asked, None)
  assert request is not None
  return request


def _fused(
  lowered: lowered_lib.LoweredStep, options: _Options
) -> hlo_pb2.HloModuleProto:
  """The module that others go on from."""
  scheduled, fused = fused_lib.from_the_beginning(
    lowered.name, _H100S, _request(lowered, options)
  )
  assert scheduled is not None
  assert fused is not None
  return fused
