# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Kernels alone: XLA's estimate where it can be true, else a roofline."""

from __future__ import annotations

import dataclasses
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
import pytest

from lagom_xla import cluster as cluster_lib
from lagom_xla.costs import kernel as kernel_lib
from lagom_xla.passes import kernels as kernels_lib

H100 = cluster_lib.parse("1x8xh100").gpu
A100 = cluster_lib.parse("1x8xa100").gpu
V100 = cluster_lib.parse("1x8xv100").gpu


_KERNEL = kernels_lib.Kernel(
  name="kernel",
  category="fusion",
  computation="main",
  instruction_id=1,
  executions=1,
  flops=0,
  num_bytes=0,
  element_type="bf16",
  result_elements=1,
  matrix_shape=None,
  backend_config={},
)


def _kernel(**fields: Any) -> kernels_lib.Kernel:
  return dataclasses.replace(_KERNEL, **fields)


def _gemm(m: int, n: int, k: int, **fields: Any) -> kernels_lib.Kernel:
  return _kernel(
    **{
      "category": "gemm",
      "flops": 2 * m * n * k,
      "num_bytes": 2 * (m * k + k * n + m * n),
      "result_elements": m * n,
      "matrix_shape": (1, m, n, k),
      **fields,
    }
  )


def _estimated(time_us: float) -> dict[str, Any]:
  return {
    "reification_cost": [
      {"name": "gpu-cost-model", "exec_time_us": 1e6},
      {"name": "sol", "exec_time_us": time_us},
    ]
  }


def test_xlas_estimate_is_taken():
  gemm = _gemm(8192, 8192, 8192, backend_config=_estimated(1500.0))
  cost = kernel_lib.predict(gemm, H100)
  assert (cost.time_us, cost.source) == (1500.0, "xla")


def test_an_estimate_faster_than_memory_is_not_believed():
  # 335 MB take 100 us at 3352 GB/s.
  kernel = _kernel(num_bytes=335_232_000, backend_config=_estimated(99.0))
  cost = kernel_lib.predict(kernel, H100)
  assert cost.source == "roofline"
  assert cost.time_us == pytest.approx(100 / 0.9)
  assert cost.memory_us == pytest.approx(100)


def test_an_estimate_for_fewer_elements_than_were_measured_is_not_believed():
  gemm = _gemm(8192, 8192, 128, backend_config=_estimated(9000.0))
  cost = kernel_lib.predict(gemm, H100)
  assert cost.source == "roofline"
  assert cost.time_us < 200


def test_other_estimates_of_xla_are_not_taken():
  config = {"reification_cost": [{"name": "other", "exec_time_us": 1500.0}]}
  assert (
    kernel_lib.predict(_kernel(backend_config=config), H100).source
    == "roofline"
  )


def test_a_large_product_is_bound_by_arithmetic():
  cost = kernel_lib.predict(_gemm(8192, 8192, 8192), H100)
  # 1.1e12 operations at 79 % of 989.4 TFLOP/s.
  assert cost.source == "roofline"
  assert cost.time_us == pytest.approx(2 * 8192**3 / (0.79 * 989.4e6))
  assert cost.memory_us < cost.time_us / 5


def test_an_elementwise_kernel_is_bound_by_memory():
  cost = kernel_lib.predict(_kernel(num_bytes=10**9), H100)
  assert cost.memory_us == pytest.approx(0.9 * cost.time_us)


def test_a_kernel_that_does_nothing_still_takes_its_launch():
  cost = kernel_lib.predict(_kernel(), H100)
  assert cost.time_us == 2.0
  assert cost.memory_us == 0.0


def test_v100_multiplies_bf16_at_its_f16_rate():
  assert "bf16" not in V100.matmul_peak_tflops
  assert (
    kernel_lib.matmul_tflops(V100, "bf16") == (V100.matmul_peak_tflops["f16"])
  )


@pytest.mark.parametrize(
  ("gpu", "element_type", "peak"),
  [
    (H100, "f8e4m3fn", "f8"),
    (A100, "f8e4m3fn", "f16"),
    (H100, "f32", "tf32"),
    (V100, "f32", "f32"),
    (H100, "f64", "f64"),
    (H100, "s8", "f8"),
    (H100, "c64", "f32"),
  ],
)
def test_a_product_runs_at_the_best_rate_for_its_type(gpu, element_type, peak):
  assert (
    kernel_lib.matmul_tflops(gpu, element_type)
    == (gpu.matmul_peak_tflops[peak])
  )


def test_a_product_has_a_block_per_output_tile():
  # 128 x 256 tiles on Hopper, 128 x 128 on Ampere; one on an SM at a time.
  gemm = _gemm(12 * 128, 11 * 256, 4096)
  on_h100 = kernel_lib.predict(gemm, H100)
  on_a100 = kernel_lib.predict(gemm, A100)
  assert (on_h100.num_blocks, on_h100.blocks_per_sm) == (132, 1)
  assert (on_a100.num_blocks, on_a100.blocks_per_sm) == (264, 1)


def test_an_elementwise_kernel_has_a_block_per_512_elements():
  cost = kernel_lib.predict(_kernel(result_elements=512 * 1000 + 1), H100)
  assert (cost.num_blocks, cost.blocks_per_sm) == (1001, 16)


def test_attention_is_less_efficient_than_a_product():
  gemm = _gemm(8192, 8192, 8192)
  attention = _gemm(8192, 8192, 8192, category="attention", matrix_shape=None)
  assert (
    kernel_lib.predict(attention, H100).time_us
    > kernel_lib.predict(gemm, H100).time_us
  )


@given(
  gpu=st.sampled_from(
    [cluster_lib.parse(f"1x1x{name}").gpu for name in cluster_lib.gpu_names()]
  ),
  category=st.sampled_from(
    ["gemm", "attention", "convolution", "fusion", "copy", "other"]
  ),
  element_type=st.sampled_from(["bf16", "f32", "f64", "s4", "pred", "tuple"]),
  flops=st.integers(0, 10**15),
  num_bytes=st.integers(0, 10**11),
  result_elements=st.integers(0, 10**10),
  matrix_shape=st.none() | st.tuples(*[st.integers(0, 10**5)] * 4),
  estimate_us=st.none() | st.floats(0, 1e7),
)
def test_every_kernel_has_a_cost(estimate_us, gpu, **fields):
  config = {} if estimate_us is None else _estimated(estimate_us)
  cost = kernel_lib.predict(_kernel(**fields, backend_config=config), gpu)
  assert 0 <= cost.memory_us <= cost.time_us < float("inf")
  assert cost.time_us >= 2.0
  assert cost.num_blocks >= 1
  assert cost.blocks_per_sm >= 1
