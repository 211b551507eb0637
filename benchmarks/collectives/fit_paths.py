# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""The fit of costs/wire/'s parameters to measured lone collectives.

  python -m benchmarks.collectives.fit_paths --data FOLDER [--write]
      [--hold_out]

FOLDER holds nccl_tests and pax_a100, of which the fit takes rows beside XLA's
table (see path_fit.py). --write writes
lagom_xla/costs/fitted/collective.json; --hold_out prints the errors on rows of
XLA's table that a fit did not see. Those of nccl-tests are printed by
benchmarks.accuracy.
"""

from __future__ import annotations

import argparse
from collections.abc import Hashable, Iterable, Sequence
import dataclasses
import json
import pathlib
import sys

import numpy as np

from benchmarks.collectives import lone_collective
from benchmarks.collectives import nccl_tests
from benchmarks.collectives import path_fit
from benchmarks.collectives import path_rows
from benchmarks.collectives import set_apart
from benchmarks.collectives import table_rows
from benchmarks.collectives import trace_rows


def relative_errors(
  rows: Iterable[path_rows.Row], fitted: path_fit.Fit
) -> list[float]:
  """|predicted / measured - 1| of each row."""
  systems, apart = fitted
  return [
    abs(row.predict_us(systems[row.model_system], apart) / row.time_us - 1)
    for row in rows
  ]


def _print_errors(
  rows: Sequence[path_rows.Row], errors: Sequence[float]
) -> None:
  groups: dict[str, list[float]] = {}
  for row, error in zip(rows, errors, strict=True):
    for name in _group_names(row):
      groups.setdefault(name, []).append(error)
  for name in sorted(groups):
    median, p90 = np.percentile(groups[name], (50, 90))
    print(
      f"  {name:44} n {len(groups[name]):4}  median {median:6.1%}"
      f"  p90 {p90:6.1%}  worst {max(groups[name]):7.1%}"
    )


def _group_names(row: path_rows.Row) -> Sequence[str]:
  if isinstance(row, nccl_tests.Row):
    return (f"nccl-tests, {row.model_system}", f"nccl-tests, {row.system}")
  if isinstance(row, trace_rows.Row):
    return ("A100 step, small all-reduces",)
  assert isinstance(row, lone_collective.Row)
  if not row.is_large:
    return (f"{row.device}, less than 64 KiB",)
  return (row.device, f"{row.device}, {row.key.kind}")


def _hold_out(
  table: Sequence[lone_collective.Row], others: Sequence[path_rows.Row]
) -> None:
  """Errors of each row of the table, by fits without it and its like."""
  rng = np.random.default_rng(0)
  coins = rng.integers(2, size=len(table))
  divisions: dict[str, Sequence[Hashable]] = {
    "random halves": coins.tolist(),
    "sizes (powers of two)": [r.num_bytes.bit_length() for r in table],
    "group sizes": [row.key.num_ranks for row in table],
  }
  for title, folds in divisions.items():
    errors = [0.0] * len(table)
    for fold in sorted(set(folds), key=repr):
      kept = [r for r, f in zip(table, folds, strict=True) if f != fold]
      out = [i for i, f in enumerate(folds) if f == fold]
      found = relative_errors(
        [table[i] for i in out], path_fit.fit([*kept, *others])
      )
      for i, error in zip(out, found, strict=True):
        errors[i] = error
    print(f"Held out: {title}")
    _print_errors(table, errors)


def _write(fitted: path_fit.Fit, rows: Sequence[path_rows.Row]) -> None:
  systems, apart = fitted
  named = {
    system: {
      name: {
        field.name: getattr(path, field.name)
        for field in dataclasses.fields(path)
        if getattr(path, field.name) != field.default
      }
      for name, path in paths.items()
    }
    for system, paths in systems.items()
  }
  counts = {
    system: {
      name: sum((row.model_system, row.path) == (system, name) for row in rows)
      for name in paths
    }
    for system, paths in systems.items()
  }
  text = json.dumps(
    {
      "about": (
        "Parameters of costs/wire/ by system and path (algorithm.protocol)."
        " Names are the fields of wire.Path; _us are microseconds, _gbps 1e9"
        " bytes per second, _steps fractions of a ring's step,"
        " link_efficiency a share of the links' rate in NCCL's model."
        " set_apart has what the measurements hold besides: the launch of a"
        " module in XLA's table, by system, and of one GPU's part in"
        " nccl-tests."
      ),
      "fitted_by": "benchmarks/collectives/fit_paths.py",
      "fitted_to": (
        "Half of the rows of XLA's default_collective_perf_table (sm_90 for"
        " h100, B200 for b200, GB200 and sm_103 for gb200), rows of nccl-tests"
        " on public systems of one node, small all-reduces of a traced step on"
        " A100s, and all-reduces of few channels on four nodes of H200s and on"
        " B300s."
      ),
      "fitted_how": (
        "Least squares of relative errors, soft above 50 %, rows of 4 MiB"
        " and more weighted by 3 and of less than 64 KiB by 0.3, parameters"
        " held weakly to start values. Paths without rows are as gb200's, and"
        " a100's as h100's with slower channels."
        " channel_gbps of ring.ll128, ring.simple and trees is what all-reduces"
        " of few channels show (channel_rows.py), of nvls what a permute's"
        " channel copies, of nvls_gather what a one-way permute's does;"
        " handshake_us of Simple outside NVLS is what NVLS shows."
      ),
      "tests": sorted(
        {row.system for row in rows if isinstance(row, nccl_tests.Row)}
      ),
      "num_rows": counts,
      "set_apart": dataclasses.asdict(apart),
      "systems": named,
    },
    indent=2,
  )
  set_apart.PATH.write_text(text + "\n", encoding="utf-8")


def _arguments() -> argparse.Namespace:
  parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
  parser.add_argument("--data", type=pathlib.Path, required=True)
  parser.add_argument("--write", action="store_true")
  parser.add_argument("--hold_out", action="store_true")
  return parser.parse_args()


def main() -> None:
  """Fits, prints the errors, and writes the parameters if asked to."""
  arguments = _arguments()
  for folder in (arguments.data / n for n in ("nccl_tests", "pax_a100")):
    if not folder.is_dir():
      sys.exit(f"fit_paths: there is no folder {folder}.")
  table = table_rows.read()
  others = path_rows.other_rows(arguments.data)
  rows = [*table, *others]
  fitted = path_fit.fit(rows)
  if arguments.write:
    _write(fitted, rows)
  print(fitted[1])
  print("All rows, fitted to all of them")
  _print_errors(rows, relative_errors(rows, fitted))
  print("The table, with NCCL 2.32's rule for sends and receives")
  newer = table_rows.read(old_rule=False)
  _print_errors(newer, relative_errors(newer, fitted))
  if arguments.hold_out:
    _hold_out(table, others)


if __name__ == "__main__":
  main()
