# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""The fit of costs/fusion.py to measured steps.

  python -m benchmarks.kernels.fit_fusions --data=FOLDER [--write]

Taken are the kernels of each step in FOLDER (benchmarks/steps/traced_step.py)
that overlapped no collective, in its steady steps, on the first rank: one set
of parameters for each architecture. Printed are the errors on the other ranks,
and those of fits that each saw one half of the classes, on the other half.

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
from lagom_xla import cluster as cluster_lib
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
  rows: Sequence[lone_kernels.Class], gpu: cluster_lib.Gpu, start: fusion.Fitted
) -> fusion.Fitted:
  """Fits launches, memory shares, the wave and the block rate to classes."""
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


def operations_bound(row: lone_kernels.Class, gpu: cluster_lib.Gpu) -> bool:
  """Whether operations take longer than bytes, both at full rate."""
  bytes_us = row.kernel.num_bytes / (gpu.hbm_gbps * 1e3)
  return _operations_us(row, gpu) > bytes_us


def _operations_us(row: lone_kernels.Class, gpu: cluster_lib.Gpu) -> float:
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
  gpu: cluster_lib.Gpu,
) -> np.ndarray:
  """Run times, without the gap."""
  return np.array([
    fusion.time_us(parameters, row.kernel, gpu) for row in rows
  ])  # fmt: skip


_FOLDER = pathlib.Path(fusion.__file__).parent / "fitted"
_LONG_US = 8.0


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


def tries_per_clock(steps: Sequence[lone_kernels.Measured]) -> float:
  """Median over the scatters of the first ranks, whose ids are all the same."""
  rates = [
    fusion.num_tries(c.kernel.scatter, step.gpu)
    / (c.measured_us * step.gpu.clock_ghz * 1e3)
    for step in steps
    for c in step.scatters[0]
    if c.kernel.scatter
  ]
  return float(f"{statistics.median(rates):.3g}")


def _show_errors(
  step: lone_kernels.Measured, start: fusion.Fitted, parameters: fusion.Fitted
) -> None:
  print(f"{step.name}: fitted to the first rank")
  for number, rows in enumerate(step.ranks):
    parts = {"all": rows}
    for pattern in PATTERNS:
      parts[pattern] = [r for r in rows if r.kernel.pattern == pattern]
    parts["of 8 us and more"] = [r for r in rows if r.measured_us >= _LONG_US]
    for what, part in parts.items():
      predicted = predicted_us(parameters, part, step.gpu)
      _report(f"  rank {number}, {what}", part, predicted)
  # The vector share has seen what operations bind.
  rows = [r for r in step.ranks[0] if not operations_bound(r, step.gpu)]
  halves = (rows[::2], rows[1::2])
  out, found = [], []
  for seen, unseen in (halves, halves[::-1]):
    long = [row for row in unseen if row.measured_us >= _LONG_US]
    fitted = fit(seen, step.gpu, start)
    out += long
    found.append(predicted_us(fitted, long, step.gpu))
  _report("  held-out halves, of 8 us and more", out, np.concatenate(found))


def fusions(
  steps: Sequence[lone_kernels.Measured], data: pathlib.Path
) -> dict[str, dict[str, Any]]:
  """What fusion.json holds, by architecture, each step's errors printed."""
  sections: dict[str, dict[str, Any]] = {}
  parameters = unfitted(vector_share(steps))
  for step in steps:
    start = dataclasses.replace(parameters, launch_gap_us=step.gap_us)
    parameters = fit(step.ranks[0], step.gpu, start)
    _show_errors(step, start, parameters)
    copied = whole_copies.fit(data / step.name, step.gpu)
    shipped = dataclasses.replace(
      parameters, patterns={**parameters.patterns, "memcpy": copied}
    )
    sections[f"sm_{step.gpu.compute_capability[0]}0"] = {
      "how": (
        "benchmarks/kernels/fit_fusions.py: robust fit of log(predicted / "
        "measured), classes of equal work weighted by the root of their time; "
        "launches and the vector share are medians, the gap a mean"
      ),
      "data": f"{step.name}: lone kernels of a step on {step.gpu.device_name}",
      **dataclasses.asdict(shipped),
    }
  return sections


def main() -> None:
  """Fits, reports, and writes the parameters if asked to."""
  parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
  parser.add_argument("--data", type=pathlib.Path, required=True)
  parser.add_argument("--write", action="store_true")
  arguments = parser.parse_args()
  steps = list(lone_kernels.read(arguments.data))
  sections = fusions(steps, arguments.data)
  rate = tries_per_clock(steps)
  for step in steps:
    tries_per_us = rate * step.gpu.clock_ghz * 1e3
    for number, rows in enumerate(step.scatters):
      predicted = [
        fusion.num_tries(row.kernel.scatter, step.gpu) / tries_per_us
        for row in rows
        if row.kernel.scatter
      ]
      _report(f"{step.name}: scatters, rank {number}", rows, predicted)
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


if __name__ == "__main__":
  main()
