# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""How costs/fusion.py's parameters are fitted to lone kernels of a step.

Kernels of equal work are one class with the median of their times. The fit
minimizes the logarithm of predicted over measured time, less and less steeply
for large errors, with each class weighted by the root of the time that it takes
of a step: long and frequent kernels count for most, yet no single class
decides. The launch of a pattern is the median of its kernels that move less
than 64 KiB, the gap the mean of those that no wait can be in. Shares of memory
and vector rates carry over to other GPUs of the architecture; launches, waves
and the gap are taken over as times.

The vector share is that of kernels whose operations take longer than their
bytes, both at full rate. There is one, on the A100. Fitted with the rest, the
share would be 0.15 on H100 and 0.25 on A100 for the sake of kernels that memory
bounds, and that one kernel 2.8 times too slow.

The wave and the block rate are pulled to those of the step before, as far as
serves kernels that were held out: where hardly a kernel is bound by one, as
none is by the wave on the A100, it stays there.
"""

from __future__ import annotations

from collections.abc import Sequence
import dataclasses
import statistics

import numpy as np
from scipy import optimize

from benchmarks.kernels import lone_kernels
from lagom_xla.cluster import gpu as gpu_lib
from lagom_xla.costs import fusion

# Errors below this count by their square, errors above by their size.
_SMALL_ERROR = 0.1
_TINY_BYTES = 65536
_ROUNDS = 3
_PRECISELY = {"xatol": 1e-6, "fatol": 1e-10, "maxiter": 10000, "maxfev": 10000}
# Of 1e-5, 1e-3 and 0.01 what is best on halves of the classes that a fit did
# not see, on both GPUs.
_PULL = 0.01
PATTERNS = ("elementwise", "row-reduction", "column-reduction", "transpose")
# Where the first step's fit starts.
_WAVE_US = 1.3
_BLOCK_GBPS = 13.0
_MEMORY_SHARE = 0.8


def unfitted(share: float) -> fusion.Fitted:
  """Where the fit of the first step starts, but for the vector share."""
  unknown = fusion.Pattern(launch_us=0.0, memory_share=_MEMORY_SHARE)
  return fusion.Fitted(
    launch_gap_us=0.0,
    vector_share=share,
    wave_us=_WAVE_US,
    block_gbps=_BLOCK_GBPS,
    patterns=dict.fromkeys(PATTERNS, unknown),
  )


def fit(
  rows: Sequence[lone_kernels.Class],
  gpu: gpu_lib.Gpu,
  start: fusion.Fitted,
) -> fusion.Fitted:
  """Fits launches, memory shares, the wave and the block rate to classes.

  Args:
    rows: that are no products.
    gpu: that they ran on.
    start: where the fit starts, what its wave and block rate are pulled to,
      and what its gap and vector share are taken over from.
  """
  measured_us = np.array([r.measured_us for r in rows])
  weights = np.sqrt([r.measured_us * r.per_step for r in rows])
  weights /= weights.sum()
  launches_us = {name: _launch_us(rows, name) for name in start.patterns}

  def parameters(values: Sequence[float]) -> fusion.Fitted:
    wave_us, block_gbps, *shares = values
    return dataclasses.replace(
      start,
      wave_us=wave_us,
      block_gbps=block_gbps,
      patterns={
        name: fusion.Pattern(launch_us=launch_us, memory_share=min(share, 1.0))
        for (name, launch_us), share in zip(
          launches_us.items(), shares, strict=True
        )
      },
    )

  def loss(logs: np.ndarray) -> float:
    predicted = predicted_us(parameters(np.exp(logs).tolist()), rows, gpu)
    error = np.log(predicted / measured_us) / _SMALL_ERROR
    return float(
      np.sum(weights * (np.sqrt(1 + error**2) - 1))
      + _PULL * np.sum((logs - first)[:2] ** 2)
    )

  shares = [p.memory_share for p in start.patterns.values()]
  first = logs = np.log([start.wave_us, start.block_gbps, *shares])
  for _ in range(_ROUNDS):  # Restarts: the simplex collapses early.
    logs = optimize.minimize(
      loss, logs, method="Nelder-Mead", options=_PRECISELY
    ).x
  return parameters([float(f"{value:.3g}") for value in np.exp(logs)])


def vector_share(steps: Sequence[lone_kernels.Measured]) -> float:
  """Median over the classes of the first ranks that operations bound."""
  shares = [
    _operations_us(row, step.gpu)
    / (row.measured_us - _launch_us(step.ranks[0], row.kernel.pattern))
    for step in steps
    for row in step.ranks[0]
    if operations_bound(row, step.gpu)
  ]
  return float(f"{statistics.median(shares):.3g}")


def operations_bound(row: lone_kernels.Class, gpu: gpu_lib.Gpu) -> bool:
  """Whether operations take longer than bytes, both at full rate."""
  bytes_us = row.kernel.num_bytes / (gpu.hbm_gbps * 1e3)
  return _operations_us(row, gpu) > bytes_us


def _operations_us(row: lone_kernels.Class, gpu: gpu_lib.Gpu) -> float:
  """At the full vector rate, a multiply-add counted as one operation."""
  per_us = gpu.vector_f32_tflops / 2 * 1e6
  return row.kernel.num_element_operations / per_us


def _launch_us(rows: Sequence[lone_kernels.Class], pattern: str) -> float:
  """Median over kernels, not classes, that move next to nothing."""
  tiny = [r for r in rows if r.kernel.num_bytes < _TINY_BYTES]
  alike = [r for r in tiny if r.kernel.pattern == pattern] or tiny
  times = np.repeat([r.measured_us for r in alike], [r.num_runs for r in alike])
  return round(float(np.median(times)), 2)


def predicted_us(
  parameters: fusion.Fitted,
  rows: Sequence[lone_kernels.Class],
  gpu: gpu_lib.Gpu,
) -> np.ndarray:
  """Run times, without the gap."""
  return np.array([
    fusion.time_us(parameters, row.kernel, gpu) for row in rows
  ])  # fmt: skip
