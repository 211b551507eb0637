# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Grids of kernels: the number of thread blocks, in all and per SM.

These are mu_i and TB_i of Lagom (arXiv 2602.20656, Table 1). They decide a
kernel's loss when a collective takes SMs. For products that XLA compiled with
Triton, the module's backend_config has the tiles, one per block. For library
products it has only an opaque algorithm number. Libraries have two kinds of
grid:

*One wave.* The blocks that fit on the GPU share all tiles, or split k so that
all blocks get equal work. Any missing SM causes a second wave. On A100 all
library products slow down 1.5 to 2.1 times beside 24 channels, with any tiles.

*A block per tile*, or blocks that fetch the next tile when one is done. The
loss is the share of missing SMs, rounded up to waves.

On Hopper, products of few tiles have the first kind and products of many the
second: results of up to 2.4 waves of the largest tiles slow down 1.9 to 3.7
times beside 24 channels, those of 4.8 waves 1.4 to 1.7 times, those of 7.8 by
17 to 30 % (benchmarks/steps/slowdowns.py). So the border is at about 5 waves.

On Hopper one wave does not fill all SMs: a cluster of blocks must lie in one
GPC, and clusters of eight fit on 120 of 132 SMs (NVIDIA/cutlass issue 1921;
accel-sim/gpu-app-collection pull request 87). So a collective of few channels
does not slow such a product down, which measurements confirm.

If tiles would leave much of their last wave empty, libraries split k. Blocks
that share a tile then wait for each other. Of four such products, three slow
down 3.0 to 3.7 times, as if they ran three waves instead of one, and one 2.0
times. A module does not distinguish the two cases, so the mean is used.
"""

from __future__ import annotations

from collections.abc import Mapping
import dataclasses
import functools
import math
from typing import Any

from lagom_xla import cluster as cluster_lib
from lagom_xla.costs import gemm
from lagom_xla.passes import kernels as kernels_lib

# Share of Hopper's SMs on which clusters of eight blocks fit. See above.
_CLUSTERED_SHARE = 120 / 132

# On Hopper, products of fewer waves of the largest tile run in one wave. They
# split k if their tiles fill less than `_WELL_FILLED` of their waves.
_FEW_WAVES = 5
_LARGEST_TILES = ((128, 256), (256, 128))
_WELL_FILLED = 0.9

# Loss of a product that may split k, in waves per additional wave: two if its
# blocks wait for each other, as in three of four products, else one.
_SPLIT_WAVE_LOSS = 1.75

# Fused attention: rows of queries per block, times the size of a head.
_ATTENTION_ELEMENTS_PER_BLOCK = 128 * 128

# XLA's elementwise kernels: threads per block, and elements per thread (xla/
# service/gpu/launch_dimensions.cc, and the loop emitter's unroll factor).
_FUSION_THREADS_PER_BLOCK = 128
_FUSION_ELEMENTS_PER_THREAD = 4


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Grid:
  """Thread blocks of a kernel.

  Attributes:
    num_blocks: number of blocks.
    blocks_per_sm: blocks that are resident on one SM.
    wave_loss: loss of the kernel in waves, per additional wave.
  """

  num_blocks: int
  blocks_per_sm: int
  wave_loss: float = 1.0


def of_kernel(
  kernel: kernels_lib.Kernel,
  product: tuple[gemm.Shape, str] | None,
  gpu: cluster_lib.Gpu,
) -> Grid:
  """The grid of a kernel; `product` is its main matrix product, if any."""
  if product is not None:
    triton = _triton_grid(kernel.backend_config, *product, gpu)
    return triton or _library_grid(gpu, *product)
  if kernel.category == "attention":
    elements = kernel.result_elements
    num_blocks = math.ceil(elements / _ATTENTION_ELEMENTS_PER_BLOCK)
    return Grid(num_blocks=max(num_blocks, 1), blocks_per_sm=1)
  if kernel.pattern == "memcpy":  # Assumed to need no SMs.
    return Grid(num_blocks=1, blocks_per_sm=1)
  num_threads = (
    kernel.num_threads or kernel.result_elements / _FUSION_ELEMENTS_PER_THREAD
  )
  return Grid(
    num_blocks=max(math.ceil(num_threads / _FUSION_THREADS_PER_BLOCK), 1),
    blocks_per_sm=max(gpu.threads_per_sm // _FUSION_THREADS_PER_BLOCK, 1),
  )


@functools.lru_cache(maxsize=4096)
def _library_grid(
  gpu: cluster_lib.Gpu, shape: gemm.Shape, element_type: str
) -> Grid:
  batch, m, n, _ = shape
  num_tiles, blocks_per_sm = gemm.blocks(gpu, shape, element_type)
  each_tile = Grid(num_blocks=num_tiles, blocks_per_sm=blocks_per_sm)
  if gpu.compute_capability == (8, 0):
    one_wave = gpu.num_sms * blocks_per_sm
    return dataclasses.replace(each_tile, num_blocks=min(num_tiles, one_wave))
  if gpu.compute_capability != (9, 0):
    return each_tile
  waves = min(
    batch * -(-m // tile_m) * -(-n // tile_n) / gpu.num_sms
    for tile_m, tile_n in _LARGEST_TILES
  )
  if waves >= _FEW_WAVES:
    return each_tile
  is_split = waves / math.ceil(waves) < _WELL_FILLED
  return Grid(
    num_blocks=min(num_tiles, int(gpu.num_sms * _CLUSTERED_SHARE)),
    blocks_per_sm=1,
    wave_loss=_SPLIT_WAVE_LOSS if is_split else 1.0,
  )


def _triton_grid(
  backend_config: Mapping[str, Any],
  shape: gemm.Shape,
  element_type: str,
  gpu: cluster_lib.Gpu,
) -> Grid | None:
  """A block per tile if autotuning chose a Triton kernel, else None."""
  fusion = backend_config.get("fusion_backend_config", {})
  config = fusion.get("triton_gemm_config")
  if config is None:
    return None
  names = "block_m", "block_n", "block_k", "split_k", "num_stages", "num_warps"
  tile_m, tile_n, tile_k, split_k, num_stages, num_warps = (
    int(config.get(name, 1)) for name in names
  )
  batch, m, n, _ = shape
  operand_bytes = gemm.bits(element_type) / 8 * (tile_m + tile_n) * tile_k
  per_sm = min(
    gpu.shared_memory_per_sm_bytes / (num_stages * operand_bytes),
    gpu.threads_per_sm / (32 * num_warps),
  )
  return Grid(
    num_blocks=batch * -(-m // tile_m) * -(-n // tile_n) * split_k,
    blocks_per_sm=max(int(per_sm), 1),
  )
