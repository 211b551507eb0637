# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Lone matrix products: their times from shapes and the GPU's figures.

`parameters` are what was fitted, `kernels` the time of each kernel that
could run, `prediction` the best of them. Other packages need only the names
below.
"""

from __future__ import annotations

from lagom_xla.costs.gemm.kernels import Candidates
from lagom_xla.costs.gemm.kernels import candidates
from lagom_xla.costs.gemm.parameters import Family
from lagom_xla.costs.gemm.parameters import Precision
from lagom_xla.costs.gemm.parameters import bits
from lagom_xla.costs.gemm.parameters import fitted
from lagom_xla.costs.gemm.parameters import peak_tflops
from lagom_xla.costs.gemm.prediction import blocks
from lagom_xla.costs.gemm.prediction import predict_us
from lagom_xla.costs.gemm.prediction import tabulated_us
from lagom_xla.costs.gemm.prediction import tile
from lagom_xla.costs.gemm.prediction import total_and_median

__all__ = [
  "Candidates",
  "Family",
  "Precision",
  "bits",
  "blocks",
  "candidates",
  "fitted",
  "peak_tflops",
  "predict_us",
  "tabulated_us",
  "tile",
  "total_and_median",
]
