# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Run time of a kernel alone, its memory traffic, and its thread blocks.

Matrix products take `gemm`'s time, and at least the time of their bytes: ops
fused into a product can read much more than its operands. Attention and
convolutions take the time of their operations at a share of the peak, or of
their bytes. A product's element type follows from its precision
(`matrix_products.py` of passes). The GPU's f32 rate without tensor cores bounds
exact f32 products. `fusion` has the time of all other kernels, including
colliding updates of a scatter; `grid` has the thread blocks.

XLA also estimates kernels (xla_gpu_collect_cost_model_stats, entry "sol"). Its
products come from the table that `gemm` is fitted to, read as a product's own
time. So its estimate is used only for products of unknown shape, library calls
and single instructions such as sorts, unless it is faster than memory allows.
"""

from __future__ import annotations

import dataclasses
import math

from lagom_xla import cluster as cluster_lib
from lagom_xla.costs import fusion
from lagom_xla.costs import gemm
from lagom_xla.costs import grid as grid_lib
from lagom_xla.passes import kernels as kernels_lib

# Fused attention's shares of the peak for long causal sequences and heads of
# 128, forward and backward, by major compute capability: about those that
# FlashAttention-2 (arXiv 2307.08691) reports on A100 and FlashAttention-3
# (arXiv 2407.08608) on H100. Later GPUs are assumed to equal H100.
_ATTENTION_EFFICIENCY = {8: (0.7, 0.6), 9: (0.6, 0.5)}


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class KernelCost:
  """A kernel alone on the GPU.

  Attributes:
    time_us: time on its stream: its run time, plus the gap until the next
      kernel can start.
    memory_us: time of its memory traffic at full bandwidth, at most its run
      time.
    num_blocks: thread blocks (mu_i).
    blocks_per_sm: blocks that are resident on one SM (TB_i).
    source: source of the run time: "model", "xla" or "measured".
    gap_us: the gap in `time_us`.
    memory_share: share of the memory's rate that its traffic reaches.
    wave_loss: loss of the kernel in waves, per additional wave.
    threads_us: least time of its threads, for any work per thread.
    scattered_us: time of its reads across the order of memory.
    pairing: number of its work in `measured.Measured`; None if not measured.
  """

  time_us: float
  memory_us: float
  num_blocks: int
  blocks_per_sm: int
  source: str
  gap_us: float = 0.0
  memory_share: float = 1.0
  wave_loss: float = 1.0
  threads_us: float = 0.0
  scattered_us: float = 0.0
  pairing: int | None = None

  @property
  def run_us(self) -> float:
    """Time from its start to its end."""
    return self.time_us - self.gap_us


def predict(kernel: kernels_lib.Kernel, gpu: cluster_lib.Gpu) -> KernelCost:
  """Predicts the cost of a kernel alone, from its HLO and the GPU's figures."""
  traffic_us = kernel.num_bytes / (gpu.hbm_gbps * 1e3)
  estimate_us = _xla_estimate_us(kernel)
  if estimate_us is not None and estimate_us >= max(traffic_us, 1e-3):
    run_us, source = estimate_us, "xla"
  else:
    run_us, source = _run_us(kernel, gpu), "model"
  parameters = fusion.fitted(gpu)
  product = _product(kernel)
  grid = grid_lib.of_kernel(kernel, product, gpu)
  return KernelCost(
    time_us=run_us + parameters.launch_gap_us,
    memory_us=min(traffic_us, run_us),
    num_blocks=grid.num_blocks,
    blocks_per_sm=grid.blocks_per_sm,
    source=source,
    gap_us=parameters.launch_gap_us,
    # A product's tiles load their operands while others compute.
    memory_share=(
      1.0 if product else parameters.patterns[kernel.pattern].memory_share
    ),
    wave_loss=grid.wave_loss,
    threads_us=min(fusion.threads_us(parameters, kernel, gpu), run_us),
    scattered_us=min(fusion.scattered_us(kernel, gpu), run_us),
  )


def _xla_estimate_us(kernel: kernels_lib.Kernel) -> float | None:
  if _product(kernel) or kernel.category not in ("gemm", "other"):
    return None
  return kernels_lib.sol_time_us(kernel.backend_config)


def _run_us(kernel: kernels_lib.Kernel, gpu: cluster_lib.Gpu) -> float:
  moved_us = fusion.time_us(fusion.fitted(gpu), kernel, gpu)
  if product := _product(kernel):
    largest_flops = 2 * math.prod(product[0])
    # If a kernel has several products, only the largest one's shape is known. A
    # complex product is four real ones.
    num_products = max(kernel.flops / largest_flops, 1)
    shape, element_type = product
    # Results of XLA's 8-bit products are wider, unless a fused op narrows them,
    # which is rare.
    is_narrow = element_type.startswith(("f4", "f8"))
    out_type = "bf16" if is_narrow else element_type
    types = (element_type, element_type, out_type)
    product_us = gemm.predict_us(gpu, shape, types) * num_products
    product_us *= _times(kernel)
    return max(product_us, _exact_us(kernel, gpu), moved_us)
  if kernel.scatter:
    return fusion.scatter_us(kernel.scatter, gpu) + moved_us
  return max(_arithmetic_us(kernel, gpu), _exact_us(kernel, gpu), moved_us)


def _exact_us(kernel: kernels_lib.Kernel, gpu: cluster_lib.Gpu) -> float:
  """Least time of exact f32 products, without tensor cores; 0 for others."""
  if kernel.arithmetic is None or not kernel.arithmetic.is_exact:
    return 0.0
  return kernel.flops / (gpu.matmul_peak_tflops["f32"] * 1e6)


def _arithmetic_us(kernel: kernels_lib.Kernel, gpu: cluster_lib.Gpu) -> float:
  """Time of the operations of attention, convolutions and unknown products."""
  if not kernel.flops:
    return 0.0
  element_type = _number_type(kernel)
  if kernel.category == "attention":
    major = min(max(gpu.compute_capability[0], 8), 9)
    efficiency = _ATTENTION_EFFICIENCY[major][kernel.is_backward]
  else:
    parameters = gemm.fitted(gpu, element_type, element_type)
    efficiency = parameters.sustained_efficiency
  peak = gemm.peak_tflops(gpu, element_type, element_type)
  return kernel.flops * _times(kernel) / (peak * efficiency * 1e6)


def _times(kernel: kernels_lib.Kernel) -> int:
  """Number of products for one whose operands are split into parts, else 1."""
  return 1 if kernel.arithmetic is None else kernel.arithmetic.times


def _product(kernel: kernels_lib.Kernel) -> tuple[gemm.Shape, str] | None:
  """(batch, m, n, k) and type of a kernel's main product, if it has one."""
  shape = kernel.matrix_shape
  if kernel.category != "gemm" or shape is None or min(shape) < 1:
    return None
  return shape, _number_type(kernel)


def _number_type(kernel: kernels_lib.Kernel) -> str:
  """The type that a kernel multiplies; "s8" if that is not a number type."""
  if kernel.arithmetic is not None:
    return kernel.arithmetic.element_type
  is_number = kernel.element_type[:1] in "bfsuc"
  return kernel.element_type if is_number else "s8"
