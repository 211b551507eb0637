# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Costs of single kernels: products by tiles, others by the bytes they move."""

from __future__ import annotations

from collections.abc import Callable, Sequence
import dataclasses
import functools
import math
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import hlo_text
from lagom_xla import cluster as cluster_lib
from lagom_xla.costs import fusion
from lagom_xla.costs import gemm
from lagom_xla.costs import kernel as kernel_lib
from lagom_xla.costs import step as step_lib
from lagom_xla.costs import uncertainty
from lagom_xla.passes import kernels as kernels_lib
from lagom_xla.passes import memory_access
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


@pytest.mark.parametrize("gpu", [H100, A100], ids=["h100", "a100"])
def test_a_product_costs_its_predicted_time_plus_the_launch_gap(gpu):
  cost = kernel_lib.predict(_gemm(8192, 4096, 8192), gpu)
  gap_us = fusion.fitted(gpu).launch_gap_us
  product_us = gemm.predict_us(gpu, (1, 8192, 4096, 8192), ("bf16",) * 3)
  assert cost.time_us == product_us + gap_us
  assert cost.source == "model"


@pytest.mark.parametrize(
  ("gpu", "shape", "blocks"),
  [
    # Tiles of 128 by 256, whose operands leave no room for a second block.
    (H100, (8192, 4096, 8192), 64 * 16),
    # Few tiles fill the clusters of a Hopper once, and an A100 once.
    (H100, (4096, 2560, 1024), 120),
    (A100, (8192, 4096, 8192), A100.num_sms),
  ],
)
def test_a_product_has_one_block_per_tile_or_one_wave_of_blocks(
  gpu, shape, blocks
):
  cost = kernel_lib.predict(_gemm(*shape), gpu)
  assert (cost.num_blocks, cost.blocks_per_sm) == (blocks, 1)


@pytest.mark.parametrize(
  "kernel", [_gemm(8192, 8192, 8192), _kernel(num_bytes=10**8)]
)
def test_xlas_estimate_is_ignored_for_kernels_that_the_model_covers(kernel):
  estimated = dataclasses.replace(kernel, backend_config=_estimated(1e5))
  predicted = kernel_lib.predict(kernel, H100)
  assert kernel_lib.predict(estimated, H100) == predicted


@pytest.mark.parametrize("category", ["gemm", "other"])
def test_xlas_estimate_is_used_for_unknown_shapes_and_other_kernels(category):
  kernel = _kernel(category=category, backend_config=_estimated(1500.0))
  cost = kernel_lib.predict(kernel, H100)
  assert (cost.time_us, cost.source) == (1500.0 + GAP_US, "xla")


def test_an_estimate_faster_than_memory_bandwidth_is_ignored():
  # 335 MB take 100 us at 3352 GB/s.
  kernel = _kernel(
    category="other", num_bytes=335_232_000, backend_config=_estimated(99.0)
  )
  cost = kernel_lib.predict(kernel, H100)
  assert cost.source == "model"
  assert cost.time_us > 100


@pytest.mark.parametrize("num_bytes", [0, 10**9])
@pytest.mark.parametrize("pattern", PATTERNS)
@pytest.mark.parametrize("gpu", [H100, A100], ids=["h100", "a100"])
def test_a_fusion_costs_its_launch_and_its_bytes_at_the_patterns_rate(
  gpu, pattern, num_bytes
):
  cost = kernel_lib.predict(_kernel(pattern=pattern, num_bytes=num_bytes), gpu)
  parameters = fusion.fitted(gpu)
  fitted = parameters.patterns[pattern]
  memory_us = num_bytes / (gpu.hbm_gbps * 1e3)
  run_us = fitted.launch_us + memory_us / fitted.memory_share
  assert cost.run_us == pytest.approx(run_us)
  assert cost.gap_us == parameters.launch_gap_us
  assert cost.memory_us == pytest.approx(memory_us)


def test_a_fusion_of_many_operations_on_few_bytes_is_compute_bound():
  # 132 SMs of 128 lanes at 1.98 GHz or so; a billion operations.
  kernel = _kernel(num_bytes=1000, num_element_operations=10**9)
  lanes = H100.num_sms * H100.fp32_lanes_per_sm * H100.clock_ghz * 1e3
  computed_us = 1e9 / (lanes * FITTED.vector_share)
  launch_us = FITTED.patterns["elementwise"].launch_us
  assert kernel_lib.predict(kernel, H100).time_us == pytest.approx(
    launch_us + computed_us + GAP_US
  )


def test_threads_that_move_few_bytes_are_bound_by_the_time_of_a_wave():
  # Ten times as many threads as the GPU holds, with 4 bytes each.
  num_threads = 10 * H100.num_sms * H100.threads_per_sm
  kernel = _kernel(num_threads=num_threads, num_bytes=4 * num_threads)
  launch_us = FITTED.patterns["elementwise"].launch_us
  cost = kernel_lib.predict(kernel, H100)
  assert cost.run_us == pytest.approx(launch_us + 10 * FITTED.wave_us)
  assert cost.threads_us == pytest.approx(10 * FITTED.wave_us)


def test_a_column_reduction_of_few_columns_underuses_memory():
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
def test_attention_runs_at_a_published_share_of_peak_flops(
  gpu, is_backward, efficiency
):
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


@pytest.mark.parametrize(
  "kernel",
  [
    _gemm(1024, 1024, 1024, num_bytes=10**9),
    *(
      _kernel(category=category, flops=10, num_bytes=10**9)
      for category in ("attention", "convolution", "other")
    ),
  ],
  ids=lambda kernel: kernel.category,
)
def test_memory_bound_kernels_of_any_category_cost_as_a_fusion_does(kernel):
  fusion = _kernel(num_bytes=10**9)
  assert (
    kernel_lib.predict(kernel, H100).time_us
    == kernel_lib.predict(fusion, H100).time_us
  )


def test_an_elementwise_kernel_has_a_block_per_512_elements():
  cost = kernel_lib.predict(_kernel(result_elements=512 * 1000 + 1), H100)
  assert (cost.num_blocks, cost.blocks_per_sm) == (1001, 16)


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
def test_every_kernel_has_a_cost(estimate_us, gpu, **fields):
  config = {} if estimate_us is None else _estimated(estimate_us)
  cost = kernel_lib.predict(_kernel(**fields, backend_config=config), gpu)
  assert 0 <= cost.memory_us <= cost.time_us < math.inf
  assert cost.run_us > 0
  assert cost.num_blocks >= 1
  assert cost.blocks_per_sm >= 1


B200 = cluster_lib.parse("1x8xb200").gpu

_TRITON = {
  "fusion_backend_config": {
    "kind": "__triton_gemm",
    "triton_gemm_config": {
      "block_m": "64",
      "block_n": "256",
      "block_k": "32",
      "split_k": "2",
      "num_stages": "3",
      "num_warps": "8",
    },
  }
}


@pytest.mark.parametrize("gpu", [A100, H100, B200], ids=lambda gpu: gpu.name)
def test_the_tile_of_a_triton_kernel_is_read_from_the_module(gpu):
  cost = kernel_lib.predict(
    _gemm(1000, 4096, 2048, backend_config=_TRITON), gpu
  )
  # 16 tiles by 16, k in two parts; 3 stages of 320 rows of 32 elements.
  assert cost.num_blocks == 16 * 16 * 2
  by_memory = gpu.shared_memory_per_sm_bytes // (3 * 320 * 32 * 2)
  assert cost.blocks_per_sm == min(by_memory, gpu.threads_per_sm // 256)
  assert cost.wave_loss == 1.0


@pytest.mark.parametrize(
  ("m", "n", "may_be_split"),
  # 128 tiles of 128 x 256 on 132 SMs, 80, 320 (2.4 waves), and 640 (4.8).
  [
    (4096, 1024, False),
    (1024, 2560, True),
    (4096, 2560, True),
    (8192, 2560, False),
  ],
)
def test_tiles_that_fill_their_waves_poorly_may_be_split(m, n, may_be_split):
  cost = kernel_lib.predict(_gemm(m, n, 4096), H100)
  assert (cost.wave_loss > 1) == may_be_split


@given(
  gpu=st.sampled_from([A100, H100, B200]),
  m=st.integers(1, 20000),
  n=st.integers(1, 20000),
)
def test_no_product_has_more_blocks_than_tiles(gpu, m, n):
  cost = kernel_lib.predict(_gemm(m, n, 1024), gpu)
  num_tiles, _ = gemm.blocks(gpu, (1, m, n, 1024), "bf16")
  assert 1 <= cost.num_blocks <= num_tiles


_PEAK_TFLOPS = 66.9  # NVIDIA's data sheet, FP32.
_DOT = (jnp.dot, (4096, 4096), (4096, 4096))
_CONVOLUTION = (
  functools.partial(
    jax.lax.conv_general_dilated,
    window_strides=(1, 1),
    padding="SAME",
    dimension_numbers=("NHWC", "HWIO", "NHWC"),
  ),
  (64, 32, 32, 256),
  (3, 3, 256, 256),
)


@pytest.fixture(name="product_us")
def fixture_product_us(h100s, scheduled) -> Callable[..., float]:
  """The predicted run time of a product's kernel, from a compile of it."""
  place = jax.sharding.SingleDeviceSharding(h100s[0])

  def product_us(
    precision: str, dtype: str, of: Any = _DOT, **options: bool
  ) -> float:
    product, *shapes = of
    module = scheduled(
      jax.jit(functools.partial(product, precision=precision)).lower(
        *(jax.ShapeDtypeStruct(s, dtype, sharding=place) for s in shapes)
      ),
      **options,
    )
    step = step_lib.of_module(module, cluster_lib.parse("1x1xh100"))
    kernels = [k for k in step.analysis.kernels.values() if k.flops]
    return max(step.kernel_cost(kernel).run_us for kernel in kernels)

  return product_us


@pytest.mark.parametrize("triton", [True, False], ids=["triton", "cublas"])
def test_a_matrix_product_runs_at_the_rate_of_its_precision(product_us, triton):
  def time_us(precision: str, dtype: str) -> float:
    return product_us(precision, dtype, xla_gpu_enable_triton_gemm=triton)

  least_us = 2 * 4096**3 / (_PEAK_TFLOPS * 1e6)
  f32, bf16, c64 = "float32", "bfloat16", "complex64"
  assert time_us("highest", f32) == pytest.approx(least_us)
  assert time_us("F32_F32_F32", f32) == pytest.approx(least_us)
  assert time_us("default", f32) < least_us / 4
  # Tensor cores take bf16 in full.
  assert time_us("highest", bf16) == time_us("default", bf16)
  # A complex product is four real ones.
  assert time_us("highest", c64) == pytest.approx(4 * least_us)
  assert time_us("default", c64) == pytest.approx(4 * time_us("default", f32))


def test_a_product_in_three_passes_takes_three_times_as_long(product_us):
  for split, dtype, whole in (
    ("BF16_BF16_F32_X3", "float32", "bfloat16"),
    ("TF32_TF32_F32_X3", "float32", "float32"),
  ):
    whole_us = product_us("default", whole)
    assert product_us(split, dtype) == pytest.approx(3 * whole_us)


def test_a_convolution_runs_at_the_rate_of_its_precision(product_us):
  least_us = 2 * 64 * 32 * 32 * 9 * 256 * 256 / (_PEAK_TFLOPS * 1e6)
  highest_us, default_us = (
    product_us(precision, "float32", _CONVOLUTION)
    for precision in ("highest", "default")
  )
  assert highest_us == pytest.approx(least_us)
  assert default_us < least_us / 4


_SCATTER = memory_access.Scatter(
  num_updates=16384,
  window_elements=640,
  num_places=32000,
  element_bits=16,
  may_collide=True,
)


@pytest.mark.parametrize(
  ("changes", "scale"),
  [({}, 1), ({"may_collide": False}, 0), ({"element_bits": 32}, 0)],
)
def test_colliding_scatter_updates_retry_once_per_concurrent_update(
  changes, scale
):
  # 422 updates of 640 threads are resident on 132 SMs of 2,048 threads. Two
  # bf16 share a word.
  scatter = dataclasses.replace(_SCATTER, **changes)
  tries = 16384 * 640 * (132 * 2048 / 640 - 1) * 2
  assert fusion.num_tries(scatter, H100) == pytest.approx(scale * tries)


def test_token_ids_of_text_collide_far_less_than_a_single_id():
  worst_us = fusion.worst_scatter_us(_SCATTER, H100)
  assert fusion.scatter_us(_SCATTER, H100) == pytest.approx(
    worst_us * fusion.collision(32000)
  )
  cost = kernel_lib.predict(_kernel(scatter=_SCATTER), H100)
  assert cost.run_us < worst_us / 10


@given(num_ids=st.integers(2, 10**4))
def test_the_collision_rate_is_the_sum_of_squared_zipf_shares(num_ids):
  weights = 1 / np.arange(1, num_ids + 1)
  shares = weights / weights.sum()
  assert fusion.collision(num_ids) == pytest.approx(
    float(shares @ shares), rel=0.05
  )


def _turned(
  kind: str, order: Sequence[int], copied: str = "{3,2,1,0}"
) -> step_lib.Step:
  """8.6 GB copied to a layout and transposed, in one fusion."""
  sizes = (8, 256, 256, 2048)
  array, turned = (
    f"c64[{','.join(map(str, found))}]"
    for found in (sizes, [sizes[dim] for dim in order])
  )
  dimensions = ",".join(map(str, order))
  module = hlo_text.load(
    f"p = {array} parameter(0)\n"
    f"ROOT f = {turned} fusion(p), kind={kind}, calls=turn",
    computations=f"turn {{\n  q = {array} parameter(0)\n"
    f"  c = {array}{copied} copy(q)\n"
    f"  ROOT r = {turned} transpose(c), dimensions={{{dimensions}}}\n}}",
  )
  return step_lib.of_module(module, cluster_lib.parse("1x8xa100_80"))


@pytest.mark.parametrize(
  ("kind", "order", "copied", "is_scattered"),
  [
    # The neighbor of an element is read 2**19 elements later, when L2 has lost
    # it: 64 bytes are fetched for 8.
    ("kLoop", (3, 1, 0, 2), "{3,2,1,0}", True),
    # The neighbor is read 256 elements later, still from L2.
    ("kLoop", (0, 1, 3, 2), "{3,2,1,0}", False),
    # Copy and transpose move the neighbor by 256 and by 8 elements, together by
    # 2**19.
    ("kLoop", (3, 1, 2, 0), "{2,3,1,0}", True),
    # The transpose undoes the copy's move.
    ("kLoop", (2, 1, 0, 3), "{0,2,1,3}", False),
    # Tiles are transposed in shared memory.
    ("kInput", (3, 1, 0, 2), "{3,2,1,0}", False),
  ],
)
def test_a_transposing_loop_fetches_unused_bytes_where_reads_scatter(
  kind, order, copied, is_scattered
):
  step = _turned(kind, order, copied)
  (kernel,) = step.analysis.kernels.values()
  gpu = step.cluster.gpu
  share = fusion.fitted(gpu).patterns["transpose"].memory_share
  array_us = 2**33 / (gpu.hbm_gbps * 1e3)
  cost = step.kernel_cost(kernel)
  # Scattered reads reach a third of the memory's rate (openxla/xla#2103).
  scattered_us = 8 * array_us / 0.329 if is_scattered else 0.0
  assert cost.scattered_us == pytest.approx(scattered_us, rel=0.002)
  written_us = array_us * (1 if is_scattered else 2) / share
  assert cost.run_us == pytest.approx(scattered_us + written_us, rel=0.002)


def test_neighbors_within_one_fetch_are_fetched_once():
  module = hlo_text.load(
    "p = f32[1073741824,2] parameter(0)\n"
    "ROOT f = f32[2,1073741824] fusion(p), kind=kLoop, calls=turn",
    computations="turn {\n  q = f32[1073741824,2] parameter(0)\n"
    "  ROOT r = f32[2,1073741824] transpose(q), dimensions={1,0}\n}",
  )
  step = step_lib.of_module(module, cluster_lib.parse("1x8xa100_80"))
  (kernel,) = step.analysis.kernels.values()
  # Both passes over the array fetch all of it.
  fetched_us = 2 * 2**33 / (step.cluster.gpu.hbm_gbps * 1e3) / 0.329
  cost = step.kernel_cost(kernel)
  assert cost.scattered_us == pytest.approx(fetched_us, rel=0.002)


def test_a_transposing_loop_has_a_wide_range_like_its_measurements():
  step = _turned("kLoop", (3, 1, 0, 2))
  found = uncertainty.step_time(uncertainty.times(step, step.default))
  tiled = _turned("kInput", (3, 1, 0, 2))
  assert found.low < 0.65 * found.mean < found.mean < found.high / 1.3
  assert found.low > 4 * tiled.timeline(tiled.default).step_time_us
