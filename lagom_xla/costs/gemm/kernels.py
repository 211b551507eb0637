# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""The kernels that a matrix product could run by, and the time of each.

A GEMM kernel cuts its result into tiles. Each SM computes its share of them one
after the other: it steps through k, 128 bytes of each row at a time, and then
stores the tile. One step takes the longest of its arithmetic, the loads of its
operands, and a latency that no tile can hide:

  step = max(2 tm tn tk / (peak rate · math_efficiency / SMs),
             (tm + tn) · 128 bytes / operand rate, step latency)
  tile = steps · step + tile latency + tm tn out bytes / store rate
  time = launch + max(ceil(tiles / SMs) · tile, bytes / memory rate,
                      operations / sustained rate)

Padding (a tile at the edge costs as much as any) and waves (the last one may be
nearly empty) follow from the rounding up. When tiles are few and k is long, k
is split over several blocks and a second kernel adds up their parts. Autotuning
tries tiles, splits and kernel families; so the prediction is the least over all
of them. Families exist where the data shows two kinds of kernel: slow to start
and fast in the main loop, or the reverse.
"""

from __future__ import annotations

import dataclasses
import itertools

import numpy as np

from lagom_xla.cluster import gpu as gpu_lib
from lagom_xla.costs.gemm import parameters as parameters_lib

# Tiles of the library kernels (CUTLASS' default configurations), m by n.
_TILES = ((128, 256), (256, 128), (128, 128), (64, 128), (128, 64), (64, 64))
_SPLITS = (1, 2, 4, 8)
# k advances by the width of a shared-memory row: 32 banks of 4 bytes.
STEP_BYTES = 128
_PARTIAL_BYTES = 4  # The parts of a split product are f32.


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Candidates:
  """Times of every kernel that autotuning could choose, one per last index.

  Attributes:
    product_us: the product's kernel.
    sm_us: what its tiles alone would take, with memory and power unlimited.
    reduction_us: the kernel that adds up the parts of a split; 0 without.
    transpose_us: the kernel that brings the rhs into the order that the
      product's kernel wants; 0 if it takes any.
  """

  product_us: np.ndarray
  sm_us: np.ndarray
  reduction_us: np.ndarray
  transpose_us: np.ndarray


def candidates(
  gpu: gpu_lib.Gpu,
  precision: parameters_lib.Precision,
  shape: np.ndarray,
  types: tuple[str, str, str],
) -> Candidates:
  """Times of the candidates for products of shape [..., (batch, m, n, k)].

  `types` are those of lhs, rhs and result; results are [..., candidate].
  """
  grid = _grid(precision)
  tile_m, tile_n, split = grid.tile_m, grid.tile_n, grid.split
  batch, m, n, k = np.moveaxis(np.asarray(shape, float)[..., None, :], -1, 0)
  lhs_bytes, rhs_bytes, out_bytes = (parameters_lib.bits(t) / 8 for t in types)
  stored_bytes = np.where(split > 1, _PARTIAL_BYTES, out_bytes)
  flops_per_us = parameters_lib.peak_tflops(gpu, *types[:2]) * 1e6
  bytes_per_us = gpu.hbm_gbps * 1e3 * precision.memory_efficiency

  num_tiles = batch * np.ceil(m / tile_m) * np.ceil(n / tile_n) * split
  read_bytes = batch * k * (m * lhs_bytes + n * rhs_bytes)
  written_bytes = batch * m * n * stored_bytes * split
  tile_us = _tile_us(gpu, grid, k, types, stored_bytes)
  sm_us = np.ceil(num_tiles / gpu.num_sms) * tile_us
  traffic_us = (read_bytes + written_bytes) / bytes_per_us
  sustained_flops_per_us = flops_per_us * precision.sustained_efficiency
  sustained_us = 2 * batch * m * n * k / sustained_flops_per_us
  product_us = grid.parameter("launch_us") + np.maximum(
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
      grid.parameter("rhs_k_innermost"),
      precision.transpose_us + transposed_bytes / bytes_per_us,
      0,
    ),
  )


def _tile_us(
  gpu: gpu_lib.Gpu,
  grid: _Grid,
  k: np.ndarray,
  types: tuple[str, str, str],
  stored_bytes: np.ndarray,
) -> np.ndarray:
  """Time of one tile of each candidate: its steps through k, and its store."""
  tile_m, tile_n = grid.tile_m, grid.tile_n
  lhs_bytes, rhs_bytes, _ = (parameters_lib.bits(t) / 8 for t in types)
  clocks_per_us = gpu.clock_ghz * 1e3
  flops_per_us = parameters_lib.peak_tflops(gpu, *types[:2]) * 1e6
  step_k = STEP_BYTES / max(lhs_bytes, rhs_bytes)
  sm_flops_per_us = (
    flops_per_us / gpu.num_sms * grid.parameter("math_efficiency")
  )
  operand_bytes = (tile_m * lhs_bytes + tile_n * rhs_bytes) * step_k
  operand_bytes_per_clock = grid.parameter("operand_bytes_per_clock")
  step_us = np.maximum.reduce([
    2 * tile_m * tile_n * step_k / sm_flops_per_us,
    operand_bytes / operand_bytes_per_clock / clocks_per_us,
    grid.parameter("step_clocks") / clocks_per_us,
  ])  # fmt: skip
  store_clocks = (
    tile_m * tile_n * stored_bytes / grid.parameter("store_bytes_per_clock")
  )
  return (
    np.ceil(np.ceil(k / grid.split) / step_k) * step_us
    + (grid.parameter("tile_clocks") + store_clocks) / clocks_per_us
  )


@dataclasses.dataclass(frozen=True, eq=False, slots=True)
class _Grid:
  """The candidates as arrays, one entry each.

  Attributes:
    precision: has the kernel families.
    family: position of the family.
    tile_m: rows of a tile.
    tile_n: columns of a tile.
    split: blocks that k is split over.
  """

  precision: parameters_lib.Precision
  family: np.ndarray
  tile_m: np.ndarray
  tile_n: np.ndarray
  split: np.ndarray

  def parameter(self, name: str) -> np.ndarray:
    """A parameter of each candidate's family."""
    families = self.precision.families
    return np.array([getattr(f, name) for f in families])[self.family]


def _grid(precision: parameters_lib.Precision) -> _Grid:
  chosen = choices(precision)
  tile_m, tile_n = np.array([c[1] for c in chosen]).T
  return _Grid(
    precision,
    np.array([c[0] for c in chosen]),
    tile_m,
    tile_n,
    np.array([c[2] for c in chosen]),
  )


def choices(
  precision: parameters_lib.Precision,
) -> list[tuple[int, tuple[int, int], int]]:
  """(family, tile, split) of each candidate."""
  families = range(len(precision.families))
  return list(itertools.product(families, _TILES, _SPLITS))
