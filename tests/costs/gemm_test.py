# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Predicted times of single matrix products obey physics and known rates."""

from __future__ import annotations

import math

import hypothesis
from hypothesis import strategies as st
import pytest

from lagom_xla import cluster
from lagom_xla.costs import gemm

_GPUS = {
  name: cluster.parse(f"1x8x{name}").gpu
  for name in ("v100", "a100_40", "a6000", "h100", "h200", "b200", "gb200")
}

any_gpu = st.sampled_from(sorted(_GPUS)).map(_GPUS.__getitem__)
any_type = st.sampled_from(["bf16", "f16", "f32", "f8e4m3fn", "s8", "f64"])
_any_size = st.integers(1, 32768)
any_shape = st.tuples(st.integers(1, 64), _any_size, _any_size, _any_size)


def _predict(gpu, shape, dtype="bf16") -> float:
  out_type = "bf16" if dtype.startswith("f8") else dtype
  return gemm.predict_us(gpu, shape, (dtype, dtype, out_type))


@hypothesis.given(any_gpu, any_shape, any_type)
def test_no_product_is_faster_than_peak_compute_or_memory_bandwidth(
  gpu, shape, dtype
):
  batch, m, n, k = shape
  time_us = _predict(gpu, shape, dtype)
  peak = gemm.peak_tflops(gpu, dtype, dtype)
  operand_bytes = {"bf16": 2, "f16": 2, "f32": 4, "f64": 8}.get(dtype, 1)
  assert time_us > 2 * math.prod(shape) / (peak * 1e6)
  assert time_us > batch * (m + n) * k * operand_bytes / (gpu.hbm_gbps * 1e3)


@hypothesis.given(any_gpu, any_shape, any_type)
def test_a_products_time_never_falls_as_a_dimension_grows(gpu, shape, dtype):
  time_us = _predict(gpu, shape, dtype)
  for place, more in enumerate((1, 64, 64, 64)):
    larger = (*shape[:place], shape[place] + more, *shape[place + 1 :])
    assert _predict(gpu, larger, dtype) >= time_us


@hypothesis.given(any_gpu, any_shape, any_type)
def test_a_batch_takes_no_longer_than_its_products_in_sequence(
  gpu, shape, dtype
):
  one_by_one_us = shape[0] * _predict(gpu, (1, *shape[1:]), dtype)
  assert _predict(gpu, shape, dtype) <= one_by_one_us * 1.000001


@pytest.mark.parametrize(
  ("name", "dtype", "plateau_tflops"),
  [
    ("h100", "bf16", 800),
    ("b200", "bf16", 1560),
    ("b200", "f8e4m3fn", 3290),
    ("a100_40", "bf16", 290),
  ],
)
@pytest.mark.parametrize(
  "shape",
  [(1, 8192, 8192, 8192), (1, 32768, 8192, 8192), (1, 8192, 128256, 4096)],
)
def test_large_products_reach_the_measured_peak_throughput(
  name, dtype, plateau_tflops, shape
):
  gpu = _GPUS[name]
  # The plateaus were measured on isolated products; within a step they are
  # slower.
  alone_us = _predict(gpu, shape, dtype) / _in_step(gpu, dtype)
  tflops = 2 * math.prod(shape) / alone_us / 1e6
  assert tflops == pytest.approx(plateau_tflops, rel=0.06)


def test_ampere_runs_s8_at_twice_the_rate_of_bf16_and_f8_at_the_same():
  for name in ("a100_40", "a6000"):
    halves_us, integers_us, quarters_us = (
      _predict(_GPUS[name], (1, 8192, 8192, 8192), dtype)
      for dtype in ("bf16", "s8", "f8e4m3fn")
    )
    assert integers_us == pytest.approx(halves_us / 2, rel=0.05)
    assert quarters_us == halves_us  # Ampere has no f8 units and widens it.


def _in_step(gpu: cluster.Gpu, dtype: str) -> float:
  return gemm.fitted(gpu, dtype, dtype).in_step


def test_one_row_beyond_a_full_wave_costs_another_wave():
  gpu = _GPUS["a100_40"]  # 12 by 9 tiles, one for each of its SMs.
  full_us = _predict(gpu, (1, 12 * 128, 9 * 256, 2048))
  assert _predict(gpu, (1, 12 * 128 + 1, 9 * 256, 2048)) > 1.1 * full_us


def test_k_is_split_only_when_there_are_few_tiles():
  gpu = _GPUS["a100_40"]
  *_, few = gemm.tile(gpu, (1, 768, 768, 8192), "bf16")
  *_, many = gemm.tile(gpu, (1, 8192, 8192, 768), "bf16")
  assert few > 1
  assert many == 1


@hypothesis.given(any_gpu, any_shape, any_type)
def test_blocks_cover_the_result_once_per_split_of_k(gpu, shape, dtype):
  batch, m, n, _ = shape
  tile_m, tile_n, split = gemm.tile(gpu, shape, dtype)
  num_blocks, blocks_per_sm = gemm.blocks(gpu, shape, dtype)
  covered = num_blocks * tile_m * tile_n
  assert covered >= batch * m * n * split
  assert covered < batch * (m + tile_m) * (n + tile_n) * split
  assert 1 <= blocks_per_sm <= 4


def test_table_entries_depend_on_orientation_on_hopper_in_f8():
  types = ("f8e4m3fn", "f8e4m3fn", "bf16")
  h100, b200 = _GPUS["h100"], _GPUS["b200"]
  wide, tall = (4, 1024, 4096, 4096), (4, 4096, 1024, 4096)
  # Measured: 82.6 and 57.5 us, for products of equal size.
  wide_us = gemm.tabulated_us(h100, wide, types)
  assert wide_us > 1.3 * gemm.tabulated_us(h100, tall, types)
  assert gemm.tabulated_us(b200, wide, types) == pytest.approx(
    gemm.predict_us(b200, wide, types) / _in_step(b200, "f8e4m3fn")
  )


def test_errors_about_bad_sizes_and_types_quote_the_value():
  with pytest.raises(
    ValueError, match=r"\(1, 0, 8, 8\); each must be at least"
  ):
    _predict(_GPUS["h100"], (1, 0, 8, 8))
  with pytest.raises(ValueError, match="'token'; it must be a number type"):
    _predict(_GPUS["h100"], (1, 8, 8, 8), "token")
