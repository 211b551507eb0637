# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""How long a kernel runs alone, and how it fills the GPU.

XLA estimates kernels itself when asked to (xla_gpu_collect_cost_model_stats);
its "sol" entry rests on measured tables for matrix products on Hopper and
Blackwell. It is taken where it is there and can be true. For some Triton
fusions it says next to nothing, but no kernel moves its bytes faster than the
memory does; and for products that contract fewer elements than any in the
table it is many times too long. Everything else gets a roofline: the longer of
its arithmetic and its memory traffic.

Contention needs more than a time: how many thread blocks the kernel has, how
many fit an SM (mu_i and TB_i of Lagom, arXiv 2602.20656, Table 1), and how much
of its time is memory traffic.
"""

from __future__ import annotations

import dataclasses
import math

from lagom_xla import cluster as cluster_lib
from lagom_xla.passes import kernels as kernels_lib

# Launch gap and ramp of a kernel that does next to nothing; what Nsight shows
# between back-to-back kernels of one stream on A100 and H100.
_FLOOR_US = 2.0

# Shares of the peak that well-tuned kernels reach. Matrix products: XLA's
# table for H100 says 780 of 989 TFLOP/s at large sizes. Attention:
# FlashAttention-3 (arXiv 2407.08608, fig. 5) 0.5 to 0.7, forward and backward.
_GEMM_EFFICIENCY = 0.79
_ATTENTION_EFFICIENCY = 0.6
_MEMORY_EFFICIENCY = 0.9

# The least contracting size in XLA's tables of measured matrix products
# (xla/service/gpu/model, default_matmul_perf_table).
_LEAST_TABULATED_K = 256

# Output tile of the library kernels that autotuning picks for large products,
# by the GPU's major compute capability (CUTLASS default tiles).
_GEMM_TILE = {7: (128, 128), 8: (128, 128), 9: (128, 256), 10: (256, 256)}

# XLA's elementwise kernels: threads per block, and elements per thread (xla/
# service/gpu/launch_dimensions.cc, and the loop emitter's unroll factor).
_FUSION_THREADS_PER_BLOCK = 128
_FUSION_ELEMENTS_PER_THREAD = 4


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class KernelCost:
  """A kernel alone on the GPU.

  Attributes:
    time_us: run time.
    memory_us: the part of it that its memory traffic takes at full bandwidth.
    num_blocks: thread blocks (mu_i).
    blocks_per_sm: blocks that are resident on one SM (TB_i).
    source: "xla", "roofline" or "measured".
  """

  time_us: float
  memory_us: float
  num_blocks: int
  blocks_per_sm: int
  source: str


def predict(kernel: kernels_lib.Kernel, gpu: cluster_lib.Gpu) -> KernelCost:
  """Predicts a kernel's lone run time from its HLO and the GPU's figures."""
  traffic_us = kernel.num_bytes / (gpu.hbm_gbps * 1e3)
  estimate_us = _xla_estimate_us(kernel)
  if estimate_us is not None and estimate_us >= traffic_us:
    time_us, source = estimate_us, "xla"
  else:
    time_us, source = _roofline_us(kernel, gpu, traffic_us), "roofline"
  time_us = max(time_us, _FLOOR_US)
  num_blocks, blocks_per_sm = _blocks(kernel, gpu)
  return KernelCost(
    time_us=time_us,
    memory_us=min(traffic_us, time_us),
    num_blocks=num_blocks,
    blocks_per_sm=blocks_per_sm,
    source=source,
  )


def _xla_estimate_us(kernel: kernels_lib.Kernel) -> float | None:
  if kernel.matrix_shape and kernel.matrix_shape[-1] < _LEAST_TABULATED_K:
    return None
  for entry in kernel.backend_config.get("reification_cost", ()):
    if entry.get("name") == "sol":
      return float(entry["exec_time_us"])
  return None


def _roofline_us(
  kernel: kernels_lib.Kernel, gpu: cluster_lib.Gpu, traffic_us: float
) -> float:
  efficiency = (
    _ATTENTION_EFFICIENCY
    if kernel.category == "attention"
    else _GEMM_EFFICIENCY
  )
  rate = matmul_tflops(gpu, kernel.element_type) * efficiency
  return max(kernel.flops / (rate * 1e6), traffic_us / _MEMORY_EFFICIENCY)


def matmul_tflops(gpu: cluster_lib.Gpu, element_type: str) -> float:
  """Dense peak for an HLO element type, in 1e12 operations per second.

  XLA lets f32 products use TF32 tensor cores by default. What no tensor core
  multiplies is taken to run as f32, which every GPU does.
  """
  ladder = (*_DTYPE_LADDER.get(element_type[:3], ()), "f32")
  peak = gpu.matmul_peak_tflops
  return next(peak[dtype] for dtype in ladder if dtype in peak)


# First three letters of the HLO element type -> spec keys, best first.
_DTYPE_LADDER = {
  "bf1": ("bf16", "f16"),
  "f16": ("f16",),
  "f8e": ("f8", "f16"),
  "f4e": ("f8", "f16"),
  "f64": ("f64",),
  "f32": ("tf32",),
  "s8": ("f8", "f16"),
}


def _blocks(
  kernel: kernels_lib.Kernel, gpu: cluster_lib.Gpu
) -> tuple[int, int]:
  """Thread blocks of a kernel, and how many of them an SM holds at once."""
  if kernel.category in ("gemm", "convolution") and kernel.matrix_shape:
    batch, m, n, _ = kernel.matrix_shape
    tile_m, tile_n = _GEMM_TILE.get(gpu.compute_capability[0], (128, 128))
    # A tile that large takes most of an SM's registers and shared memory.
    return max(batch * math.ceil(m / tile_m) * math.ceil(n / tile_n), 1), 1
  if kernel.category == "attention":
    return max(math.ceil(kernel.result_elements / (128 * 128)), 1), 1
  per_block = _FUSION_THREADS_PER_BLOCK * _FUSION_ELEMENTS_PER_THREAD
  num_blocks = math.ceil(kernel.result_elements / per_block)
  return max(num_blocks, 1), gpu.threads_per_sm // _FUSION_THREADS_PER_BLOCK
