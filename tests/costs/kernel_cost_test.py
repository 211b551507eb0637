# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Kernels alone: products by their tiles, all else by what it moves."""

from __future__ import annotations

import dataclasses
import math
import pathlib
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
import numpy as np
import pytest

from benchmarks.kernels import lone_kernels
from benchmarks.steps import traced_step
from lagom_xla import cluster as cluster_lib
from lagom_xla.costs import fusion
from lagom_xla.costs import gemm
from lagom_xla.costs import kernel as kernel_lib
from lagom_xla.passes import collectives
from lagom_xla.passes import kernels as kernels_lib
from lagom_xla.profiling import events as events_lib
import replay_parts

H100 = cluster_lib.parse("1x8xh100").gpu
A100 = cluster_lib.parse("1x8xa100").gpu
FITTED = fusion.fitted(H100)
GAP_US = FITTED.launch_gap_us
PATTERNS = (
  "elementwise",
  "row-reduction",
  "column-reduction",
  "transpose",
  "memcpy",
)
DATA = pathlib.Path(__file__).resolve().parents[3] / "shared/data"


_FUSION = dataclasses.replace(replay_parts.kernel("kernel"), category="fusion")


def _kernel(**fields: Any) -> kernels_lib.Kernel:
  return dataclasses.replace(_FUSION, **fields)


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


def _product_us(gpu: cluster_lib.Gpu, m: int, n: int, k: int) -> float:
  return gemm.predict_us(
    gpu,
    batch=1,
    m=m,
    n=n,
    k=k,
    lhs_type="bf16",
    rhs_type="bf16",
    out_type="bf16",
  )


@pytest.mark.parametrize("gpu", [H100, A100], ids=["h100", "a100"])
def test_a_product_takes_its_lone_time_and_the_gap(
  gpu: cluster_lib.Gpu,
) -> None:
  cost = kernel_lib.predict(_gemm(8192, 4096, 8192), gpu)
  gap_us = fusion.fitted(gpu).launch_gap_us
  assert cost.time_us == _product_us(gpu, 8192, 4096, 8192) + gap_us
  assert cost.source == "model"


def test_a_product_has_a_block_for_each_tile() -> None:
  cost = kernel_lib.predict(_gemm(8192, 4096, 8192), H100)
  # Tiles of 128 by 256, whose operands leave no room for a second block.
  assert (cost.num_blocks, cost.blocks_per_sm) == (64 * 16, 1)


def test_on_a100_a_large_product_fills_the_gpu_once() -> None:
  large = kernel_lib.predict(_gemm(8192, 4096, 8192), A100)
  assert (large.num_blocks, large.blocks_per_sm) == (A100.num_sms, 1)
  small = kernel_lib.predict(_gemm(256, 256, 8192), A100)
  assert small.num_blocks <= A100.num_sms


def test_two_products_in_a_kernel_take_the_time_of_two() -> None:
  one = _gemm(4096, 4096, 4096)
  two = dataclasses.replace(one, flops=2 * one.flops)
  one_us = kernel_lib.predict(one, H100).time_us - GAP_US
  assert kernel_lib.predict(two, H100).time_us == pytest.approx(
    2 * one_us + GAP_US
  )


def test_a_product_that_reads_far_more_than_its_operands_takes_its_bytes() -> (
  None
):
  gemm_kernel = _gemm(1024, 1024, 1024, num_bytes=10**9)
  fusion = _kernel(num_bytes=10**9)
  assert (
    kernel_lib.predict(gemm_kernel, H100).time_us
    == kernel_lib.predict(fusion, H100).time_us
  )


def test_xlas_estimate_is_not_taken_for_what_the_model_knows() -> None:
  for kernel in (_gemm(8192, 8192, 8192), _kernel(num_bytes=10**8)):
    estimated = dataclasses.replace(kernel, backend_config=_estimated(1e5))
    assert kernel_lib.predict(estimated, H100) == kernel_lib.predict(
      kernel, H100
    )


def test_xlas_estimate_is_taken_for_products_of_unknown_shape_and_others() -> (
  None
):
  for category in ("gemm", "other"):
    kernel = _kernel(category=category, backend_config=_estimated(1500.0))
    cost = kernel_lib.predict(kernel, H100)
    assert (cost.time_us, cost.source) == (1500.0 + GAP_US, "xla")


def test_an_estimate_faster_than_memory_is_not_believed() -> None:
  # 335 MB take 100 us at 3352 GB/s.
  kernel = _kernel(
    category="other", num_bytes=335_232_000, backend_config=_estimated(99.0)
  )
  cost = kernel_lib.predict(kernel, H100)
  assert cost.source == "model"
  assert cost.time_us > 100


@pytest.mark.parametrize("pattern", PATTERNS)
@pytest.mark.parametrize("gpu", [H100, A100], ids=["h100", "a100"])
def test_a_fusion_takes_its_launch_and_its_bytes_at_the_patterns_share(
  pattern: str, gpu: cluster_lib.Gpu
) -> None:
  kernel = _kernel(pattern=pattern, num_bytes=10**9)
  cost = kernel_lib.predict(kernel, gpu)
  parameters = fusion.fitted(gpu)
  fitted = parameters.patterns[pattern]
  moved_us = 1e9 / (gpu.hbm_gbps * 1e3 * fitted.memory_share)
  assert cost.run_us == pytest.approx(fitted.launch_us + moved_us)
  assert cost.gap_us == parameters.launch_gap_us
  assert cost.time_us == pytest.approx(cost.run_us + cost.gap_us)
  assert cost.memory_us == pytest.approx(1e9 / (gpu.hbm_gbps * 1e3))


def test_a_fusion_of_many_operations_on_few_bytes_is_bound_by_them() -> None:
  # 132 SMs of 128 lanes at 1.98 GHz or so; a billion operations.
  kernel = _kernel(num_bytes=1000, num_element_operations=10**9)
  lanes = H100.num_sms * H100.fp32_lanes_per_sm * H100.clock_ghz * 1e3
  computed_us = 1e9 / (lanes * FITTED.vector_share)
  launch_us = FITTED.patterns["elementwise"].launch_us
  assert kernel_lib.predict(kernel, H100).time_us == pytest.approx(
    launch_us + computed_us + GAP_US
  )


def test_a_kernel_that_does_nothing_still_takes_its_launch_and_gap() -> None:
  cost = kernel_lib.predict(_kernel(), H100)
  assert cost.time_us == FITTED.patterns["elementwise"].launch_us + GAP_US
  assert cost.memory_us == 0.0


def test_a_thread_that_moves_little_is_bound_by_its_wave() -> None:
  # Ten times as many threads as the GPU holds, with 4 bytes each.
  num_threads = 10 * H100.num_sms * H100.threads_per_sm
  kernel = _kernel(num_threads=num_threads, num_bytes=4 * num_threads)
  launch_us = FITTED.patterns["elementwise"].launch_us
  cost = kernel_lib.predict(kernel, H100)
  assert cost.run_us == pytest.approx(launch_us + 10 * FITTED.wave_us)
  assert cost.threads_us == pytest.approx(10 * FITTED.wave_us)


def test_few_columns_leave_memory_idle() -> None:
  def run_us(num_columns: int) -> float:
    kernel = _kernel(
      pattern="column-reduction", num_columns=num_columns, num_bytes=10**8
    )
    return kernel_lib.predict(kernel, H100).run_us

  launch_us = FITTED.patterns["column-reduction"].launch_us
  few_us = run_us(320) - launch_us
  assert few_us == pytest.approx(1e8 / (10 * FITTED.block_gbps * 1e3))
  assert run_us(640) - launch_us == pytest.approx(few_us / 2)
  assert run_us(10**6) < few_us / 10


@pytest.mark.parametrize(
  ("gpu", "is_backward", "efficiency"),
  [
    (H100, False, 0.6),
    (H100, True, 0.5),
    (A100, False, 0.7),
    (A100, True, 0.6),
  ],
)
def test_attention_takes_its_operations_at_a_published_share_of_the_peak(
  gpu: cluster_lib.Gpu, is_backward: bool, efficiency: float
) -> None:
  kernel = _kernel(
    category="attention",
    flops=10**12,
    is_backward=is_backward,
    result_elements=128 * 128 * 96,
  )
  cost = kernel_lib.predict(kernel, gpu)
  peak = gpu.matmul_peak_tflops["bf16"] * 1e6
  assert cost.run_us == pytest.approx(1e12 / (peak * efficiency))
  assert (cost.num_blocks, cost.blocks_per_sm) == (96, 1)


@pytest.mark.parametrize("category", ["attention", "convolution", "other"])
def test_whatever_moves_more_than_it_multiplies_takes_its_bytes(
  category: str,
) -> None:
  kernel = _kernel(category=category, flops=10, num_bytes=10**9)
  fusion = _kernel(num_bytes=10**9)
  assert (
    kernel_lib.predict(kernel, H100).time_us
    == kernel_lib.predict(fusion, H100).time_us
  )


def test_an_elementwise_kernel_has_a_block_per_512_elements() -> None:
  cost = kernel_lib.predict(_kernel(result_elements=512 * 1000 + 1), H100)
  assert (cost.num_blocks, cost.blocks_per_sm) == (1001, 16)


# The H100 step's first rank was fitted to; its last is judged here.
@pytest.mark.parametrize(
  ("name", "product_error"), [("pax_a100", 0.05), ("maxtext_h100", 0.06)]
)
def test_lone_kernels_of_a_measured_step_are_predicted(
  name: str, product_error: float
) -> None:
  folder = DATA / name
  if not folder.exists():
    pytest.skip(f"needs the measured step of shared/data/{name}")
  module = traced_step.read_module(folder)
  gpu = traced_step.cluster_of(folder, module).gpu
  names = {c.name for c in collectives.find(module)}
  steps = [*traced_step.by_rank(folder, module).values()][-1]
  lone = events_lib.lone_runs(steps, names)
  rows = [
    row
    for row in lone_kernels.classes(module, lone, len(steps))
    if row.kernel.scatter is None
  ]
  predicted = np.array([
    kernel_lib.predict(r.kernel, gpu).run_us for r in rows
  ])  # fmt: skip
  measured = np.array([r.measured_us for r in rows])
  per_step = np.array([r.per_step for r in rows])
  error = np.abs(predicted / measured - 1)
  is_gemm = np.array([r.kernel.category == "gemm" for r in rows])
  assert np.median(error[is_gemm]) <= product_error
  assert np.median(error[~is_gemm & (measured >= 20)]) <= 0.15
  assert predicted @ per_step == pytest.approx(measured @ per_step, rel=0.05)


@given(
  gpu=st.sampled_from(
    [cluster_lib.parse(f"1x1x{name}").gpu for name in cluster_lib.gpu_names()]
  ),
  category=st.sampled_from(
    ["gemm", "attention", "convolution", "fusion", "copy", "other"]
  ),
  element_type=st.sampled_from(["bf16", "f32", "f64", "s4", "pred", "tuple"]),
  pattern=st.sampled_from(PATTERNS),
  num_element_operations=st.integers(0, 10**13),
  is_backward=st.booleans(),
  flops=st.integers(0, 10**15),
  num_bytes=st.integers(0, 10**11),
  result_elements=st.integers(0, 10**10),
  matrix_shape=st.none() | st.tuples(*[st.integers(0, 10**5)] * 4),
  estimate_us=st.none() | st.floats(0, 1e7),
)
def test_every_kernel_has_a_cost(
  estimate_us: float | None, gpu: cluster_lib.Gpu, **fields: Any
) -> None:
  config = {} if estimate_us is None else _estimated(estimate_us)
  cost = kernel_lib.predict(_kernel(**fields, backend_config=config), gpu)
  assert 0 <= cost.memory_us <= cost.time_us < math.inf
  assert cost.run_us > 0
  assert cost.num_blocks >= 1
  assert cost.blocks_per_sm >= 1
