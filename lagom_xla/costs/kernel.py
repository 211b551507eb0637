# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""The lone run time of a kernel, its memory traffic, and its thread blocks.

Matrix products take what `gemm` predicts, and never less than their bytes: what
is fused into a product can read much more than its operands. Attention and
convolutions take their operations at a share of the peak, or their bytes. What
a product multiplies goes by its precision (`matrix_products.py` of passes), and
none of f32 of which all bits count is faster than the GPU's f32 without tensor
cores. `fusion` has the time of every other kernel, and what updates of one
place add to it; `grid` the thread blocks.

XLA estimates kernels too (xla_gpu_collect_cost_model_stats, entry "sol"): its
products come from the table that `gemm` is fitted to, read as a product's own
time. So that is taken only for products of unknown shape, and for library calls
and lone instructions such as sorts, if it is not faster than memory could be.
"""

from __future__ import annotations

import dataclasses
import math

from lagom_xla import cluster as cluster_lib
from lagom_xla.costs import fusion
from lagom_xla.costs import gemm
from lagom_xla.costs import grid as grid_lib
from lagom_xla.passes import kernels as kernels_lib

# Shares of the peak that fused attention reaches in long causal sequences with
# heads of 128, forward and backward, by major compute capability:
# about what FlashAttention-2 (arXiv 2307.08691) reports on A100 and
# FlashAttention-3 (arXiv 2407.08608) on H100. Later GPUs are taken to be alike.
_ATTENTION_EFFICIENCY = {8: (0.7, 0.6), 9: (0.6, 0.5)}


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class KernelCost:
  """A kernel alone on the GPU.

  Attributes:
    time_us: the time that it takes on its stream: its run time, and the gap
      until the next kernel can start.
    memory_us: the part of it that its memory traffic takes at full bandwidth.
    num_blocks: thread blocks (mu_i).
    blocks_per_sm: blocks that are resident on one SM (TB_i).
    source: "model", "xla" or "measured".
    gap_us: the part of the time that is that gap.
    memory_share: share of the memory's rate that its traffic reaches.
    wave_loss: waves that are lost for each that the kernel needs more.
    threads_us: the part of the time that its threads take at least, however
      little each of them does.
    scattered_us: the part of the time that reads across the order of memory
      take.
    pairing: of what a profile measured, which work this is; None if none.
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
    """From its start to its end."""
    return self.time_us - self.gap_us


def predict(kernel: kernels_lib.Kernel, gpu: cluster_lib.Gpu) -> KernelCost:
  """Predicts a kernel's lone time from its HLO and the GPU's figures."""
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
    # A product's tiles fetch their operands while others compute.
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
    # Of several products in one kernel only the largest's shape is known. One
    # of complex numbers is four of reals.
    num_products = max(kernel.flops / largest_flops, 1)
    shape, element_type = product
    # XLA's products of 8 bits come out wider unless something fused narrows
    # them, which is rare.
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
  """The least time of products of f32 without tensor cores; 0 for others."""
  if kernel.arithmetic is None or not kernel.arithmetic.is_exact:
    return 0.0
  return kernel.flops / (gpu.matmul_peak_tflops["f32"] * 1e6)


def _arithmetic_us(kernel: kernels_lib.Kernel, gpu: cluster_lib.Gpu) -> float:
  """The operations of attention, convolutions and unknown products."""
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
  """Products that are multiplied for one, where its numbers come in parts."""
  return 1 if kernel.arithmetic is None else kernel.arithmetic.times


def _product(kernel: kernels_lib.Kernel) -> tuple[gemm.Shape, str] | None:
  """(batch, m, n, k) and type of the product that a kernel mainly is."""
  shape = kernel.matrix_shape
  if kernel.category != "gemm" or shape is None or min(shape) < 1:
    return None
  return shape, _number_type(kernel)


def _number_type(kernel: kernels_lib.Kernel) -> str:
  """What it multiplies; one byte per element where it is no number's."""
  if kernel.arithmetic is not None:
    return kernel.arithmetic.element_type
  is_number = kernel.element_type[:1] in "bfsuc"
  return kernel.element_type if is_number else "s8"
