# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Grids of kernels: what the module says of them, and what libraries choose."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st
import pytest

from lagom_xla import cluster as cluster_lib
from lagom_xla.costs import gemm
from lagom_xla.costs import kernel as kernel_lib
from lagom_xla.passes import kernels as kernels_lib

A100 = cluster_lib.parse("1x8xa100_80").gpu
H100 = cluster_lib.parse("1x8xh100").gpu
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


def _product(
  m: int, n: int, k: int, backend_config: dict[str, Any] | None = None
) -> kernels_lib.Kernel:
  return kernels_lib.Kernel(
    name="product",
    category="gemm",
    computation="main",
    instruction_id=1,
    executions=1,
    flops=2 * m * n * k,
    num_bytes=2 * (m * k + k * n + m * n),
    element_type="bf16",
    result_elements=m * n,
    matrix_shape=(1, m, n, k),
    backend_config=backend_config or {},
  )


def _num_tiles(gpu: cluster_lib.Gpu, m: int, n: int, k: int) -> int:
  found, _ = gemm.blocks(gpu, batch=1, m=m, n=n, k=k, element_type="bf16")
  return found


@pytest.mark.parametrize("gpu", [A100, H100, B200], ids=lambda gpu: gpu.name)
def test_the_tile_of_a_triton_kernel_is_read_from_the_module(gpu):
  cost = kernel_lib.predict(_product(1000, 4096, 2048, _TRITON), gpu)
  # 16 tiles by 16, k in two parts; 3 stages of 320 rows of 32 elements.
  assert cost.num_blocks == 16 * 16 * 2
  by_memory = gpu.shared_memory_per_sm_bytes // (3 * 320 * 32 * 2)
  assert cost.blocks_per_sm == min(by_memory, gpu.threads_per_sm // 256)
  assert cost.wave_loss == 1.0


def test_products_of_a_library_fill_an_a100_once():
  cost = kernel_lib.predict(_product(8192, 8192, 4096), A100)
  assert cost.num_blocks == 108 * cost.blocks_per_sm
  assert cost.num_blocks < _num_tiles(A100, 8192, 8192, 4096)


def test_products_of_few_tiles_fill_the_clusters_of_a_hopper_once():
  cost = kernel_lib.predict(_product(4096, 2560, 1024), H100)
  assert (cost.num_blocks, cost.blocks_per_sm) == (120, 1)


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
def test_tiles_that_fill_their_waves_badly_may_be_split(m, n, may_be_split):
  cost = kernel_lib.predict(_product(m, n, 4096), H100)
  assert (cost.wave_loss > 1) == may_be_split


def test_products_of_many_tiles_have_a_block_for_each_on_hopper():
  cost = kernel_lib.predict(_product(4096, 8192, 2560), H100)
  assert cost.num_blocks == _num_tiles(H100, 4096, 8192, 2560)
  assert cost.num_blocks >= 32 * 32
  assert cost.wave_loss == 1.0


def test_a_product_of_two_tiles_has_two_blocks():
  cost = kernel_lib.predict(_product(128, 128, 64), H100)
  assert cost.num_blocks <= 4


@given(
  gpu=st.sampled_from([A100, H100, B200]),
  m=st.integers(1, 20000),
  n=st.integers(1, 20000),
)
def test_no_product_has_more_blocks_than_tiles(gpu, m, n):
  cost = kernel_lib.predict(_product(m, n, 1024), gpu)
  assert 1 <= cost.num_blocks <= _num_tiles(gpu, m, n, 1024)
