# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""The prediction of a lone matrix product: the best of its candidate kernels.

XLA's table of measured products (default_matmul_perf_table) does not hold the
time of the product but the median over all kernels that were launched for it
(matmul_perf_table_gen.cc, HloOpProfiler). With two kernels per product that is
the mean of the two: `tabulated_us`. It shows on Hopper in FP8, whose library
kernels want both operands with k innermost (cuBLAS, "FP8 data types usage":
TN only), so that XLA transposes the rhs first: read as the product's own time
some rows would beat the data sheet's peak by 30 %. The table's launches are
isolated, each after fresh arguments have come from the host, so that its
`launch_us` is a microsecond or two more than within a step.
"""

from __future__ import annotations

import functools

import numpy as np

from lagom_xla.cluster import gpu as gpu_lib
from lagom_xla.costs.gemm import kernels
from lagom_xla.costs.gemm import parameters

# Libraries keep this many steps of operands in flight in shared memory.
_STAGES = 4


def predict_us(
  gpu: gpu_lib.Gpu,
  *,
  batch: int,
  m: int,
  n: int,
  k: int,
  lhs_type: str,
  rhs_type: str,
  out_type: str,
) -> float:
  """Predicts [batch,m,k] × [batch,k,n] alone, in a running step; microseconds.

  Operands are taken to be in the order that suits the kernel: where they are
  not, XLA transposes them in an instruction of its own. The types are HLO's.

  Raises:
    ValueError: a size is below 1, or a type is no number type.
  """
  times = _times(gpu, (batch, m, n, k), (lhs_type, rhs_type, out_type))
  precision = parameters.fitted(gpu, lhs_type, rhs_type)
  alone_us = float(np.min(times.product_us + times.reduction_us))
  return alone_us * precision.in_step


def tabulated_us(
  gpu: gpu_lib.Gpu,
  *,
  batch: int,
  m: int,
  n: int,
  k: int,
  lhs_type: str,
  rhs_type: str,
  out_type: str,
) -> float:
  """Predicts what XLA's table has for the product: its kernels' median.

  There n is the innermost dimension of the rhs.

  Raises:
    ValueError: a size is below 1, or a type is no number type.
  """
  times = _times(gpu, (batch, m, n, k), (lhs_type, rhs_type, out_type))
  total_us, median_us = total_and_median(times)
  return float(median_us[np.argmin(total_us)])


def tile(
  gpu: gpu_lib.Gpu, *, batch: int, m: int, n: int, k: int, element_type: str
) -> tuple[int, int, int]:
  """The (tile m, tile n, split of k) that the prediction rests on.

  Operands and result are of one type. Where memory or the sustained rate makes
  tiles equally fast, it is the one that needs the SMs least.

  Raises:
    ValueError: a size is below 1, or the type is no number type.
  """
  times = _times(gpu, (batch, m, n, k), (element_type,) * 3)
  total_us = times.product_us + times.reduction_us
  best = int(np.lexsort((times.sm_us, total_us))[0])
  precision = parameters.fitted(gpu, element_type, element_type)
  _, (tile_m, tile_n), split = kernels.choices(precision)[best]
  return tile_m, tile_n, split


def blocks(
  gpu: gpu_lib.Gpu, *, batch: int, m: int, n: int, k: int, element_type: str
) -> tuple[int, int]:
  """Thread blocks of the predicted kernel, and how many an SM holds at once.

  Each block computes one tile, or one part of it when k is split (see `tile`).

  Raises:
    ValueError: a size is below 1, or the type is no number type.
  """
  tile_m, tile_n, split = tile(
    gpu, batch=batch, m=m, n=n, k=k, element_type=element_type
  )
  num_blocks = batch * -(-m // tile_m) * -(-n // tile_n) * split
  block_bytes = _STAGES * (tile_m + tile_n) * kernels.STEP_BYTES
  return num_blocks, max(gpu.shared_memory_per_sm_bytes // block_bytes, 1)


@functools.lru_cache(maxsize=4096)  # The layers of a model share their shapes.
def _times(
  gpu: gpu_lib.Gpu,
  shape: tuple[int, int, int, int],
  types: tuple[str, str, str],
) -> kernels.Candidates:
  if min(shape) < 1:
    raise ValueError(
      f"a matrix product of (batch, m, n, k) = {shape}; each must be at least 1"
    )
  return kernels.candidates(
    gpu, parameters.fitted(gpu, *types[:2]), np.array(shape), types
  )


def total_and_median(
  times: kernels.Candidates,
) -> tuple[np.ndarray, np.ndarray]:
  """Time of all of a candidate's kernels, and the median over them, in us."""
  kernels_us = np.sort(
    [times.product_us, times.reduction_us, times.transpose_us], axis=0
  )
  total_us = kernels_us.sum(axis=0)
  least_us, middle_us, most_us = kernels_us
  # A kernel that is not launched has time 0 and comes first.
  of_two_us = np.where(middle_us > 0, (middle_us + most_us) / 2, most_us)
  return total_us, np.where(least_us > 0, middle_us, of_two_us)
