# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Copies to the host and slices started ahead: their bytes and their cost.

Bytes are counted by hand from the shapes in `sgd_steps.py` and
`sliced_loop.hlo`. XLA starts slices in loops ahead from JAX 0.11 on.
"""

from __future__ import annotations

import dataclasses
import io
import pathlib

import pytest
import rich.console

from commands import check_schema
import hlo_text
from lagom_xla import cluster as cluster_lib
from lagom_xla import validation
from lagom_xla.costs import in_words
from lagom_xla.costs import lower_bound
from lagom_xla.costs import step as step_lib
from lagom_xla.explain import explaining
from lagom_xla.passes import hlo
from lagom_xla.passes import overlap
from lagom_xla.report import explanations
from lagom_xla.report import results
from lagom_xla.report import terminal
import sgd_steps

_H100S = cluster_lib.parse("1x8xh100")
_LAYERS = sgd_steps.OFFLOADING_LAYERS
_LAYER_BYTES = sgd_steps.OFFLOADED_BYTES


@pytest.fixture(scope="module")
def scanned(h100s, scheduled) -> hlo.Module:
  return scheduled(sgd_steps.lower_offloading(h100s, unroll=False))


@pytest.fixture(scope="module")
def unrolled(h100s, scheduled) -> hlo.Module:
  return scheduled(sgd_steps.lower_offloading(h100s, unroll=True))


def _moved(module: hlo.Module) -> list[tuple[bool, int, int]]:
  """For each copy: whether it goes to the host, executions, and bytes."""
  copies = overlap.analyze(module).host_copies
  return sorted((bool(c.to_host), c.executions, c.num_bytes) for c in copies)


def _alone_us(step: step_lib.Step, *, to_host: bool) -> float:
  return sum(
    copy.executions * step.copy_cost(copy).time_us
    for copy in step.analysis.host_copies
    if copy.to_host == to_host
  )


def _with_link(gbps: float) -> cluster_lib.Cluster:
  link = cluster_lib.HostLink(gbps=gbps, effective_gbps=gbps)
  node = dataclasses.replace(_H100S.node, host_link=link)
  return dataclasses.replace(_H100S, node=node)


def test_each_layer_is_copied_to_the_host_and_back_once(scanned, unrolled):
  # A loop copies a slice on each trip; whole arrays share a stream.
  there_and_back = [
    (False, _LAYERS, _LAYER_BYTES),
    (True, _LAYERS, _LAYER_BYTES),
  ]
  assert _moved(scanned) == there_and_back
  once = [(to_host, 1, _LAYER_BYTES) for to_host in (False, True)]
  assert _moved(unrolled) == sorted(once * _LAYERS)
  for module, streams in (
    (scanned, {"to host", "to device"}),
    (unrolled, {"both ways"}),
  ):
    copies = overlap.analyze(module).host_copies
    assert {copy.stream for copy in copies} == streams
    assert all(copy.done_id is not None for copy in copies)


def test_host_copies_and_their_buffers_are_no_kernels(scanned, fsdp_scan):
  assert not overlap.analyze(fsdp_scan).host_copies
  analysis = overlap.analyze(scanned)
  assert not analysis.copies.keys() & analysis.kernels.keys()
  allocations = {
    i.id
    for i in scanned.entry.instructions
    if i.custom_call_target == "AllocateBuffer"
  }
  assert allocations
  assert not allocations & analysis.kernels.keys()


@pytest.mark.parametrize("module_name", ["scanned", "unrolled"])
def test_a_step_with_a_slow_host_link_takes_as_long_as_its_copies(
  module_name, request
):
  gbps = 1.0  # So slow that the link bounds the step.
  module = request.getfixturevalue(module_name)
  step = step_lib.of_module(module, _with_link(gbps))
  both_us = 2 * _LAYERS * _LAYER_BYTES / (1e3 * gbps)
  replayed = step.timeline(step.default)
  alone_us = _alone_us(step, to_host=True) + _alone_us(step, to_host=False)
  assert alone_us == pytest.approx(both_us)
  # The last layer returns as soon as it has been copied out, so nothing
  # overlaps.
  assert replayed.step_time_us == pytest.approx(both_us, rel=0.1)
  bound_us = lower_bound.us(step)
  assert both_us / 2 <= bound_us <= replayed.step_time_us


def test_an_inspection_lists_host_copies_and_their_waits(scanned):
  step = step_lib.of_module(scanned, _H100S)
  out = io.StringIO()
  console = rich.console.Console(file=out, width=160)
  terminal.show_inspection(console, step, is_verbose=True)
  shown = out.getvalue()
  assert "waits for copies" in shown
  assert "collectives and copies cost" in shown
  printed = validation.write(results.inspection(step))
  check_schema("inspect", printed)
  reported = printed["host_copies"]
  assert len(reported) == 2
  for copy in reported:
    assert copy["name"] in shown
    assert (copy["num_bytes"], copy["executions"]) == (_LAYER_BYTES, _LAYERS)


_H100 = cluster_lib.parse("1x1xh100")
_TRIPS = 4
_WEIGHTS_BYTES = 512 * 512 * 2  # Per layer.
_RESULT_BYTES = 1024 * 512 * 2
_CUT, _WRITTEN = "fusion-start", "fusion-start.1"


@pytest.fixture(scope="module")
def text() -> str:
  return (pathlib.Path(__file__).parents[1] / "sliced_loop.hlo").read_text()


@pytest.fixture(scope="module")
def step(text) -> step_lib.Step:
  return step_lib.of_module(hlo.load(text), _H100)


@pytest.fixture(scope="module")
def in_slow_memory(text) -> step_lib.Step:
  """The step with a memory so slow that nothing else matters."""
  gpu = dataclasses.replace(_H100.gpu, hbm_gbps=1.0, l2_bytes=0)
  return step_lib.of_module(hlo.load(text), dataclasses.replace(_H100, gpu=gpu))


def test_each_trip_copies_the_weights_and_the_result_of_a_layer(step):
  copies = step.analysis.copies.values()
  assert all(copy.is_bound_by_memory for copy in copies)
  assert {c.name: (c.num_bytes, c.executions) for c in copies} == {
    _CUT: (_WEIGHTS_BYTES, _TRIPS),
    _WRITTEN: (_RESULT_BYTES, _TRIPS),
  }
  kernels = step.analysis.kernels.values()
  assert {k.name for k in kernels if k.executions == _TRIPS} == {
    "gemm_fusion_dot_general.1", "copy.8", "loop_add_fusion",
  }  # fmt: skip


def test_every_async_start_in_a_train_step_is_a_collective_or_a_copy(
  fsdp_scan,
):
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


def test_an_async_slice_that_computes_is_a_kernel(text):
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


def test_a_copy_start_of_a_whole_array_is_a_copy():
  # XLA does so with xla_gpu_async_copy_min_bytes, from JAX 0.12 on.
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


def test_a_copy_that_overlaps_nothing_is_fully_exposed(step):
  replayed = step.timeline(step.default)
  (cut,) = [c for c in step.analysis.copies.values() if c.name == _CUT]
  lone_us = step.copy_cost(cut).time_us
  assert replayed.copy_wait_us[_CUT] == pytest.approx(_TRIPS * lone_us)
  # The copy reads and writes each byte at no more than the memory's rate.
  least_us = 2 * _WEIGHTS_BYTES / (1e3 * _H100.gpu.hbm_gbps)
  assert lone_us > least_us


def test_a_copy_and_a_memory_bound_kernel_share_bandwidth(in_slow_memory):
  step = in_slow_memory
  (kernel,) = [k for k in step.analysis.kernels.values() if k.name == "copy.8"]
  (copy,) = [c for c in step.analysis.copies.values() if c.name == _WRITTEN]
  kernel_us = step.kernel_cost(kernel).time_us
  beside = step.costs(step.default).beside
  together = beside(step.kernel_cost(kernel), step.copy_cost(copy))
  # Half of the bandwidth is left to the kernel; the copy demands less than
  # that.
  assert together.kernel_us == pytest.approx(2 * kernel_us, rel=0.15)
  assert 1.5 < together.collective_factor < 2
  # In any order of the loop, a product needs the slice before it.
  replayed = step.timeline(step.default)
  assert replayed.kernel_us < lower_bound.us(step) < replayed.step_time_us
  # The result's copy overlaps a kernel, so not all copies add to the step.
  lost_us = replayed.total_copy_wait_us + replayed.total_copy_slowdown_us
  assert replayed.step_time_us == pytest.approx(replayed.kernel_us + lost_us)


def test_an_explanation_tells_the_waits_for_copies(scanned) -> None:
  slow = _with_link(0.5)
  step = step_lib.Step(overlap.analyze(scanned), slow)
  waits_us = step.timeline(step.default).total_copy_wait_us
  told = explanations.of_step(explaining.of_step(step), "explain")
  text = "\n".join(one for one in told if isinstance(one, str))
  waits = in_words.milliseconds(waits_us)
  assert f"Kernels also wait {waits} for asynchronous copies" in text
