# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Lagom's table: its workloads on its clusters, predicted.

  python -m benchmarks.paper [--only=TEXT] [--format=text|csv] [--csv=FOLDER]

Nothing is fitted to the figures that it stands beside. Progress goes to stderr.
--csv also writes the tables into a folder; those in results/ were written so.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
import os
import sys
import time

from benchmarks import table as table_lib
from benchmarks.paper import cases
from benchmarks.paper import tables as tables_lib


def main(argv: Sequence[str] | None = None) -> None:
  """The command."""
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
  arguments = parser.parse_args(argv)

  def searched(workloads: Iterable[cases.Case]) -> list[tables_lib.Searched]:
    chosen = [
      case
      for case in workloads
      if not arguments.only or any(t in case.name for t in arguments.only)
    ]
    found = []
    for position, case in enumerate(chosen, start=1):
      begin_s = time.perf_counter()
      found.append(tables_lib.searched(case, case.step()))
      print(
        f"{position}/{len(chosen)} {case.name} {case.note}"
        f" ({time.perf_counter() - begin_s:.1f} s)",
        file=sys.stderr,
      )
    return found

  found = searched(cases.table_2())
  if not found:
    sys.exit(f"paper: no workload has {arguments.only!r} in its name.")
  tables = [
    tables_lib.step_times(found),
    tables_lib.shares(found),
    tables_lib.settings(found),
  ]
  tables += [
    tables_lib.patterns(one.step)
    for one in found
    if one.case.name == tables_lib.WORKLOAD
  ]
  if not arguments.no_sensitivity:
    tables.append(tables_lib.sensitivity(searched(cases.sensitivity())))
  table_lib.show(tables, arguments.format, arguments.csv)


if __name__ == "__main__":
  os.environ.setdefault("JAX_PLATFORMS", "cpu")
  os.environ.setdefault("JAX_SKIP_CUDA_CONSTRAINTS_CHECK", "1")
  os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
  main()
