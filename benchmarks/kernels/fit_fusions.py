# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""The fit of costs/fusion.py and costs/scatter.py to measured steps.

Taken are the kernels of each step in FOLDER (benchmarks/steps/trace.py) that
overlapped no collective, in its steady steps, on the first rank: one set of
parameters for each architecture. Kernels of equal work are one class with the
median of their times. The fit minimizes the logarithm of predicted over
measured time, less and less steeply for large errors, with each class weighted
by the root of the time that it takes of a step: long and frequent kernels count
for most, yet no single class decides. The launch of a pattern is the median of
its kernels that move less than 64 KiB, the gap the mean of those that no wait
can be in. Shares of memory and vector rates carry over to other GPUs of the
architecture; launches, waves and the gap are taken over as times. The wave and
the block rate start from what the H100 step gives, and stay there where no
kernel of a step is bound by them, as none is on the A100.

Printed are the errors on the other ranks, and those of fits that each saw one
half of the classes, on the other half.

  python -m benchmarks.kernels.fit_fusions --data=FOLDER [--write]
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
import dataclasses
import json
import pathlib
import statistics
from typing import Any

import numpy as np
from scipy import optimize

from benchmarks.kernels import lone_kernels
from benchmarks.kernels import whole_copies
from lagom_xla.cluster import gpu as gpu_lib
from lagom_xla.costs import fusion
from lagom_xla.costs import scatter

_FOLDER = pathlib.Path(fusion.__file__).parent / "fitted"
# Errors below this count by their square, errors above by their size.
_SMALL_ERROR = 0.1
_TINY_BYTES = 65536
_LONG_US = 8.0
_ROUNDS = 5
_PATTERNS = ("elementwise", "row-reduction", "column-reduction", "transpose")


def fit(
  rows: Sequence[lone_kernels.Class], gpu: gpu_lib.Gpu, gap_us: float
) -> fusion.Fitted:
  """Fits launches, shares and the wave to classes that are no products."""
  measured_us = np.array([r.measured_us for r in rows])
  weights = np.sqrt([r.measured_us * r.per_step for r in rows])
  weights /= weights.sum()
  launches_us = [_launch_us(rows, pattern) for pattern in _PATTERNS]

  def parameters(logs: np.ndarray) -> fusion.Fitted:
    vector_share, wave_us, block_gbps, *shares = (
      float(f"{v:.3g}") for v in np.exp(logs)
    )
    return fusion.Fitted(
      launch_gap_us=gap_us,
      vector_share=vector_share,
      wave_us=wave_us,
      block_gbps=block_gbps,
      patterns={
        name: fusion.Pattern(launch_us=launch_us, memory_share=min(share, 1.0))
        for name, launch_us, share in zip(
          _PATTERNS, launches_us, shares, strict=True
        )
      },
    )

  def loss(logs: np.ndarray) -> float:
    predicted = predicted_us(parameters(logs), rows, gpu)
    error = np.log(predicted / measured_us) / _SMALL_ERROR
    return float(np.sum(weights * (np.sqrt(1 + error**2) - 1)))

  logs = np.log([0.7, 1.29, 13.4, *[0.8] * len(_PATTERNS)])
  for _ in range(_ROUNDS):  # Restarts: the simplex collapses early.
    logs = optimize.minimize(loss, logs, method="Nelder-Mead").x
  return parameters(logs)


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


def _report(
  label: str,
  rows: Sequence[lone_kernels.Class],
  predicted: Sequence[float] | np.ndarray,
) -> None:
  if not rows:
    return
  measured_us = np.array([r.measured_us for r in rows])
  per_step = np.array([r.per_step for r in rows])
  error = np.abs(predicted / measured_us - 1)
  total_us = float(measured_us @ per_step)
  print(
    f"{label:38} n {len(rows):3} median {np.median(error):6.1%}"
    f"  p90 {np.quantile(error, 0.9):6.1%}  worst {error.max():6.1%}"
    f"  sum {float(predicted @ per_step) / total_us - 1:+.1%}"
    f" of {total_us:.0f} us"
  )


def _arguments() -> argparse.Namespace:
  parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
  parser.add_argument("--data", type=pathlib.Path, required=True)
  parser.add_argument("--write", action="store_true")
  return parser.parse_args()


def tries_per_clock(steps: Sequence[lone_kernels.Measured]) -> float:
  """Median over the scatters of the first ranks, whose ids are all the same."""
  rates = [
    scatter.num_tries(c.kernel.scatter, step.gpu)
    / (c.measured_us * step.gpu.clock_ghz * 1e3)
    for step in steps
    for c in step.scatters[0]
    if c.kernel.scatter
  ]
  return float(f"{statistics.median(rates):.3g}")


def _show_errors(
  step: lone_kernels.Measured, parameters: fusion.Fitted
) -> None:
  print(f"{step.name}: fitted to the first rank")
  for number, rows in enumerate(step.ranks):
    _report(f"  rank {number}, all", rows, _predict(parameters, rows, step))
    for pattern in _PATTERNS:
      alike = [r for r in rows if r.kernel.pattern == pattern]
      _report(f"  rank {number}, {pattern}", alike,
              _predict(parameters, alike, step))  # fmt: skip
    long = [r for r in rows if r.measured_us >= _LONG_US]
    _report(f"  rank {number}, of 8 us and more", long,
            _predict(parameters, long, step))  # fmt: skip
  rows = [*step.ranks[0]]
  halves = (rows[::2], rows[1::2])
  held_out = [
    (row, time_us)
    for seen, unseen in (halves, halves[::-1])
    for row, time_us in zip(
      unseen,
      _predict(fit(seen, step.gpu, step.gap_us), unseen, step),
      strict=True,
    )
    if row.measured_us >= _LONG_US
  ]
  _report(
    "  held-out halves, of 8 us and more",
    [row for row, _ in held_out],
    np.array([time_us for _, time_us in held_out]),
  )


def _predict(
  parameters: fusion.Fitted,
  rows: Sequence[lone_kernels.Class],
  step: lone_kernels.Measured,
) -> np.ndarray:
  return predicted_us(parameters, rows, step.gpu)


def main() -> None:
  """Fits, reports, and writes the parameters if asked to."""
  arguments = _arguments()
  steps = list(lone_kernels.read(arguments.data))
  sections: dict[str, dict[str, Any]] = {}
  for step in steps:
    parameters = fit(step.ranks[0], step.gpu, step.gap_us)
    _show_errors(step, parameters)
    major = step.gpu.compute_capability[0]
    sections[f"sm_{major}0"] = {
      "how": (
        "benchmarks/kernels/fit_fusions.py: robust fit of log(predicted / "
        "measured), classes of equal work weighted by the root of their time; "
        "launches are medians, the gap a mean"
      ),
      "data": f"{step.name}: lone kernels of a step on {step.gpu.device_name}",
      **dataclasses.asdict(parameters),
    }
    copied = whole_copies.fit(arguments.data / step.name, step.gpu)
    patterns = sections[f"sm_{major}0"]["patterns"]
    patterns["memcpy"] = dataclasses.asdict(copied)
  rate = tries_per_clock(steps)
  for step in steps:
    for number, rows in enumerate(step.scatters):
      _report(f"{step.name}: scatters, rank {number}", rows, _scatters_us(
        rate, rows, step.gpu))  # fmt: skip
  tries = {
    "how": "benchmarks/kernels/fit_fusions.py: median over colliding scatters",
    "data": ", ".join(s.name for s in steps if s.scatters[0]),
    "tries_per_clock": rate,
  }
  for name, document in (("fusion", sections), ("scatter", tries)):
    text = json.dumps(document, indent=2)
    print(text)
    if arguments.write:
      (_FOLDER / f"{name}.json").write_text(text + "\n", encoding="utf-8")


def _scatters_us(
  rate: float, rows: Sequence[lone_kernels.Class], gpu: gpu_lib.Gpu
) -> np.ndarray:
  return np.array([
    scatter.num_tries(r.kernel.scatter, gpu) / (rate * gpu.clock_ghz * 1e3)
    for r in rows
    if r.kernel.scatter
  ])  # fmt: skip


if __name__ == "__main__":
  main()
