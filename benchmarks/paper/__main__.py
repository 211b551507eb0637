# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Lagom's table: its workloads on its clusters, predicted.

  python -m benchmarks.paper [--only=TEXT] [--format=text|csv] [--csv=FOLDER]

Nothing is fitted to the figures that it stands beside. Progress goes to stderr.
--csv also writes the tables into a folder; those in results/ were written so.
"""

from __future__ import annotations

from collections.abc import Sequence
import os
import sys

os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("JAX_SKIP_CUDA_CONSTRAINTS_CHECK", "1")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

from benchmarks import table as table_lib
from benchmarks.paper import cases
from benchmarks.paper import tables


def main(argv: Sequence[str] | None = None) -> None:
  """The command."""
  parser = table_lib.parser("benchmarks.paper", __doc__)
  parser.add_argument(
    "--only",
    default="",
    metavar="TEXT",
    help="workloads whose name, such as phi-2/fsdp/8/a, has TEXT in it",
  )
  arguments = parser.parse_args(argv)
  chosen = [case for case in cases.table_2() if arguments.only in case.name]
  if not chosen:
    sys.exit(f"paper: no workload has {arguments.only!r} in its name.")
  found = []
  for case in chosen:
    table_lib.say(case.name)
    found.append(tables.searched(case, case.step()))
  made = [tables.step_times(found), tables.shares(found)]
  made += [
    tables.patterns(one.step)
    for one in found
    if one.case.name == tables.WORKLOAD
  ]
  table_lib.show(made, arguments.format, arguments.csv)


if __name__ == "__main__":
  main()
