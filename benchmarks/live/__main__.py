# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Tuning while it trains, by wall clock, on two shaped hosts.

    python -m benchmarks.live [--only=CASE[:RATE],...] [--format=text|csv]
        [--csv=FOLDER]

Needs root and iproute2. A case and rate takes two to seven minutes, and up to
twelve where a step takes seconds. Progress goes to stderr. --csv also writes
the table into a folder; the one in results/ was written so. With --only, the
other rows stay in it as they were.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
import os
import pathlib
import sys

os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

from benchmarks import shaped_hosts
from benchmarks import table as table_lib
from benchmarks.live import cases as cases_lib
from benchmarks.live import table as live_table
from lagom_xla import errors


def main(argv: Sequence[str] | None = None) -> None:
  """The command."""
  arguments = _arguments(argv)
  chosen = _chosen(arguments.only)
  obstacle = shaped_hosts.obstacle()
  if obstacle is not None:
    sys.exit(f"live: skipped: {obstacle}.")
  try:
    rows: list[table_lib.Row] = [
      row for case, rates in chosen for row in live_table.rows(case, rates)
    ]
    table = live_table.table_of(rows)
    if arguments.csv is not None:
      _write(table, arguments.csv)
  except errors.LagomError as error:
    sys.exit(f"live: {error}")
  table_lib.show([table], arguments.format)


def _write(table: table_lib.Table, folder: pathlib.Path) -> None:
  """Writes a table, beside the rows of other cases that are there."""
  names = [
    (name, rate)
    for name, case in cases_lib.CASES.items()
    for rate in case.rates
  ]
  rows = table_lib.beside(table, folder, names, fields=("case", "rate"))
  live_table.table_of(rows).write_csv(folder)


def _chosen(only: str) -> list[tuple[str, tuple[int, ...]]]:
  """Cases and their rates, as --only names them."""
  chosen = []
  for name in table_lib.names(only) or cases_lib.CASES:
    case, _, rate = name.partition(":")
    if case not in cases_lib.CASES:
      sys.exit(
        f"live: --only={name} is no case; choose from"
        f" {', '.join(cases_lib.CASES)}."
      )
    rates = cases_lib.CASES[case].rates
    if rate and (not rate.isdecimal() or int(rate) not in rates):
      sys.exit(
        f"live: {case} has no rate {rate}; choose from"
        f" {' and '.join(map(str, rates))}."
      )
    chosen.append((case, (int(rate),) if rate else rates))
  return chosen


def _arguments(argv: Sequence[str] | None) -> argparse.Namespace:
  parser = table_lib.parser("benchmarks.live", __doc__)
  parser.add_argument("--only", default="", metavar="CASE[:RATE],...")
  return parser.parse_args(argv)


if __name__ == "__main__":
  main()
