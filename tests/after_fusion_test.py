# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Schedules from a fused module: the same as from the beginning."""

from __future__ import annotations

from collections.abc import Callable

import jax
import pytest

from lagom_xla import cluster as cluster_lib
from lagom_xla.compile import after_fusion
from lagom_xla.compile import compiler
from lagom_xla.compile import config as config_lib
from lagom_xla.compile import lowered_step
from lagom_xla.compile import used_names
from lagom_xla.passes import hlo_pb2

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
)


@pytest.fixture(scope="module")
def lowered(
  fsdp_step: Callable[..., jax.stages.Lowered],
) -> lowered_step.LoweredStep:
  return lowered_step.LoweredStep(fsdp_step(), _H100S)


@pytest.fixture(scope="module")
def fused(lowered: lowered_step.LoweredStep) -> hlo_pb2.HloModuleProto:
  request = lowered.request({compiler.ESTIMATES: False}, None)
  assert request is not None
  module = after_fusion.fused_module(lowered.name, _H100S, request)
  assert module is not None
  return module


@pytest.mark.parametrize("options", _KNOBS, ids=str)
def test_a_fused_module_is_scheduled_as_its_program(
  lowered: lowered_step.LoweredStep,
  fused: hlo_pb2.HloModuleProto,
  options: dict[str, int | bool],
) -> None:
  request = lowered.request({**_ESTIMATES, **options}, None)
  assert request is not None
  got = after_fusion.schedule(fused, _H100S, request)
  assert got is not None
  config = config_lib.XlaConfig(options=options)
  assert used_names.are_equal(compiler.schedule(lowered, config).proto, got)


def test_a_knob_changes_what_is_scheduled(
  lowered: lowered_step.LoweredStep, fused: hlo_pb2.HloModuleProto
) -> None:
  def of(options: dict[str, int | bool]) -> hlo_pb2.HloModuleProto:
    request = lowered.request(options, None)
    assert request is not None
    module = after_fusion.schedule(fused, _H100S, request)
    assert module is not None
    return module

  threshold = {"xla_gpu_all_gather_combine_threshold_bytes": 0}
  assert not used_names.are_alike(of({}), of(threshold))


def test_options_of_passes_before_fusion_are_not_shared() -> None:
  options = {"xla_gpu_enable_pipelined_all_gather": True, _IN_FLIGHT: 4}
  assert after_fusion.before(options) == {
    "xla_gpu_enable_pipelined_all_gather": True
  }


def test_what_chooses_passes_itself_compiles_from_the_beginning() -> None:
  assert after_fusion.is_possible([_IN_FLIGHT])
  assert not after_fusion.is_possible(["xla_disable_hlo_passes"])
