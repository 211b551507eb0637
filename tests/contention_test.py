# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""What a collective takes from a kernel: SMs in whole waves, and bandwidth."""

from __future__ import annotations

import dataclasses

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
  )


def _beside(*, num_channels: int = 0, memory_gbps: float = 0.0):
  return dataclasses.replace(
    NOTHING, num_channels=num_channels, memory_gbps=memory_gbps
  )


@given(kernel_costs())
def test_beside_nothing_a_kernel_takes_exactly_its_lone_time(kernel):
  assert contention.slowed_us(kernel, NOTHING, H100) == kernel.time_us


@pytest.mark.parametrize("num_channels", [1, 2, 24, 65])
def test_a_kernel_that_fills_the_gpu_once_needs_two_waves(num_channels):
  beside = _beside(num_channels=num_channels)
  assert contention.num_waves(ONE_WAVE, H100, 0) == 1
  assert contention.num_waves(ONE_WAVE, H100, num_channels) == 2
  assert contention.slowed_us(ONE_WAVE, beside, H100) == 200.0


def test_a_kernel_that_leaves_sms_idle_loses_nothing_to_channels_there():
  kernel = dataclasses.replace(ONE_WAVE, num_blocks=100)
  for num_channels, expected_us in ((0, 100.0), (32, 100.0), (33, 200.0)):
    beside = _beside(num_channels=num_channels)
    assert contention.slowed_us(kernel, beside, H100) == expected_us


def test_waves_are_equation_5():
  # ceil(3000 / ((132 - 12) * 4)), and alone ceil(3000 / (132 * 4)).
  kernel = dataclasses.replace(ONE_WAVE, num_blocks=3000, blocks_per_sm=4)
  assert contention.num_waves(kernel, H100, 12) == 7
  assert contention.num_waves(kernel, H100, 0) == 6
  slowed_us = contention.slowed_us(kernel, _beside(num_channels=12), H100)
  assert slowed_us == pytest.approx(100.0 * 7 / 6)


def test_memory_traffic_slows_by_the_bandwidth_that_is_left():
  # Equation 6: 40 us of traffic take 40 / (1 - 1/4) beside a quarter of Bbar.
  kernel = dataclasses.replace(ONE_WAVE, memory_us=40.0)
  beside = _beside(memory_gbps=H100.hbm_gbps / 4)
  expected_us = 60.0 + 40.0 / 0.75
  assert contention.slowed_us(kernel, beside, H100) == pytest.approx(
    expected_us
  )


def test_a_collective_that_draws_all_bandwidth_still_leaves_some():
  kernel = dataclasses.replace(ONE_WAVE, memory_us=40.0)
  beside = _beside(memory_gbps=10 * H100.hbm_gbps)
  slowed_us = contention.slowed_us(kernel, beside, H100)
  assert slowed_us == pytest.approx(60.0 + 40.0 * 10)


def test_more_channels_than_sms_leave_one_sm():
  assert contention.num_waves(ONE_WAVE, H100, 1000) == 132


@given(kernel_costs(), collective_costs)
def test_a_kernel_is_never_faster_than_alone(kernel, collective):
  assert contention.slowed_us(kernel, collective, H100) >= kernel.time_us


@given(kernel_costs(), collective_costs, st.integers(0, 50))
def test_more_channels_never_help_a_kernel(kernel, collective, more):
  wider = dataclasses.replace(
    collective, num_channels=collective.num_channels + more
  )
  least_us = contention.slowed_us(kernel, collective, H100)
  assert contention.slowed_us(kernel, wider, H100) >= least_us


@given(kernel_costs(), collective_costs, st.floats(0, 2000))
def test_more_memory_traffic_never_helps_a_kernel(kernel, collective, more):
  greedier = dataclasses.replace(
    collective, memory_gbps=collective.memory_gbps + more
  )
  least_us = contention.slowed_us(kernel, collective, H100)
  assert contention.slowed_us(kernel, greedier, H100) >= least_us


def test_a_gemm_beside_an_all_gather_loses_what_was_measured_on_h100():
  # A cuBLAS product of exactly 132 blocks at 80 % of the peak fell to 47 %
  # beside an all-gather of 24 channels (NVIDIA developer forums, 337991).
  m, n, k = 12 * 128, 11 * 256, 8192
  flops, num_bytes = 2 * m * n * k, 2 * (m * k + k * n + m * n)
  gemm = kernel_lib.KernelCost(
    time_us=flops / (0.80 * H100.matmul_peak_tflops["bf16"] * 1e6),
    memory_us=num_bytes / (H100.hbm_gbps * 1e3),
    num_blocks=132,
    blocks_per_sm=1,
    source="measured",
  )
  cluster = cluster_lib.parse("1x8xh100")
  key = collective_lib.TuningKey("all-gather", 8, 1, 2**28)
  setting = collective_lib.default_setting(key, cluster)
  assert setting.num_channels == 24
  all_gather = collective_lib.predict(key, setting, cluster)
  slowed_us = contention.slowed_us(gemm, all_gather, H100)
  share_of_peak = 0.80 * gemm.time_us / slowed_us
  assert 0.80 - share_of_peak == pytest.approx(0.80 - 0.47, rel=1 / 3)
