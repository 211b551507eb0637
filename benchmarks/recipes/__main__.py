# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Plans beside published recipes, on predicted step times, without a GPU.

    python -m benchmarks.recipes [--data FOLDER] [--only=MODULE,...]
        [--gpus=h100,b200,a100_80] [--format=text|csv] [--csv=FOLDER]

A row for each step and kind of GPU: XLA's default, each recipe, what a search
keeps that begins with the default only, and one that begins with all of them.
With --csv each row is in the table in that folder as soon as it is there,
beside those of earlier runs, so that a run can be ended at any time and gone on
with. Modules of the data folder are left out where it is not given, and named
on stderr, where progress goes, too.
"""

from __future__ import annotations

from collections.abc import Sequence
import os
import sys
from typing import Any

os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("JAX_SKIP_CUDA_CONSTRAINTS_CHECK", "1")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

from benchmarks import table as table_lib
from benchmarks.recipes import cases as cases_lib
from benchmarks.recipes import rows as rows_lib
from benchmarks.workloads import cases
from lagom_xla import errors
from lagom_xla.cli import options


def main(argv: Sequence[str] | None = None) -> None:
  """The command."""
  parser = table_lib.parser("benchmarks.recipes", __doc__)
  parser.add_argument("--data", type=table_lib.folder, metavar="FOLDER")
  parser.add_argument("--only", default="", metavar="MODULE,...")
  parser.add_argument("--gpus", type=table_lib.names, default=cases_lib.GPUS)
  options.add_compiling(parser)
  arguments = parser.parse_args(argv)
  known = dict.fromkeys(case.module for case in cases_lib.all_cases())
  only = table_lib.chosen(arguments.only, known, "module")
  chosen = [
    case
    for gpu in arguments.gpus
    for case in cases_lib.cases(gpu)
    if case.module in only
  ]
  rows: list[dict[str, Any]] = []
  try:
    with options.workers(arguments) as workers:
      for case in cases.available(chosen, arguments.data):
        table_lib.say(f"{case.module} on {case.cluster}")
        row = {"module": case.module, "cluster": case.cluster}
        try:
          target = case.load(arguments.data)
          if workers is not None:
            target = target.with_workers(workers)
          row |= rows_lib.row(target, lambda what: table_lib.say(f"  {what}"))
        except errors.LagomError as error:
          row["failure"] = str(error)
        rows.append(row)
        if arguments.csv is not None:
          _write(rows_lib.table(rows), arguments)
  except errors.LagomError as error:
    sys.exit(f"recipes: {error}")
  table_lib.show([rows_lib.table(rows)], arguments.format)


def _write(table: table_lib.Table, arguments: Any) -> None:
  names = [(case.module, case.cluster) for case in cases_lib.all_cases()]
  fields = ("module", "cluster")
  rows = table_lib.beside(table, arguments.csv, names, fields=fields)
  rows_lib.table(rows).write_csv(arguments.csv)


if __name__ == "__main__":
  main()
