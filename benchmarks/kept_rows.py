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
import sys
from typing import Any

from benchmarks import table as table_lib
from lagom_xla import errors


def beside(
  table: table_lib.Table,
  folder: pathlib.Path,
  names: Sequence[tuple[Any, ...]],
  *,
  fields: Sequence[str] = ("module",),
) -> list[table_lib.Row]:
  """The rows of a table and those that are kept.

  Args:
    table: what this run has made.
    folder: where the table of earlier runs is, if there is one.
    names: of all rows, in their order. What the file has of others is dropped,
      and said.
    fields: what of a row makes its name.

  Raises:
    LagomError: the file has other columns.
  """

  def name(row: table_lib.Row) -> tuple[Any, ...]:
    return tuple(row[field] for field in fields)

  made = set(map(name, table.rows))
  rows = [*table.rows]
  for row in _read(table, folder / f"{table.name}.csv"):
    if name(row) not in names:
      dropped = f"no {' on '.join(map(str, name(row)))} any more: row dropped"
      print(f"{table.name}: there is {dropped}", file=sys.stderr, flush=True)
    elif name(row) not in made:
      rows.append(row)
  return sorted(rows, key=lambda row: names.index(name(row)))


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
