# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Host offload: which copies a step makes, and what they cost.

Bytes are counted by hand from the shapes in `offloading_step.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
import dataclasses
import io

import jax
import pytest
import rich.console

from commands import check_schema
from lagom_xla import cluster as cluster_lib
from lagom_xla import validation
from lagom_xla.compile import compiler
from lagom_xla.compile import lowered as lowered_lib
from lagom_xla.costs import lower_bound
from lagom_xla.costs import step as step_lib
from lagom_xla.passes import copies as copies_lib
from lagom_xla.passes import hlo
from lagom_xla.passes import overlap
from lagom_xla.report import results
from lagom_xla.report import terminal
import offloading_step

_H100S = cluster_lib.parse("1x8xh100")
_LAYERS = offloading_step.LAYERS
_LAYER_BYTES = offloading_step.LAYER_BYTES


@pytest.fixture(scope="module")
def scanned(
  h100s: Sequence[jax.Device], scheduled: Callable[..., hlo.Module]
) -> hlo.Module:
  return scheduled(offloading_step.lower(h100s, unroll=False))


@pytest.fixture(scope="module")
def unrolled(
  h100s: Sequence[jax.Device], scheduled: Callable[..., hlo.Module]
) -> hlo.Module:
  return scheduled(offloading_step.lower(h100s, unroll=True))


def _moved_bytes(module: hlo.Module, *, to_host: bool) -> int:
  return sum(
    copy.executions * copy.num_bytes
    for copy in copies_lib.find_host_copies(module).values()
    if copy.to_host == to_host
  )


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


@pytest.mark.parametrize("module_name", ["scanned", "unrolled"])
def test_each_layer_goes_to_the_host_and_comes_back_once(
  module_name: str, request: pytest.FixtureRequest
) -> None:
  module = request.getfixturevalue(module_name)
  assert _moved_bytes(module, to_host=True) == _LAYERS * _LAYER_BYTES
  assert _moved_bytes(module, to_host=False) == _LAYERS * _LAYER_BYTES


def test_copies_in_a_loop_move_a_slice_each_trip(scanned: hlo.Module) -> None:
  copies = copies_lib.find_host_copies(scanned).values()
  assert {copy.stream for copy in copies} == {"to host", "to device"}
  for copy in copies:
    assert (copy.executions, copy.num_bytes) == (_LAYERS, _LAYER_BYTES)
    assert copy.done_id is not None


def test_copies_of_whole_arrays_share_a_stream(unrolled: hlo.Module) -> None:
  copies = copies_lib.find_host_copies(unrolled).values()
  assert len(copies) == 2 * _LAYERS
  assert {copy.stream for copy in copies} == {"both ways"}


def test_the_compiled_module_makes_the_copies_of_its_schedule(
  h100s: Sequence[jax.Device], scanned: hlo.Module
) -> None:
  lowered = offloading_step.lower(h100s, unroll=False)
  step = lowered_lib.LoweredStep(lowered, _H100S)
  compiled = compiler.compile(step).module

  def moved(module: hlo.Module) -> list[tuple[bool, int, int]]:
    copies = copies_lib.find_host_copies(module).values()
    return sorted((c.to_host, c.executions, c.num_bytes) for c in copies)

  assert moved(compiled) == moved(scanned)


def test_no_kernel_touches_the_hosts_memory(scanned: hlo.Module) -> None:
  analysis = overlap.analyze(scanned)
  assert analysis.host_copies
  assert not analysis.copies.keys() & analysis.kernels.keys()
  names = {kernel.name for kernel in analysis.kernels.values()}
  allocations = {
    i.name
    for i in scanned.entry.instructions
    if i.custom_call_target == "AllocateBuffer"
  }
  assert allocations
  assert not allocations & names


def test_a_step_without_offload_has_no_host_copies(
  fsdp_scan: hlo.Module,
) -> None:
  assert not copies_lib.find_host_copies(fsdp_scan)


@pytest.mark.parametrize("module_name", ["scanned", "unrolled"])
def test_a_step_takes_as_long_as_its_bytes_on_the_link_to_the_host(
  module_name: str, request: pytest.FixtureRequest
) -> None:
  gbps = 1.0  # So slow that the link bounds the step.
  module = request.getfixturevalue(module_name)
  step = step_lib.of_module(module, _with_link(gbps))
  both_us = 2 * _LAYERS * _LAYER_BYTES / (1e3 * gbps)
  replayed = step.timeline(step.default)
  alone_us = _alone_us(step, to_host=True) + _alone_us(step, to_host=False)
  assert alone_us == pytest.approx(both_us)
  # The last layer comes back as soon as it has gone, so nothing overlaps.
  assert replayed.step_time_us == pytest.approx(both_us, rel=0.1)
  bound_us = lower_bound.us(step)
  assert both_us / 2 <= bound_us <= replayed.step_time_us


def test_a_fast_link_hides_a_copy_behind_the_kernels_beside_it(
  scanned: hlo.Module,
) -> None:
  step = step_lib.of_module(scanned, _with_link(450.0))
  replayed = step.timeline(step.default)
  # A product stands beside what goes to the host. Beside what comes back there
  # is little, and in schedules of JAX 0.12 nothing.
  (to_host,) = [
    c for c in copies_lib.find_host_copies(scanned).values() if c.to_host
  ]
  alone_us = _alone_us(step, to_host=True)
  assert replayed.copy_wait_us.get(to_host.name, 0.0) < 0.1 * alone_us
  assert replayed.total_copy_slowdown_us > 0


def test_an_inspection_names_the_copies_and_their_waits(
  scanned: hlo.Module,
) -> None:
  step = step_lib.of_module(scanned, _H100S)
  out = io.StringIO()
  console = rich.console.Console(file=out, width=160)
  terminal.show_inspection(console, step, is_verbose=True)
  shown = out.getvalue()
  assert "55.2 GB/s each way" in shown
  assert "waits for copies" in shown
  assert "collectives and copies cost" in shown
  printed = validation.write(results.inspection(step))
  check_schema("inspect", printed)
  reported = printed["host_copies"]
  assert len(reported) == 2
  for copy in reported:
    assert copy["name"] in shown
    assert (copy["num_bytes"], copy["executions"]) == (_LAYER_BYTES, _LAYERS)
