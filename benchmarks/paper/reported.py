# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""The figures that the papers report, which the tables show too.

Lagom: arXiv 2602.20656, section 4. AutoCCL: NSDI 2025. Figures without a table
are known as the ranges that the text gives. Speedups are over NCCL's default.
"""

from __future__ import annotations

from lagom_xla.costs import nccl

# Lagom's end-to-end speedups, by parallelism.
LAGOM_SPEEDUP = {"fsdp": (1.10, 1.33), "tp": (1.08, 1.16), "ep": (1.07, 1.08)}

# AutoCCL's in the same experiments; with FSDP no range is given.
AUTOCCL_SPEEDUP = {"fsdp": "some below 1", "tp": "1.03–1.09", "ep": "1.03–1.09"}

# Searches of an overlap of two collectives (figure 8c).
LAGOM_TRIALS = 33
AUTOCCL_TRIALS = 16


def _ring(num_channels: int, chunk_kib: int) -> nccl.Setting:
  return nccl.Setting(
    algorithm="ring",
    protocol="simple",
    num_channels=num_channels,
    chunk_bytes=chunk_kib * 1024,
  )


# What NCCL 2.18 runs on 8 A40s, of all-gather and reduce-scatter: with NVLink
# pairs (both papers), over PCIe alone (AutoCCL, table 3).
DEFAULT = {"lagom_a": _ring(8, 2048), "lagom_b": _ring(2, 2048)}

# Pattern 1: one all-gather, bound by computation. AutoCCL's chunk is not given.
PATTERN_1 = {
  "NCCL 2.18": (_ring(8, 2048), 1.00),
  "AutoCCL": (_ring(61, 2048), 0.87),
  "Lagom": (_ring(2, 684), 1.35),
}

# Pattern 2: several collectives; the reduce-scatter is tuned first.
PATTERN_2 = {
  "NCCL 2.18": (_ring(8, 2048), 1.00),
  "Lagom": (_ring(4, 1366), 1.43),
}
