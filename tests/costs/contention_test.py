# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Contention: the SMs and bandwidth that kernels and collectives lose."""

from __future__ import annotations

import dataclasses
import pathlib
import statistics

from hypothesis import given
from hypothesis import strategies as st
import pytest

from benchmarks import groups
from benchmarks.steps import slowdowns
from benchmarks.steps import traced_step
from lagom_xla import cluster as cluster_lib
from lagom_xla.costs import collective as collective_lib
from lagom_xla.costs import contention
from lagom_xla.costs import kernel as kernel_lib

_DATA = pathlib.Path(__file__).resolve().parents[3] / "shared/data"
H100 = cluster_lib.parse("1x8xh100").gpu
NOTHING = collective_lib.CollectiveCost(
  time_us=1.0, num_channels=0, memory_gbps=0.0
)
ONE_WAVE = kernel_lib.KernelCost(
  time_us=100.0, memory_us=0.0, num_blocks=132, blocks_per_sm=1, source="xla"
)

collective_costs = st.builds(
  collective_lib.CollectiveCost,
  time_us=st.just(1.0),
  num_channels=st.integers(0, 200),
  memory_gbps=st.floats(0, 5000),
)


@st.composite
def kernel_costs(draw: st.DrawFn) -> kernel_lib.KernelCost:
  time_us = draw(st.floats(2, 1e5))
  return kernel_lib.KernelCost(
    time_us=time_us,
    memory_us=time_us * draw(st.floats(0, 1)),
    num_blocks=draw(st.integers(1, 10**6)),
    blocks_per_sm=draw(st.integers(1, 16)),
    source="roofline",
    threads_us=time_us * draw(st.floats(0, 1)),
  )


def _beside(*, num_channels: int = 0, memory_gbps: float = 0.0):
  return dataclasses.replace(
    NOTHING, num_channels=num_channels, memory_gbps=memory_gbps
  )


def _slowed_us(
  kernel: kernel_lib.KernelCost, collective: collective_lib.CollectiveCost
) -> float:
  return contention.beside(kernel, collective, H100).kernel_us


@given(kernel_costs())
def test_beside_nothing_a_kernel_takes_exactly_its_lone_time(kernel):
  assert _slowed_us(kernel, NOTHING) == kernel.time_us


@pytest.mark.parametrize("num_channels", [1, 2, 24, 65])
def test_a_kernel_that_fills_the_gpu_once_needs_two_waves(num_channels):
  beside = _beside(num_channels=num_channels)
  assert contention.num_waves(ONE_WAVE, H100, 0) == 1
  assert contention.num_waves(ONE_WAVE, H100, num_channels) == 2
  assert _slowed_us(ONE_WAVE, beside) == 200.0


def test_a_kernel_that_leaves_sms_idle_loses_nothing_to_channels_there():
  kernel = dataclasses.replace(ONE_WAVE, num_blocks=100)
  for num_channels, expected_us in ((0, 100.0), (32, 100.0), (33, 200.0)):
    beside = _beside(num_channels=num_channels)
    assert _slowed_us(kernel, beside) == expected_us


def test_waves_are_equation_5():
  # ceil(3000 / ((132 - 12) * 4)), and alone ceil(3000 / (132 * 4)).
  kernel = dataclasses.replace(ONE_WAVE, num_blocks=3000, blocks_per_sm=4)
  assert contention.num_waves(kernel, H100, 12) == 7
  assert contention.num_waves(kernel, H100, 0) == 6
  slowed_us = _slowed_us(kernel, _beside(num_channels=12))
  assert slowed_us == pytest.approx(100.0 * 7 / 6)


def test_a_product_and_a_collective_share_bandwidth_as_they_ask_for_it():
  # They ask for 1 and 1/4 of Bbar, so both move at 4/5 of their lone pace.
  kernel = dataclasses.replace(ONE_WAVE, memory_us=40.0)
  found = contention.beside(
    kernel, _beside(memory_gbps=H100.hbm_gbps / 4), H100
  )
  assert found.kernel_us == pytest.approx(60.0 + 40.0 / 0.8)
  assert found.collective_factor == pytest.approx(1 / (0.6 + 0.4 * 0.8))


@pytest.mark.parametrize(
  ("fields", "demand", "slowed_us"),
  [
    # What memory bounds gets what a collective leaves, but half at least.
    ({"memory_us": 100.0}, 0.0, 100.0),
    ({"memory_us": 100.0}, 0.25, 400 / 3),
    ({"memory_us": 100.0}, 0.5, 200.0),
    ({"memory_us": 100.0}, 0.9, 200.0),
    # What stays in L2 alone loses more: 3.4 and 33.5 MB, of an L2 of 52 MB.
    ({"time_us": 1, "memory_us": 1}, 0.25, 1 + 4 / 4),
    ({"time_us": 10, "memory_us": 10}, 0.25, 10 * 4 / 3),
    # Traffic that reaches part of the rate grows with all of its time: 40 us
    # at full rate are 80 at half of it; 20 us are no traffic.
    ({"memory_us": 40.0, "memory_share": 0.5}, 0.25, 20.0 + 80.0 * 4 / 3),
    # Threads that read L2 wait longer. 1.7 MB; 8 of its 10 us pass whatever
    # the threads move.
    (
      {"time_us": 10.0, "memory_us": 0.5, "threads_us": 8.0},
      0.25,
      10 + 8 * 4 / 4,
    ),
    # Threads that read memory hide what their traffic loses: 60 us of it under
    # 100 of threads take 80, or 120.
    ({"memory_us": 60.0, "threads_us": 100.0}, 0.25, 100.0),
    ({"memory_us": 60.0, "threads_us": 100.0}, 0.5, 120.0),
  ],
)
def test_a_kernel_loses_to_memory_traffic_by_what_binds_it(
  fields, demand, slowed_us
):
  kernel = dataclasses.replace(ONE_WAVE, **fields)
  beside = _beside(memory_gbps=H100.hbm_gbps * demand)
  assert _slowed_us(kernel, beside) == pytest.approx(slowed_us)


def test_what_threads_bind_loses_no_waves_to_channels():
  kernel = dataclasses.replace(ONE_WAVE, threads_us=100.0)
  assert _slowed_us(kernel, _beside(num_channels=24)) == 100.0


def test_blocks_that_wait_for_each_other_lose_more_than_the_waves():
  kernel = dataclasses.replace(ONE_WAVE, wave_loss=1.5)
  assert _slowed_us(kernel, NOTHING) == 100.0
  assert _slowed_us(kernel, _beside(num_channels=24)) == 250.0


@given(kernel_costs(), collective_costs, st.floats(0, 3))
def test_what_a_kernel_loses_can_be_scaled(kernel, collective, scale):
  scaled = contention.beside(kernel, collective, H100, slowdown_scale=scale)
  lost_us = _slowed_us(kernel, collective) - kernel.time_us
  assert scaled.kernel_us == pytest.approx(kernel.time_us + scale * lost_us)


def test_a_kernel_that_moves_no_bytes_leaves_a_collective_its_pace():
  found = contention.beside(ONE_WAVE, _beside(memory_gbps=1000.0), H100)
  assert found.collective_factor == 1.0


def test_a_kernel_of_no_time_changes_nothing():
  kernel = dataclasses.replace(ONE_WAVE, time_us=0.0)
  found = contention.beside(kernel, _beside(memory_gbps=1000.0), H100)
  assert found == contention.Beside(
    kernel_us=0.0, collective_factor=1.0, wait_us=0.0
  )


@pytest.mark.parametrize(
  ("num_blocks", "blocks_per_sm", "num_channels", "wait_us"),
  [
    (132, 1, 1, 50.0),  # One wave of 100 us, no SM free.
    (133, 1, 24, 25.0),  # Two waves of 50 us.
    (264, 2, 24, 50.0),
    (108, 1, 24, 0.0),  # 24 SMs are free.
    (109, 1, 24, 50.0),
    (132, 1, 0, 0.0),
  ],
)
def test_a_collective_waits_for_sms_half_a_wave(
  num_blocks, blocks_per_sm, num_channels, wait_us
):
  kernel = dataclasses.replace(
    ONE_WAVE, num_blocks=num_blocks, blocks_per_sm=blocks_per_sm
  )
  found = contention.beside(kernel, _beside(num_channels=num_channels), H100)
  assert found.wait_us == wait_us


@given(kernel_costs(), collective_costs)
def test_neither_is_faster_than_alone(kernel, collective):
  found = contention.beside(kernel, collective, H100)
  assert found.kernel_us >= kernel.time_us
  assert found.collective_factor >= 1
  assert 0 <= found.wait_us <= kernel.time_us / 2


@given(kernel_costs(), collective_costs, st.integers(0, 50), st.floats(0, 2000))
def test_more_channels_or_memory_traffic_never_help_a_kernel(
  kernel, collective, channels, gbps
):
  least_us = _slowed_us(kernel, collective)
  for greedier in (
    {"num_channels": collective.num_channels + channels},
    {"memory_gbps": collective.memory_gbps + gbps},
  ):
    more = dataclasses.replace(collective, **greedier)
    assert _slowed_us(kernel, more) >= least_us


def test_more_channels_than_sms_leave_one_sm():
  assert contention.num_waves(ONE_WAVE, H100, 1000) == 132


@pytest.mark.parametrize(
  ("name", "least_correlation"), [("pax_a100", 0.9), ("maxtext_h100", 0.7)]
)
def test_kernels_of_a_real_step_that_lose_more_are_predicted_to(
  name, least_correlation
):
  folder = _DATA / name
  if not folder.exists():
    pytest.skip(f"shared/data/{name} is not there: it is too large to ship")
  met = slowdowns.meetings(traced_step.TracedStep(folder))
  found = groups.of_comparisons("slowdowns", slowdowns.pairs(met))
  assert found.n >= 10
  measured, predicted = (
    [getattr(c, field) for c in found.comparisons]
    for field in ("measured", "predicted")
  )
  assert statistics.correlation(measured, predicted) >= least_correlation
