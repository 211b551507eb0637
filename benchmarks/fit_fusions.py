# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""The fit of costs/kernel.py's fusions to the kernels of a measured step.

Taken are the kernels of the A100 step that overlapped no collective, in its
steady steps. Kernels of equal work are one class with the median of their
times. The fit minimizes the logarithm of predicted over measured time, less
and less steeply for large errors, with each class weighted by the root of the
time that it takes of a step: long and frequent kernels count for most, yet no
single class decides. The launch of a pattern is the median of its kernels that
move less than 64 KiB. Shares of memory and vector rates carry over to other
GPUs; launches and the gap are taken over as times.

  python -m benchmarks.fit_fusions --data=FOLDER [--write]

The step is in the folder pax_a100 of FOLDER.
"""

from __future__ import annotations

import argparse
import collections
from collections.abc import Sequence
import dataclasses
import json
import pathlib
import statistics

import numpy as np
from scipy import optimize

from benchmarks import step_trace
from lagom_xla.cluster import gpu as gpu_lib
from lagom_xla.costs import kernel as kernel_lib
from lagom_xla.passes import collectives
from lagom_xla.passes import hlo
from lagom_xla.passes import kernels
from lagom_xla.passes import overlap

_OUTPUT = pathlib.Path(kernel_lib.__file__).parent / "fitted" / "fusion.json"
# Errors below this count by their square, errors above by their size.
_SMALL_ERROR = 0.1
_TINY_BYTES = 65536
_LONG_US = 20.0
_ROUNDS = 5
_PATTERNS = ("elementwise", "row-reduction", "column-reduction", "transpose")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Class:
  """Kernels of equal work: one of them, its time, and how many run per step."""

  kernel: kernels.Kernel
  measured_us: float
  per_step: float


def classes(
  module: hlo.Module, lone: Sequence[step_trace.KernelRun], num_steps: int
) -> list[Class]:
  """Lone kernels by equal work, matrix products too.

  Args:
    module: of the step.
    lone: its kernels where they ran beside no collective.
    num_steps: that these runs are from, counted once for each rank.
  """
  kernel_of = {k.name: k for k in overlap.analyze(module).kernels.values()}
  members = collections.defaultdict(list)
  for run in lone:
    if kernel := kernel_of.get(run.name):
      work = dataclasses.replace(
        kernel, name="", computation="", instruction_id=0, backend_config={}
      )
      key = tuple(
        getattr(work, f.name)
        for f in dataclasses.fields(work)
        if f.name != "backend_config"
      )
      members[key].append((kernel, run.time_us))
  return [
    Class(
      kernel=found[0][0],
      measured_us=statistics.median(time_us for _, time_us in found),
      per_step=len(found) / num_steps,
    )
    for found in members.values()
  ]


def fit(
  rows: Sequence[Class], gpu: gpu_lib.Gpu, gap_us: float
) -> kernel_lib.Fitted:
  """Fits launches and shares to classes that are no matrix products."""
  measured_us = np.array([r.measured_us for r in rows])
  weights = np.sqrt([r.measured_us * r.per_step for r in rows])
  weights /= weights.sum()
  launches_us = [_launch_us(rows, pattern) for pattern in _PATTERNS]

  def parameters(logs: np.ndarray) -> kernel_lib.Fitted:
    vector_share, *shares = (float(f"{v:.3g}") for v in np.exp(logs))
    return kernel_lib.Fitted(
      launch_gap_us=gap_us,
      vector_share=vector_share,
      patterns={
        name: kernel_lib.Pattern(launch_us=launch_us, memory_share=share)
        for name, launch_us, share in zip(
          _PATTERNS, launches_us, shares, strict=True
        )
      },
    )

  def loss(logs: np.ndarray) -> float:
    predicted = predicted_us(parameters(logs), rows, gpu)
    error = np.log(predicted / measured_us) / _SMALL_ERROR
    return float(np.sum(weights * (np.sqrt(1 + error**2) - 1)))

  logs = np.log([0.7, *[0.8] * len(_PATTERNS)])
  for _ in range(_ROUNDS):  # Restarts: the simplex collapses early.
    logs = optimize.minimize(loss, logs, method="Nelder-Mead").x
  return parameters(logs)


def _launch_us(rows: Sequence[Class], pattern: str) -> float:
  """Median over kernels, not classes, that move next to nothing."""
  tiny = [r for r in rows if r.kernel.num_bytes < _TINY_BYTES]
  alike = [r for r in tiny if r.kernel.pattern == pattern] or tiny
  times = np.repeat(
    [r.measured_us for r in alike], [round(6 * r.per_step) for r in alike]
  )
  return round(float(np.median(times)), 2)


def predicted_us(
  parameters: kernel_lib.Fitted, rows: Sequence[Class], gpu: gpu_lib.Gpu
) -> np.ndarray:
  """Run times, without the gap."""
  return np.array([
    kernel_lib.fusion_us(parameters, row.kernel, gpu) for row in rows
  ])  # fmt: skip


def _report(
  label: str, rows: Sequence[Class], predicted: Sequence[float] | np.ndarray
) -> None:
  measured_us = np.array([r.measured_us for r in rows])
  per_step = np.array([r.per_step for r in rows])
  error = np.abs(predicted / measured_us - 1)
  total_us = float(measured_us @ per_step)
  print(
    f"{label:30} n {len(rows):3} median {np.median(error):6.1%}"
    f"  p90 {np.quantile(error, 0.9):6.1%}  worst {error.max():6.1%}"
    f"  sum {float(predicted @ per_step) / total_us - 1:+.1%}"
    f" of {total_us:.0f} us"
  )


def _arguments() -> argparse.Namespace:
  parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
  parser.add_argument("--data", type=pathlib.Path, required=True)
  parser.add_argument("--write", action="store_true")
  return parser.parse_args()


def main() -> None:
  """Fits, reports, and writes the parameters if asked to."""
  arguments = _arguments()
  folder = arguments.data / "pax_a100"
  module = step_trace.module(folder)
  gpu = step_trace.cluster(folder, module).gpu
  names = {c.name for c in collectives.find(module)}
  steps = step_trace.steady_steps(folder, module)
  lone = step_trace.lone_runs(steps, names)
  every = classes(module, lone, len(steps))
  rows = [c for c in every if c.kernel.category != "gemm"]
  gaps_us = [run.gap_us for run in lone if run.gap_us is not None]
  gap_us = round(statistics.median(gaps_us), 2)
  parameters = fit(rows, gpu, gap_us)
  for pattern in _PATTERNS:
    alike = [r for r in rows if r.kernel.pattern == pattern]
    _report(pattern, alike, predicted_us(parameters, alike, gpu))
  long = [r for r in rows if r.measured_us >= _LONG_US]
  _report("of 20 us and more", long, predicted_us(parameters, long, gpu))
  _report("all but products", rows, predicted_us(parameters, rows, gpu))
  document = {
    "how": (
      "benchmarks/fit_fusions.py: robust fit of log(predicted / measured), "
      "classes of equal work weighted by the root of their time; launches and "
      "gap are medians"
    ),
    "data": "pax_a100: lone kernels of a step on A100-SXM4-40GB, CUDA graphs",
    **dataclasses.asdict(parameters),
  }
  print(json.dumps(document, indent=2))
  if arguments.write:
    _OUTPUT.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
    kernel_lib.fitted.cache_clear()
  if _OUTPUT.exists():
    step_us = np.array([
      kernel_lib.predict(c.kernel, gpu).time_us - gap_us for c in every
    ])  # fmt: skip
    is_gemm = np.array([c.kernel.category == "gemm" for c in every])
    products = [c for c in every if c.kernel.category == "gemm"]
    _report("products", products, step_us[is_gemm])
    _report("all, by kernel.predict", every, step_us)


if __name__ == "__main__":
  main()
