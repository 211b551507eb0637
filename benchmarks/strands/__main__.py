# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Strands and slices against flags only: predicted, and by wall clock.

    python -m benchmarks.strands [--settings | --wall-clock] [--only=NAME,...]
        [--format=text|csv] [--csv=FOLDER]

Without --settings or --wall-clock: step times of train steps in every form.
--settings: what NCCL's settings add with strands and without. --wall-clock: two
shaped hosts on this machine, which needs root and iproute2. Progress goes to
stderr. --csv also writes the table into a folder; those in results/ were
written so. With --only, the rows of all other modules stay in it as they were.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
import os
import sys

os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("JAX_SKIP_CUDA_CONSTRAINTS_CHECK", "1")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

from benchmarks import shaped_hosts
from benchmarks import table as table_lib
from benchmarks.strands import forms_table
from benchmarks.strands import modules as modules_lib
from benchmarks.strands import settings_table
from benchmarks.strands.wall_clock import table as wall_clock
from lagom_xla import errors

# Tables with rows by module, by name: the table of so many rows.
_TABLE_OF: Mapping[
  str, Callable[[Sequence[table_lib.Row]], table_lib.Table]
] = {
  forms_table.NAME: forms_table.table_of,
  forms_table.EXPOSED: forms_table.exposed_table_of,
  settings_table.NAME: settings_table.table_of,
}


def main(argv: Sequence[str] | None = None) -> None:
  """The command."""
  arguments = _arguments(argv)
  try:
    tables = _tables(arguments)
    if arguments.csv is not None:
      for table in tables:
        # Of some modules, into the table of all that are there.
        if arguments.only and table.name in _TABLE_OF:
          names = [(name,) for name in modules_lib.MODULES]
          rows = table_lib.beside(table, arguments.csv, names)
          table = _TABLE_OF[table.name](rows)
        table.write_csv(arguments.csv)
  except errors.LagomError as error:
    sys.exit(f"strands: {error}")
  table_lib.show(tables, arguments.format)


def _tables(arguments: argparse.Namespace) -> list[table_lib.Table]:
  if arguments.wall_clock:
    obstacle = shaped_hosts.obstacle()
    if obstacle is not None:
      sys.exit(f"strands: --wall-clock skipped: {obstacle}.")
    settings = [
      s for s in wall_clock.SETTINGS if arguments.only in ("", s.name)
    ]
    if not settings:
      names = ", ".join(repr(s.name) for s in wall_clock.SETTINGS)
      sys.exit(f"strands: --only={arguments.only} is none of {names}.")
    return [wall_clock.table(settings)]
  modules = _chosen(arguments.only)
  if arguments.settings:
    return [settings_table.table(modules)]
  return forms_table.tables(modules)


def _chosen(only: str) -> list[modules_lib.Module]:
  names = table_lib.names(only)
  unknown = [name for name in names if name not in modules_lib.MODULES]
  if unknown:
    sys.exit(
      f"strands: --only={unknown[0]} is no module; choose from"
      f" {', '.join(modules_lib.MODULES)}."
    )
  return [modules_lib.MODULES[n] for n in names or modules_lib.MODULES]


def _arguments(argv: Sequence[str] | None) -> argparse.Namespace:
  parser = table_lib.parser("benchmarks.strands", __doc__)
  which = parser.add_mutually_exclusive_group()
  which.add_argument("--settings", action="store_true")
  which.add_argument("--wall-clock", action="store_true")
  parser.add_argument("--only", default="", metavar="NAME,...")
  return parser.parse_args(argv)


if __name__ == "__main__":
  main()
