# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Slices that XLA starts ahead in loops, as it does from JAX 0.11 on.

Bytes are counted by hand from the shapes in `sliced_loop.hlo`.
"""

from __future__ import annotations

import dataclasses
import pathlib

import pytest

import hlo_text
from lagom_xla import cluster as cluster_lib
from lagom_xla.costs import lower_bound
from lagom_xla.costs import step as step_lib
from lagom_xla.costs.replay import recorder
from lagom_xla.passes import copies as copies_lib
from lagom_xla.passes import hlo
from lagom_xla.passes import overlap

_H100 = cluster_lib.parse("1x1xh100")
_TRIPS = 4
_WEIGHTS_BYTES = 512 * 512 * 2  # Of a layer.
_RESULT_BYTES = 1024 * 512 * 2
_CUT, _WRITTEN = "fusion-start", "fusion-start.1"


@pytest.fixture(scope="module")
def text() -> str:
  return (pathlib.Path(__file__).parents[1] / "sliced_loop.hlo").read_text()


@pytest.fixture(scope="module")
def step(text: str) -> step_lib.Step:
  return step_lib.of_module(hlo.load(text), _H100)


@pytest.fixture(scope="module")
def in_slow_memory(text: str) -> step_lib.Step:
  """The step where memory is so slow that nothing else counts."""
  gpu = dataclasses.replace(_H100.gpu, hbm_gbps=1.0, l2_bytes=0)
  return step_lib.of_module(hlo.load(text), dataclasses.replace(_H100, gpu=gpu))


def test_each_trip_copies_a_layers_weights_and_its_result(
  step: step_lib.Step,
) -> None:
  copies = step.analysis.copies.values()
  assert all(isinstance(copy, copies_lib.DeviceCopy) for copy in copies)
  assert {c.name: (c.num_bytes, c.executions) for c in copies} == {
    _CUT: (_WEIGHTS_BYTES, _TRIPS),
    _WRITTEN: (_RESULT_BYTES, _TRIPS),
  }


def test_all_that_xla_starts_in_a_train_step_is_a_collective_or_a_copy(
  fsdp_scan: hlo.Module,
) -> None:
  analysis = overlap.analyze(fsdp_scan)
  started = {
    instruction.id
    for computation in analysis.sequences
    for instruction in computation.instructions
    if instruction.opcode.endswith("-start")
  }
  assert started
  assert started <= analysis.started_by.keys() | analysis.copies.keys()
  assert not started & analysis.kernels.keys()


def test_no_copy_is_a_kernel(step: step_lib.Step) -> None:
  in_loop = {
    kernel.name
    for kernel in step.analysis.kernels.values()
    if kernel.executions == _TRIPS
  }
  assert in_loop == {"gemm_fusion_dot_general.1", "copy.8", "loop_add_fusion"}


def test_a_slice_that_computes_is_a_kernel(text: str) -> None:
  module = hlo.load(
    text.replace(
      "%bitcast.1.2 = bf16[1,1024,512]{2,1,0} bitcast(%param_2.4)",
      "%negated = bf16[1024,512]{1,0} negate(%param_2.4)\n"
      "  %bitcast.1.2 = bf16[1,1024,512]{2,1,0} bitcast(%negated)",
    )
  )
  analysis = step_lib.of_module(module, _H100).analysis
  assert [copy.name for copy in analysis.copies.values()] == [_CUT]
  assert _WRITTEN in {k.name for k in analysis.kernels.values()}


def test_a_whole_array_that_is_started_ahead_is_a_copy() -> None:
  # As with xla_gpu_async_copy_min_bytes, which JAX 0.12 has.
  array = "f32[1024]{0}"
  module = hlo_text.load(f"""
    p = {array} parameter(0)
    start = ({array}, {array}, u32[]) copy-start(p)
    {hlo_text.kernel("beside", 20.0)}
    ROOT done = {array} copy-done(start)
  """)
  analysis = overlap.analyze(module)
  (copy,) = analysis.copies.values()
  assert (copy.name, copy.num_bytes) == ("start", 1024 * 4)
  assert copy.done_id == module.entry.root.id
  assert [k.name for k in analysis.kernels.values()] == ["beside"]


def test_what_stands_beside_nothing_is_waited_for(step: step_lib.Step) -> None:
  replayed = step.timeline(step.default)
  (cut,) = [c for c in step.analysis.copies.values() if c.name == _CUT]
  lone_us = step.copy_cost(cut).time_us
  assert replayed.copy_wait_us[_CUT] == pytest.approx(_TRIPS * lone_us)
  # It reads and writes each byte at no more than the memory's rate.
  least_us = 2 * _WEIGHTS_BYTES / (1e3 * _H100.gpu.hbm_gbps)
  assert lone_us > least_us


def test_a_copy_and_a_kernel_that_memory_bounds_share_it(
  in_slow_memory: step_lib.Step,
) -> None:
  step = in_slow_memory
  (kernel,) = [k for k in step.analysis.kernels.values() if k.name == "copy.8"]
  (copy,) = [c for c in step.analysis.copies.values() if c.name == _WRITTEN]
  kernel_us = step.kernel_cost(kernel).time_us
  beside = step.costs(step.default).beside
  together = beside(step.kernel_cost(kernel), step.copy_cost(copy))
  # Half of the rate is left to the kernel; the copy asks for less than that.
  assert together.kernel_us == pytest.approx(2 * kernel_us, rel=0.15)
  assert 1.5 < together.collective_factor < 2


def test_a_copy_runs_beside_kernels_from_its_start_to_its_done(
  step: step_lib.Step,
) -> None:
  recorded = recorder.record(step.program, step.costs(step.default))
  slices = [s for s in recorded.slices if s.name == _WRITTEN]
  kernels = [s for s in recorded.slices if s.name == "copy.8"]
  first, beside = slices[0], kernels[0]
  assert first.stream == copies_lib.STREAM
  assert first.begin_us == pytest.approx(beside.begin_us)
  # Each takes longer for the other: neither has the memory for itself.
  assert beside.time_us > beside.lone_us
  assert first.time_us > first.lone_us


def test_a_step_takes_no_less_than_its_bound(
  in_slow_memory: step_lib.Step,
) -> None:
  step = in_slow_memory
  replayed = step.timeline(step.default)
  bound_us = lower_bound.us(step)
  # A product needs the slice before it, however else a loop is ordered.
  assert replayed.kernel_us < bound_us < replayed.step_time_us
  # The result goes beside a kernel, so not all copies add to the step.
  lost_us = replayed.total_copy_wait_us + replayed.total_copy_slowdown_us
  assert replayed.step_time_us == pytest.approx(replayed.kernel_us + lost_us)
