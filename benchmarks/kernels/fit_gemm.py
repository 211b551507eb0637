# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""The fit of costs/gemm/'s parameters to measured matrix products.

Hopper and Blackwell are fitted to XLA's table of measured products, A100 to the
products of a real step that overlapped no collective (gemm_rows.py), by
gemm_fit.py from the starts in gemm_starts.py. What products take longer within
a step than by themselves comes from the H100 step: the median over its shapes,
on the first rank; printed is how far it is off on the others. Blackwell, of
which there is no step, takes Hopper's.

  python -m benchmarks.kernels.fit_gemm [--data=FOLDER] [--write] [--hold_out]

The steps are in FOLDER (benchmarks/steps/trace.py); without it A100 is left
out, and nothing is written. With --hold_out each precision is fitted again
without random halves and without whole sizes, and tried on what was left out.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import pathlib
from typing import Any

import numpy as np

from benchmarks.kernels import gemm_fit
from benchmarks.kernels import gemm_rows
from benchmarks.kernels import gemm_starts
from lagom_xla import cluster
from lagom_xla.costs import gemm

_OUTPUT = pathlib.Path(gemm.__file__).parents[1] / "fitted" / "gemm.json"
_A100_STEP = "pax_a100"
_H100_STEP = "maxtext_h100"
_TABLES = {
  "sm_90": ("sm_90", "1x8xh100"),
  "sm_100": ("sm_100_B200", "1x8xb200"),
}
_OPERANDS = {"bf16": "bf16", "f8": "bf16", "f32": "f32"}


def in_step(precision: gemm.Precision, data: pathlib.Path) -> float:
  """What products take in the H100 step, over what they take by themselves."""
  folder = data / _H100_STEP
  rows = gemm_rows.of_step(folder, slice(1))
  ratio = float(
    np.median(rows.measured_us / gemm_fit.predicted_us(precision, rows))
  )
  for label, ranks in (("first rank", slice(1)), ("others", slice(1, None))):
    judged = gemm_rows.of_step(folder, ranks)
    predicted = ratio * gemm_fit.predicted_us(precision, judged)
    _report(f"in the H100 step, {label}", judged.measured_us, predicted)
  return float(f"{ratio:.3g}")


def _report(
  label: str, measured_us: np.ndarray, predicted_us: np.ndarray
) -> None:
  error = np.abs(predicted_us / measured_us - 1)
  print(
    f"  {label:34} n {len(error):4} median {np.median(error):6.1%}"
    f"  p90 {np.quantile(error, 0.9):6.1%}  worst {error.max():6.1%}"
  )


def _report_worst(
  precision: gemm.Precision, rows: gemm_rows.Rows, count: int
) -> None:
  predicted = gemm_fit.predicted_us(precision, rows)
  error = np.abs(predicted / rows.measured_us - 1)
  for i in np.argsort(-error)[:count]:
    batch, m, n, k = rows.shape[i]
    print(
      f"    {batch:3} x {m:5} x {n:5} x {k:5}: measured"
      f" {rows.measured_us[i]:8.2f} us, predicted {predicted[i]:8.2f} us"
    )


def _report_held_out(start: gemm.Precision, rows: gemm_rows.Rows) -> None:
  """Errors on rows that the fit did not see."""
  random = np.random.default_rng(0)
  halves = []
  for _ in range(2):
    order = random.permutation(len(rows.measured_us))
    first = np.isin(np.arange(len(order)), order[: len(order) // 2])
    halves += [first, ~first]
  groups = {
    "held out: random halves": halves,
    "held out: each k": [
      rows.shape[:, 3] == k for k in np.unique(rows.shape[:, 3])
    ],
  }
  for label, masks in groups.items():
    measured_us = [rows.measured_us[mask] for mask in masks]
    unseen_us = [
      gemm_fit.predicted_us(
        gemm_fit.fit(start, rows.where(~mask)), rows.where(mask)
      )
      for mask in masks
    ]
    _report(label, np.concatenate(measured_us), np.concatenate(unseen_us))


def _fit_and_report(
  title: str, start: gemm.Precision, rows: gemm_rows.Rows, *, hold_out: bool
) -> gemm.Precision:
  print(f"{title}, {rows.gpu.name}")
  _report("before", rows.measured_us, gemm_fit.predicted_us(start, rows))
  precision = gemm_fit.fit(start, rows)
  _report("after", rows.measured_us, gemm_fit.predicted_us(precision, rows))
  if hold_out and rows.median:
    _report_held_out(start, rows)
  _report_worst(precision, rows, 6)
  return precision


def _arguments() -> argparse.Namespace:
  parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
  parser.add_argument("--data", type=pathlib.Path)
  parser.add_argument("--write", action="store_true")
  parser.add_argument("--hold_out", action="store_true")
  arguments = parser.parse_args()
  if arguments.write and arguments.data is None:
    parser.error("--write needs --data: A100 is fitted to its pax_a100")
  return arguments


def _set_in_step(document: dict[str, Any], ratio: float) -> None:
  for architecture in _TABLES:
    section = document[architecture]
    section["data"] += f"; in_step: lone products of {_H100_STEP}"
    for precision in section["precisions"].values():
      precision["in_step"] = ratio


def main() -> None:
  """Fits, reports, and writes the parameters if asked to."""
  arguments = _arguments()
  hold_out = arguments.hold_out
  how = (
    "benchmarks/kernels/fit_gemm.py: robust fit of log(predicted / measured), "
    "pulled towards the starts in gemm_starts.py; sustained_efficiency is the "
    "fastest rate among the fitted shapes"
  )
  document: dict[str, Any] = {}
  fitted: dict[tuple[str, str], gemm.Precision] = {}
  if arguments.data is None:
    print("sm_80 bf16 is left out: it needs --data with pax_a100")
  else:
    step = _fit_and_report(
      "sm_80 bf16",
      gemm_starts.START["sm_80", "bf16"],
      gemm_rows.of_step(arguments.data / _A100_STEP),
      hold_out=hold_out,
    )
    document["sm_80"] = {
      "how": how + ". f32 is derived: the same shares of the TF32 peak.",
      "data": "pax_a100: lone products of a step on A100-SXM4-40GB, bf16",
      "precisions": dict.fromkeys(("bf16", "f32"), dataclasses.asdict(step)),
    }
  for architecture, (device, name) in _TABLES.items():
    gpu = cluster.parse(name).gpu
    precisions = {}
    for operand, out in _OPERANDS.items():
      rows = gemm_rows.of_table(device, gpu, operand, out)
      start = gemm_starts.START[architecture, operand]
      precision = _fit_and_report(
        f"{architecture} {operand}", start, rows, hold_out=hold_out
      )
      fitted[architecture, operand] = precision
      precisions[operand] = dataclasses.asdict(precision)
    document[architecture] = {
      "how": how,
      "data": f"benchmarks/data/matmul_flops.csv, device {device}",
      "precisions": precisions,
    }
  if arguments.data is not None:
    ratio = in_step(fitted["sm_90", "bf16"], arguments.data)
    _set_in_step(document, ratio)
  if arguments.write:
    _OUTPUT.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
  main()
