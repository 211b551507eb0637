# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Contention of kernels and collectives for SMs and bandwidth."""

from __future__ import annotations

import dataclasses
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
import pytest

from lagom_xla import cluster as cluster_lib
from lagom_xla.costs import collective as collective_lib
from lagom_xla.costs import contention
from lagom_xla.costs import kernel as kernel_lib

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
def test_an_empty_collective_does_not_slow_a_kernel(kernel):
  assert _slowed_us(kernel, NOTHING) == kernel.time_us


@pytest.mark.parametrize(
  ("fields", "num_channels", "slowed_us"),
  [
    # A kernel that fills the GPU once then needs two waves; 1,000 channels
    # leave one SM.
    ({}, 1, 200.0),
    ({}, 65, 200.0),
    ({}, 1000, 13200.0),
    # Idle SMs are free.
    ({"num_blocks": 100}, 32, 100.0),
    ({"num_blocks": 100}, 33, 200.0),
    # Equation 5: ceil(3000 / ((132 - 12) * 4)), alone ceil(3000 / (132 * 4)).
    ({"num_blocks": 3000, "blocks_per_sm": 4}, 12, 100.0 * 7 / 6),
    # Thread-bound kernels lose no waves; blocks that wait for each other lose
    # more.
    ({"threads_us": 100.0}, 24, 100.0),
    ({"wave_loss": 1.5}, 0, 100.0),
    ({"wave_loss": 1.5}, 24, 250.0),
  ],
)
def test_channels_that_occupy_sms_add_waves_to_a_kernel(
  fields, num_channels, slowed_us
):
  kernel = dataclasses.replace(ONE_WAVE, **fields)
  beside = _beside(num_channels=num_channels)
  assert _slowed_us(kernel, beside) == pytest.approx(slowed_us)


def test_a_product_and_a_collective_share_bandwidth_by_their_demands():
  # The demands are 1 and 1/4 of Bbar, so both run at 4/5 of their full speed.
  kernel = dataclasses.replace(ONE_WAVE, memory_us=40.0)
  found = contention.beside(
    kernel, _beside(memory_gbps=H100.hbm_gbps / 4), H100
  )
  assert found.kernel_us == pytest.approx(60.0 + 40.0 / 0.8)
  assert found.collective_factor == pytest.approx(1 / (0.6 + 0.4 * 0.8))


@pytest.mark.parametrize(
  ("fields", "demand", "slowed_us"),
  [
    # Memory-bound kernels get the bandwidth that a collective leaves, at least
    # half.
    ({"memory_us": 100.0}, 0.0, 100.0),
    ({"memory_us": 100.0}, 0.25, 400 / 3),
    ({"memory_us": 100.0}, 0.5, 200.0),
    ({"memory_us": 100.0}, 0.9, 200.0),
    # Kernels whose data fits L2 lose more: 3.4 and 33.5 MB, with 52 MB of L2.
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
    # Thread-bound kernels hide their slower traffic: 60 us of traffic under 100
    # us of threads take 80, or 120.
    ({"memory_us": 60.0, "threads_us": 100.0}, 0.25, 100.0),
    ({"memory_us": 60.0, "threads_us": 100.0}, 0.5, 120.0),
  ],
)
def test_memory_traffic_slows_a_kernel_according_to_its_bottleneck(
  fields, demand, slowed_us
):
  kernel = dataclasses.replace(ONE_WAVE, **fields)
  beside = _beside(memory_gbps=H100.hbm_gbps * demand)
  assert _slowed_us(kernel, beside) == pytest.approx(slowed_us)


@given(kernel_costs(), collective_costs, st.floats(0, 3))
def test_slowdown_scale_multiplies_the_time_that_a_kernel_loses(
  kernel, collective, scale
):
  scaled = contention.beside(kernel, collective, H100, slowdown_scale=scale)
  lost_us = _slowed_us(kernel, collective) - kernel.time_us
  assert scaled.kernel_us == pytest.approx(kernel.time_us + scale * lost_us)


def test_a_kernel_of_zero_duration_does_not_affect_a_collective():
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
def test_a_collective_waits_half_a_wave_for_free_sms(
  num_blocks, blocks_per_sm, num_channels, wait_us
):
  kernel = dataclasses.replace(
    ONE_WAVE, num_blocks=num_blocks, blocks_per_sm=blocks_per_sm
  )
  found = contention.beside(kernel, _beside(num_channels=num_channels), H100)
  assert found.wait_us == wait_us


@given(kernel_costs(), collective_costs)
def test_overlap_never_speeds_up_a_kernel_or_a_collective(kernel, collective):
  found = contention.beside(kernel, collective, H100)
  assert found.kernel_us >= kernel.time_us
  assert found.collective_factor >= 1
  assert 0 <= found.wait_us <= kernel.time_us / 2


@given(kernel_costs(), collective_costs, st.integers(0, 50), st.floats(0, 2000))
def test_more_channels_or_memory_traffic_never_speed_up_a_kernel(
  kernel, collective, channels, gbps
):
  least_us = _slowed_us(kernel, collective)
  for greedier in (
    {"num_channels": collective.num_channels + channels},
    {"memory_gbps": collective.memory_gbps + gbps},
  ):
    more = dataclasses.replace(collective, **greedier)
    assert _slowed_us(kernel, more) >= least_us


# Concurrent collectives.


def _moving(within: float = 0.0, between: float = 0.0, **more: Any):
  return dataclasses.replace(
    NOTHING, within_load=within, between_load=between, **more
  )


@pytest.mark.parametrize(
  ("loads", "factors"),
  [
    # Different fabrics overlap; collectives on one fabric take turns.
    ([(1.0, 0.0), (0.0, 1.0)], [1.0, 1.0]),
    ([(1.0, 0.0), (1.0, 0.0)], [2.0, 2.0]),
    # During its latency a collective leaves the link to others.
    ([(0.4, 0.0), (0.5, 0.0)], [1.0, 1.0]),
    # Traffic between nodes uses links within nodes, too.
    ([(1.0, 0.0), (0.25, 1.0)], [1.25, 1.25]),
    ([(0.0, 1.0), (0.25, 1.0), (0.5, 0.0)], [2.0, 2.0, 1.0]),
  ],
)
def test_concurrent_collectives_slow_each_other_on_shared_links(loads, factors):
  found = contention.together(tuple(_moving(*pair) for pair in loads), H100)
  assert list(found.factors) == factors


def test_concurrent_collectives_add_up_their_sms_and_slowed_traffic():
  two = [
    _moving(1.0, num_channels=16, memory_gbps=400.0),
    _moving(1.0, num_channels=8, memory_gbps=600.0),
  ]
  cost = contention.together(tuple(two), H100).cost
  assert cost.num_channels == 24
  # Each runs at half its speed.
  assert cost.memory_gbps == 500.0


def test_a_single_collective_keeps_its_cost():
  lone = _moving(1.0, num_channels=16, memory_gbps=400.0)
  assert contention.together((lone,), H100) == contention.Together(
    cost=lone, factors=(1.0,)
  )
