# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Where fit_gemm.py starts, by architecture and operands."""

from __future__ import annotations

import dataclasses

from lagom_xla.costs import gemm


def _precision(*families: gemm.Family) -> gemm.Precision:
  return gemm.Precision(
    families=families,
    memory_efficiency=0.85,
    sustained_efficiency=1.0,
    split_us=4.0,
    transpose_us=3.0,
  )


# Where the fit starts: a library kernel that reaches most of the peak, loads
# 64 bytes per clock (an SM's L2 port) and takes some 200 clocks per step.
_LIBRARY = gemm.Family(
  launch_us=5.0,
  math_efficiency=0.85,
  operand_bytes_per_clock=64.0,
  step_clocks=200.0,
  tile_clocks=600.0,
  store_bytes_per_clock=32.0,
  rhs_k_innermost=False,
)
_K_INNERMOST = dataclasses.replace(
  _LIBRARY, launch_us=6.0, rhs_k_innermost=True
)
# Kernels that take the rhs as it comes and turn it on its way through shared
# memory: nothing to wait for, but slow steps.
_TURNING_F8 = dataclasses.replace(
  _LIBRARY,
  launch_us=4.0,
  math_efficiency=0.25,
  step_clocks=2500.0,
  store_bytes_per_clock=4.0,
)
_TURNING_F32 = dataclasses.replace(
  _LIBRARY,
  launch_us=5.0,
  operand_bytes_per_clock=32.0,
  step_clocks=600.0,
)
_LATE_F32 = dataclasses.replace(
  _LIBRARY, launch_us=7.0, operand_bytes_per_clock=48.0, step_clocks=400.0
)
# Within a running step a kernel finds the GPU warm.
_WARM = dataclasses.replace(_LIBRARY, launch_us=3.0)

START = {
  # Of the A100 step.
  ("sm_80", "bf16"): _precision(_WARM),
  ("sm_90", "bf16"): _precision(_LIBRARY),
  ("sm_90", "f8"): _precision(_K_INNERMOST, _TURNING_F8),
  ("sm_90", "f32"): _precision(_TURNING_F32, _LATE_F32),
  ("sm_100", "bf16"): _precision(_LIBRARY),
  ("sm_100", "f8"): _precision(_LIBRARY),
  ("sm_100", "f32"): _precision(_LIBRARY),
}
