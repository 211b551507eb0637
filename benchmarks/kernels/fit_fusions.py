# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""The fit of costs/fusion.py and costs/scatter.py to measured steps.

Taken are the kernels of each step in FOLDER (benchmarks/steps/trace.py) that
overlapped no collective, in its steady steps, on the first rank: one set of
parameters for each architecture, by fusion_fit.py.

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

from benchmarks.kernels import fusion_fit
from benchmarks.kernels import lone_kernels
from benchmarks.kernels import whole_copies
from lagom_xla.cluster import gpu as gpu_lib
from lagom_xla.costs import fusion
from lagom_xla.costs import scatter

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
  step: lone_kernels.Measured,
  start: fusion.Fitted,
  parameters: fusion.Fitted,
) -> None:
  print(f"{step.name}: fitted to the first rank")
  for number, rows in enumerate(step.ranks):
    _report(f"  rank {number}, all", rows, _predict(parameters, rows, step))
    for pattern in fusion_fit.PATTERNS:
      alike = [r for r in rows if r.kernel.pattern == pattern]
      _report(f"  rank {number}, {pattern}", alike,
              _predict(parameters, alike, step))  # fmt: skip
    long = [r for r in rows if r.measured_us >= _LONG_US]
    _report(f"  rank {number}, of 8 us and more", long,
            _predict(parameters, long, step))  # fmt: skip
  # The vector share has seen what operations bind.
  rows = [
    r for r in step.ranks[0] if not fusion_fit.operations_bound(r, step.gpu)
  ]
  halves = (rows[::2], rows[1::2])
  held_out = [
    (row, time_us)
    for seen, unseen in (halves, halves[::-1])
    for row, time_us in zip(
      unseen,
      _predict(fusion_fit.fit(seen, step.gpu, start), unseen, step),
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
  return fusion_fit.predicted_us(parameters, rows, step.gpu)


def fusions(
  steps: Sequence[lone_kernels.Measured], data: pathlib.Path
) -> dict[str, dict[str, Any]]:
  """What fusion.json holds, by architecture, each step's errors printed."""
  sections: dict[str, dict[str, Any]] = {}
  parameters = fusion_fit.unfitted(fusion_fit.vector_share(steps))
  for step in steps:
    start = dataclasses.replace(parameters, launch_gap_us=step.gap_us)
    parameters = fusion_fit.fit(step.ranks[0], step.gpu, start)
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
  arguments = _arguments()
  steps = list(lone_kernels.read(arguments.data))
  sections = fusions(steps, arguments.data)
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
