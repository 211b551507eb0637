# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Strands and slices against flags only: predicted, and by wall clock.

    python -m benchmarks.strands [--wall-clock] [--only=NAME,...]
        [--format=text|csv] [--csv=FOLDER]

Without --wall-clock: step times of train steps in every form. With it: two
shaped hosts on this machine, which needs root and iproute2. Progress goes to
stderr. --csv also writes the table into a folder; those in results/ were
written so. With --only, the rows of all other modules stay in it as they were.
"""

from __future__ import annotations

from collections.abc import Sequence
import os
import sys

os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("JAX_SKIP_CUDA_CONSTRAINTS_CHECK", "1")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

from benchmarks import shaped_hosts
from benchmarks import table as table_lib
from benchmarks.strands import forms
from benchmarks.strands import modules
from benchmarks.strands import wall_clock
from lagom_xla import errors


def main(argv: Sequence[str] | None = None) -> None:
  """The command."""
  parser = table_lib.parser("benchmarks.strands", __doc__)
  parser.add_argument("--wall-clock", action="store_true")
  parser.add_argument("--only", default="", metavar="NAME,...")
  arguments = parser.parse_args(argv)
  try:
    if arguments.wall_clock:
      obstacle = shaped_hosts.obstacle()
      if obstacle is not None:
        sys.exit(f"strands: --wall-clock skipped: {obstacle}.")
      table = wall_clock.table()
    else:
      names = table_lib.chosen(arguments.only, modules.MODULES, "module")
      table = forms.table([modules.MODULES[name] for name in names])
      if arguments.csv is not None:
        # Of some modules, into the table of all that are there.
        order = [(name,) for name in modules.MODULES]
        rows = table_lib.beside(table, arguments.csv, order)
        forms.table_of(rows).write_csv(arguments.csv)
  except errors.LagomError as error:
    sys.exit(f"strands: {error}")
  csv_folder = arguments.csv if arguments.wall_clock else None
  table_lib.show([table], arguments.format, csv_folder)


if __name__ == "__main__":
  main()
