# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Run times of matrix products alone: that of the fastest candidate kernel.

A GEMM kernel cuts its result into tiles. Each SM computes its tiles in
sequence: it steps through k, 128 bytes of each row at a time, and then stores
the tile. A step takes the longest of its arithmetic, the loads of its operands,
and a minimum latency:

  step = max(2 tm tn tk / (peak rate · math_efficiency / SMs),
             (tm + tn) · 128 bytes / operand rate, step latency)
  tile = steps · step + tile latency + tm tn out bytes / store rate
  time = launch + max(ceil(tiles / SMs) · tile, bytes / memory rate,
                      operations / sustained rate)

Rounding up accounts for padding (a tile at the edge costs as much as any other)
and for waves (the last one may be nearly empty). If tiles are few and k is
long, k is split over several blocks, and a second kernel adds up their parts.
Autotuning tries tiles, splits and kernel families, so the prediction is the
minimum over all of them. There are several families if the data shows two kinds
of kernel: slow to start and fast in the main loop, or the reverse.

The parameters are shares of the GPU's own rates, clocks, and bytes per clock,
so they carry over to other GPUs of the architecture. They are in
fitted/gemm.json. benchmarks/kernels/fit_gemm.py fits them and prints their
error on held-out rows.

XLA's table of measured products (default_matmul_perf_table) does not have the
time of the product, but the median over all kernels launched for it
(matmul_perf_table_gen.cc, HloOpProfiler). With two kernels per product, that is
the mean of the two: `tabulated_us`. This matters for FP8 on Hopper, where
library kernels need both operands with k innermost (cuBLAS, "FP8 data types
usage": TN only), so XLA transposes the rhs first. Read as the product's own
time, some rows would exceed the data sheet's peak by 30 %. The table's launches
are isolated, each after a copy of its arguments from the host, so its
`launch_us` is one or two microseconds longer than within a step.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import re

import numpy as np

from lagom_xla import cluster as cluster_lib
from lagom_xla import costs

# (batch, m, n, k) of [batch,m,k] × [batch,k,n].
Shape = tuple[int, int, int, int]


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Family:
  """Kernels that differ only in tile and split.

  Attributes:
    launch_us: from start to the first step, and from the last store to the
      end.
    math_efficiency: share of an SM's peak rate in the main loop.
    operand_bytes_per_clock: rate at which one SM loads operands.
    step_clocks: least time of a step of the main loop.
    tile_clocks: fixed cost of a tile, to fill and drain the pipeline.
    store_bytes_per_clock: rate at which one SM stores its results.
    rhs_k_innermost: whether the rhs must have k innermost.
  """

  launch_us: float
  math_efficiency: float
  operand_bytes_per_clock: float
  step_clocks: float
  tile_clocks: float
  store_bytes_per_clock: float
  rhs_k_innermost: bool


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Precision:
  """The kernels for operands of one width on one architecture.

  Attributes:
    families: kernel families to choose from.
    memory_efficiency: share of the memory's rate that a product reaches.
    sustained_efficiency: share of the peak that the whole GPU sustains.
    split_us: fixed cost of the kernel that adds up the parts of a split.
    transpose_us: fixed cost of the kernel that transposes the rhs.
    in_step: time within a running step, over that of a product by itself. Under
      continuous products a GPU reaches its power limit and lowers its clock
      (NVIDIA, "Power capping" in the documentation of nvidia-smi); with single
      products it does not.
  """

  families: tuple[Family, ...]
  memory_efficiency: float
  sustained_efficiency: float
  split_us: float
  transpose_us: float
  in_step: float = 1.0


def fitted(gpu: cluster_lib.Gpu, lhs_type: str, rhs_type: str) -> Precision:
  """The fitted parameters for a GPU and the wider of two operand types.

  An architecture without parameters uses those of the nearest older one that
  has them, or of the oldest.
  """
  major = min(max(gpu.compute_capability[0], 8), 10)
  precisions = _read_fitted()[f"sm_{major}0"]
  num_bits = max(bits(lhs_type), bits(rhs_type))
  name = "f8" if num_bits <= 8 else "bf16" if num_bits <= 16 else "f32"
  return precisions.get(name, precisions["bf16"])


@functools.cache
def _read_fitted() -> dict[str, dict[str, Precision]]:
  return {
    architecture: {
      name: Precision(
        families=tuple(Family(**family) for family in value.pop("families")),
        **value,
      )
      for name, value in section["precisions"].items()
    }
    for architecture, section in costs.read_fitted("gemm").items()
  }


def peak_tflops(gpu: cluster_lib.Gpu, lhs_type: str, rhs_type: str) -> float:
  """Dense peak for the wider of two HLO types, in 1e12 operations per second.

  f32 products use TF32 tensor cores if the GPU has them: XLA's default, and
  what its table measures (403 TFLOP/s on H100, 870 on B200).
  """
  wider = max(lhs_type, rhs_type, key=bits)
  num_bits = bits(wider)
  if num_bits <= 8:
    is_float = wider.startswith("f")
    dtypes = ("f8", "f16") if is_float else ("s8", "f8", "f16")
  elif num_bits <= 16:
    dtypes = ("bf16" if wider == "bf16" else "f16", "f16")
  elif num_bits <= 32:
    dtypes = ("tf32",)
  else:
    dtypes = ("f64",)
  peaks = gpu.matmul_peak_tflops
  return next((peaks[d] for d in dtypes if d in peaks), peaks["f32"])


@functools.cache
def bits(element_type: str) -> int:
  """Bits of a number type, from its HLO name.

  Raises:
    ValueError: it is not a number type.
  """
  found = re.match(r"(?:bf|f|s|u|c)([0-9]+)", element_type)
  if not found:
    raise ValueError(
      f"a matmul has element type {element_type!r}; it must be a number"
      " type of HLO, such as bf16 or f8e4m3fn"
    )
  return int(found[1])


# Tiles of the library kernels (CUTLASS' default configurations), m by n.
_TILES = ((128, 256), (256, 128), (128, 128), (64, 128), (128, 64), (64, 64))
_SPLITS = (1, 2, 4, 8)
# k advances by the width of a row of shared memory: 32 banks of 4 bytes.
STEP_BYTES = 128
_PARTIAL_BYTES = 4  # The parts of a split product are f32.


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Candidates:
  """Times of all kernels that autotuning could choose, along the last axis.

  Attributes:
    product_us: the product itself.
    sm_us: time of its tiles on the SMs.
    reduction_us: the kernel that adds up the parts of a split; 0 without one.
    transpose_us: the kernel that transposes the rhs first; 0 without one.
  """

  product_us: np.ndarray
  sm_us: np.ndarray
  reduction_us: np.ndarray
  transpose_us: np.ndarray


def candidates(
  gpu: cluster_lib.Gpu,
  precision: Precision,
  shape: np.ndarray,
  types: tuple[str, str, str],
) -> Candidates:
  """Times of the candidates for products of shape [..., (batch, m, n, k)].

  `types` are HLO types of lhs, rhs and result; results are [..., candidate].
  """
  family, tile_m, tile_n, split = np.array(choices(precision)).T
  batch, m, n, k = np.moveaxis(np.asarray(shape, float)[..., None, :], -1, 0)
  lhs_bytes, rhs_bytes, out_bytes = (bits(t) / 8 for t in types)
  stored_bytes = np.where(split > 1, _PARTIAL_BYTES, out_bytes)
  clocks_per_us = gpu.clock_ghz * 1e3
  flops_per_us = peak_tflops(gpu, *types[:2]) * 1e6
  bytes_per_us = gpu.hbm_gbps * 1e3 * precision.memory_efficiency

  def of_family(name: str) -> np.ndarray:
    return np.array([getattr(f, name) for f in precision.families])[family]

  # One tile: its steps through k, and its store.
  step_k = STEP_BYTES / max(lhs_bytes, rhs_bytes)
  sm_flops_per_us = flops_per_us / gpu.num_sms * of_family("math_efficiency")
  operand_bytes = (tile_m * lhs_bytes + tile_n * rhs_bytes) * step_k
  step_us = np.maximum.reduce([
    2 * tile_m * tile_n * step_k / sm_flops_per_us,
    operand_bytes / of_family("operand_bytes_per_clock") / clocks_per_us,
    of_family("step_clocks") / clocks_per_us,
  ])  # fmt: skip
  store_clocks = (
    tile_m * tile_n * stored_bytes / of_family("store_bytes_per_clock")
  )
  tile_us = (
    np.ceil(np.ceil(k / split) / step_k) * step_us
    + (of_family("tile_clocks") + store_clocks) / clocks_per_us
  )

  num_tiles = batch * np.ceil(m / tile_m) * np.ceil(n / tile_n) * split
  read_bytes = batch * k * (m * lhs_bytes + n * rhs_bytes)
  written_bytes = batch * m * n * stored_bytes * split
  sm_us = np.ceil(num_tiles / gpu.num_sms) * tile_us
  traffic_us = (read_bytes + written_bytes) / bytes_per_us
  sustained_flops_per_us = flops_per_us * precision.sustained_efficiency
  sustained_us = 2 * batch * m * n * k / sustained_flops_per_us
  product_us = of_family("launch_us") + np.maximum(
    np.maximum(sm_us, traffic_us), sustained_us
  )
  reduced_bytes = written_bytes + batch * m * n * out_bytes
  transposed_bytes = 2 * batch * k * n * rhs_bytes
  return Candidates(
    product_us=product_us,
    sm_us=sm_us,
    reduction_us=np.where(
      split > 1, precision.split_us + reduced_bytes / bytes_per_us, 0
    ),
    transpose_us=np.where(
      of_family("rhs_k_innermost"),
      precision.transpose_us + transposed_bytes / bytes_per_us,
      0,
    ),
  )


def choices(precision: Precision) -> list[tuple[int, int, int, int]]:
  """(family, tile m, tile n, split) of each candidate."""
  families = range(len(precision.families))
  found = itertools.product(families, _TILES, _SPLITS)
  return [(family, *tile, split) for family, tile, split in found]


# Steps for which libraries keep operands in flight in shared memory.
_STAGES = 4


@functools.lru_cache(maxsize=4096)  # The layers of a model share their shapes.
def predict_us(
  gpu: cluster_lib.Gpu, shape: Shape, types: tuple[str, str, str]
) -> float:
  """Predicts [batch,m,k] × [batch,k,n] alone, in a running step; microseconds.

  Operands are assumed to be in the layout that the kernel needs: otherwise XLA
  transposes them in a separate instruction. `types` are HLO types of lhs, rhs
  and result.

  Raises:
    ValueError: a size is below 1, or a type is not a number type.
  """
  times = _times(gpu, shape, types)
  precision = fitted(gpu, *types[:2])
  alone_us = float(np.min(times.product_us + times.reduction_us))
  return alone_us * precision.in_step


def tabulated_us(
  gpu: cluster_lib.Gpu, shape: Shape, types: tuple[str, str, str]
) -> float:
  """Predicts the entry of XLA's table: the median over the product's kernels.

  In the table, n is the innermost dimension of the rhs. Raises as `predict_us`.
  """
  total_us, median_us = total_and_median(_times(gpu, shape, types))
  return float(median_us[np.argmin(total_us)])


def tile(
  gpu: cluster_lib.Gpu, shape: Shape, element_type: str
) -> tuple[int, int, int]:
  """(tile m, tile n, split of k) of the fastest candidate.

  Operands and result have one type. If memory or the sustained rate makes
  several tiles equally fast, this is the one with the least time on the SMs.
  Raises as `predict_us`.
  """
  times = _times(gpu, shape, (element_type,) * 3)
  total_us = times.product_us + times.reduction_us
  best = int(np.lexsort((times.sm_us, total_us))[0])
  _, *found = choices(fitted(gpu, element_type, element_type))[best]
  tile_m, tile_n, split = found
  return tile_m, tile_n, split


def blocks(
  gpu: cluster_lib.Gpu, shape: Shape, element_type: str
) -> tuple[int, int]:
  """Thread blocks of the predicted kernel, and resident blocks per SM.

  Each block computes one tile, or a part of it if k is split. Arguments and
  errors are those of `tile`.
  """
  batch, m, n, _ = shape
  tile_m, tile_n, split = tile(gpu, shape, element_type)
  num_blocks = batch * -(-m // tile_m) * -(-n // tile_n) * split
  block_bytes = _STAGES * (tile_m + tile_n) * STEP_BYTES
  return num_blocks, max(gpu.shared_memory_per_sm_bytes // block_bytes, 1)


@functools.lru_cache(maxsize=4096)
def _times(
  gpu: cluster_lib.Gpu, shape: Shape, types: tuple[str, str, str]
) -> Candidates:
  if min(shape) < 1:
    raise ValueError(
      f"a matmul has (batch, m, n, k) = {shape}; each must be at least 1"
    )
  return candidates(gpu, fitted(gpu, *types[:2]), np.array(shape), types)


def total_and_median(times: Candidates) -> tuple[np.ndarray, np.ndarray]:
  """Total and median of each candidate's kernel times, in microseconds."""
  kernels_us = np.sort(
    [times.product_us, times.reduction_us, times.transpose_us], axis=0
  )
  total_us = kernels_us.sum(axis=0)
  least_us, middle_us, most_us = kernels_us
  # A kernel that is not launched has time 0 and sorts first.
  of_two_us = np.where(middle_us > 0, (middle_us + most_us) / 2, most_us)
  return total_us, np.where(least_us > 0, middle_us, of_two_us)
