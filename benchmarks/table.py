# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""A table of figures that came out of a run, with the target it is held to.

Rows are plain data with figures as they are (shares as shares, times in the
unit of their name), which is what JSON gets. A column says how a figure is
written in a terminal and in CSV.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
import csv
import dataclasses
import json
import pathlib
from typing import Any

import rich.console
import rich.table

# Strings, numbers and None.
Row = Mapping[str, Any]

_WIDTH = 200


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Column:
  """A column.

  Attributes:
    field: what it shows of a row; its head in CSV.
    heading: its head in a terminal.
    form: how a number is written, such as ".1%".
  """

  field: str
  heading: str
  form: str = ""

  def cell(self, row: Row) -> str:
    """What it says of a row; "" where the row has nothing."""
    value = row.get(self.field)
    if value is None:
      return ""
    return value if isinstance(value, str) else format(value, self.form)


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Target:
  """A target that a table is held to.

  Attributes:
    wanted: what is asked for.
    found: what the run showed.
    is_met: whether that is as asked.
  """

  wanted: str
  found: str
  is_met: bool

  @property
  def outcome(self) -> str:
    """Either "met" or "missed"."""
    return "met" if self.is_met else "missed"


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Table:
  """A table.

  Attributes:
    name: its file's, without the suffix.
    title: what it shows.
    columns: from left to right.
    rows: from top to bottom.
    targets: what it is held to.
    notes: how it was made, a sentence each.
  """

  name: str
  title: str
  columns: Sequence[Column]
  rows: Sequence[Row]
  targets: Sequence[Target] = ()
  notes: Sequence[str] = ()

  def to_dict(self) -> dict[str, object]:
    """What `--format=json` prints of it."""
    return {
      "name": self.name,
      "title": self.title,
      "rows": [dict(row) for row in self.rows],
      "targets": [dataclasses.asdict(target) for target in self.targets],
      "notes": list(self.notes),
    }

  def write_csv(self, folder: pathlib.Path) -> None:
    """Writes NAME.csv and, if it has targets, NAME_targets.csv."""
    _write_csv(
      folder / f"{self.name}.csv",
      [column.field for column in self.columns],
      [[column.cell(row) for column in self.columns] for row in self.rows],
    )
    if self.targets:
      _write_csv(
        folder / f"{self.name}_targets.csv",
        ["outcome", "wanted", "found"],
        [[t.outcome, t.wanted, t.found] for t in self.targets],
      )

  def print_to(self, console: rich.console.Console) -> None:
    """Prints it for a terminal."""
    console.print(self.title, style="bold", highlight=False)
    table = rich.table.Table(box=None)
    for column in self.columns:
      is_text = any(isinstance(r.get(column.field), str) for r in self.rows)
      table.add_column(column.heading, justify="left" if is_text else "right")
    for row in self.rows:
      table.add_row(*(column.cell(row) or "-" for column in self.columns))
    console.print(table, highlight=False)
    verdicts = [
      f"Target {target.outcome}: {target.wanted}. Found: {target.found}."
      for target in self.targets
    ]
    for line in (*self.notes, *verdicts):
      console.print(f"  {line}", highlight=False)
    console.print()


def show(
  tables: Sequence[Table], form: str, csv_folder: pathlib.Path | None = None
) -> None:
  """Prints tables, as "text" or "json", and writes them into a folder."""
  if csv_folder is not None:
    csv_folder.mkdir(parents=True, exist_ok=True)
    for table in tables:
      table.write_csv(csv_folder)
  if form == "json":
    print(json.dumps({"tables": [t.to_dict() for t in tables]}, indent=1))
    return
  console = rich.console.Console(width=_WIDTH)
  for table in tables:
    table.print_to(console)


def _write_csv(
  path: pathlib.Path, heads: Sequence[str], rows: Iterable[Sequence[str]]
) -> None:
  with path.open("w", newline="", encoding="utf-8") as file:
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(heads)
    writer.writerows(rows)
