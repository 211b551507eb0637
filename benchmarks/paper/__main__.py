# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Lagom's table: its workloads on its clusters, predicted.

  python -m benchmarks.paper [--only=TEXT] [--format=text|csv] [--csv=FOLDER]

Nothing is fitted to the figures that it stands beside. Progress goes to stderr.
--csv also writes the tables into a folder; those in results/ were written so.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
import os
import sys
import time

from benchmarks import table as table_lib
from benchmarks.paper import cases
from benchmarks.paper import compare
from benchmarks.paper import show


def main(
  argv: Sequence[str] | None = None,
  *,
  table: Sequence[cases.Case] = (),
) -> None:
  """The command.

  Args:
    argv: its arguments.
    table: workloads in place of the paper's.
  """
  arguments = _arguments(argv)
  chosen = _chosen(table or tuple(cases.table_2()), arguments.only)
  others = _chosen(tuple(cases.sensitivity()), arguments.only)
  if not chosen:
    sys.exit(f"paper: no workload has {arguments.only!r} in its name.")
  rows, found = _compare(chosen)
  other_rows = [] if arguments.no_sensitivity else _compare(others)[0]
  tables = [show.step_times(rows), show.shares(rows), show.settings(rows)]
  if found:
    tables.append(show.pattern_lines(found))
  if other_rows:
    tables.append(show.sensitivity(other_rows))
  table_lib.show(tables, arguments.format, arguments.csv)


def _chosen(
  workloads: Sequence[cases.Case], only: Sequence[str]
) -> list[cases.Case]:
  return [
    case
    for case in workloads
    if not only or any(text in case.name for text in only)
  ]


def _compare(
  workloads: Sequence[cases.Case],
) -> tuple[list[compare.Row], list[compare.Line]]:
  """The workloads' rows, and the patterns if their workload is among them."""
  rows, found = [], []
  for position, case in enumerate(workloads, start=1):
    begin = time.perf_counter()
    step = case.step()
    rows.append(compare.compare(case, step))
    if case.name == compare.WORKLOAD and not case.note:
      found = list(compare.lines(step))
    print(
      f"{position}/{len(workloads)} {case.name} {case.note}"
      f" ({time.perf_counter() - begin:.1f} s)",
      file=sys.stderr,
    )
  return rows, found


def _arguments(argv: Sequence[str] | None) -> argparse.Namespace:
  parser = table_lib.parser("benchmarks.paper", __doc__)
  parser.add_argument(
    "--only",
    action="append",
    default=[],
    metavar="TEXT",
    help="workloads whose name, such as phi-2/fsdp/8/a, has TEXT in it; may be"
    " given more than once",
  )
  parser.add_argument(
    "--no-sensitivity",
    action="store_true",
    help="leave out other sequence lengths and precisions",
  )
  return parser.parse_args(argv)


if __name__ == "__main__":
  os.environ.setdefault("JAX_PLATFORMS", "cpu")
  os.environ.setdefault("JAX_SKIP_CUDA_CONSTRAINTS_CHECK", "1")
  os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
  main()
