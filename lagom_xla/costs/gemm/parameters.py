# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""The fitted parameters of matrix products, and the GPUs' peaks.

The parameters are shares of the GPU's own figures, clocks and bytes per clock,
so that they carry over to GPUs of one architecture. fitted/gemm.json has them;
benchmarks/kernels/fit_gemm.py fits them and says how well they do on rows left
out.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import pathlib
import re

from lagom_xla.cluster import gpu as gpu_lib

_FITTED = pathlib.Path(__file__).parents[1] / "fitted" / "gemm.json"


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Family:
  """Kernels that are alike in everything but tile and split.

  Attributes:
    launch_us: from start to the first step, and from the last store to the
      end.
    math_efficiency: share of an SM's peak rate in the main loop.
    operand_bytes_per_clock: rate at which one SM loads operands.
    step_clocks: least time of a step of the main loop.
    tile_clocks: fixed cost of a tile: filling the pipeline and draining it.
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
    families: kinds of kernel to choose from.
    memory_efficiency: share of the memory's rate that a product reaches.
    sustained_efficiency: share of the peak that the whole GPU holds up.
    split_us: fixed cost of the kernel that adds up the parts of a split.
    transpose_us: fixed cost of the kernel that transposes the rhs.
    in_step: time within a running step, over that of a product by itself. A GPU
      that multiplies all the time reaches its power limit and lowers its clock
      (NVIDIA, "Power capping" in the documentation of nvidia-smi); products
      that are measured one by one do not.
  """

  families: tuple[Family, ...]
  memory_efficiency: float
  sustained_efficiency: float
  split_us: float
  transpose_us: float
  in_step: float = 1.0


def fitted(gpu: gpu_lib.Gpu, lhs_type: str, rhs_type: str) -> Precision:
  """The fitted parameters for a GPU and the wider of two operand types.

  An architecture without parameters has those of the nearest older one that
  has; so do GPUs older than all.

  Raises:
    ValueError: a type is no number type.
  """
  major = min(max(gpu.compute_capability[0], 8), 10)
  precisions = _read_fitted()[f"sm_{major}0"]
  num_bits = max(bits(lhs_type), bits(rhs_type))
  name = "f8" if num_bits <= 8 else "bf16" if num_bits <= 16 else "f32"
  return precisions.get(name, precisions["bf16"])


@functools.cache
def _read_fitted() -> dict[str, dict[str, Precision]]:
  document = json.loads(_FITTED.read_text(encoding="utf-8"))
  return {
    architecture: {
      name: Precision(
        families=tuple(Family(**family) for family in value.pop("families")),
        **value,
      )
      for name, value in section["precisions"].items()
    }
    for architecture, section in document.items()
  }


def peak_tflops(gpu: gpu_lib.Gpu, lhs_type: str, rhs_type: str) -> float:
  """Dense peak for the wider of two HLO types, in 1e12 operations per second.

  f32 products use TF32 tensor cores where there are any: XLA's default, and
  what its table measures (403 TFLOP/s on H100, 870 on B200).

  Raises:
    ValueError: a type is no number type.
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
  """Bits of a number type, from its HLO name."""
  found = re.match(r"(?:bf|f|s|u|c)([0-9]+)", element_type)
  if not found:
    raise ValueError(
      f"a matrix product of {element_type!r}; it must be of an HLO number "
      "type, such as bf16 or f8e4m3fn"
    )
  return int(found[1])
