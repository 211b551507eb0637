# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Rows that an earlier run wrote, kept beside those of this one.

A row takes minutes, all of them hours. So a run of some modules puts its rows
in the place of theirs, and the table that it writes has all others as they
were.
"""

from __future__ import annotations

from collections.abc import Sequence
import csv
import pathlib
from typing import Any

from benchmarks import table as table_lib
from benchmarks.strands import progress
from lagom_xla import errors


def beside(
  table: table_lib.Table, folder: pathlib.Path, modules: Sequence[str]
) -> list[table_lib.Row]:
  """The rows of a table and those that are kept, by module.

  Args:
    table: what this run has made.
    folder: where the table of earlier runs is, if there is one.
    modules: the names of all, in the order of their rows. What the file has of
      others is dropped, and said.

  Raises:
    LagomError: the file has other columns.
  """
  made = {row["module"] for row in table.rows}
  rows = [*table.rows]
  for row in _read(table, folder / f"{table.name}.csv"):
    if row["module"] not in modules:
      progress.say(f"{table.name}: {row['module']} is no module: row dropped")
    elif row["module"] not in made:
      rows.append(row)
  return sorted(rows, key=lambda row: modules.index(row["module"]))


def _read(table: table_lib.Table, path: pathlib.Path) -> list[table_lib.Row]:
  if not path.exists():
    return []
  with path.open(newline="", encoding="utf-8") as file:
    reader = csv.DictReader(file)
    if reader.fieldnames != [column.field for column in table.columns]:
      raise errors.LagomError(
        f"{path} has other columns than are written now: move it away, or run"
        " without --only."
      )
    return [
      {c.field: _value(c, line[c.field]) for c in table.columns}
      for line in reader
    ]


def _value(column: table_lib.Column, cell: str) -> Any:
  """What a cell says, to as many digits as it has."""
  if not column.form:
    return cell
  if not cell:
    return None
  if column.form == "d":
    return int(cell)
  return float(cell[:-1]) / 100 if cell.endswith("%") else float(cell)
