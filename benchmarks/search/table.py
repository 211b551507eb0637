# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""A table of figures that came out of a run, with the target it is held to.

Rows are plain data with figures as they are (shares as shares, times in the
unit of their name), which is what JSON gets. How a figure is written is the
column's affair.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
import dataclasses
from typing import Any

import rich.console
import rich.table

# Strings, numbers and None.
Row = Mapping[str, Any]


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Column:
  """A column.

  Attributes:
    field: what it shows of a row.
    heading: what stands above it.
    form: how a number is written, such as ".1%".
  """

  field: str
  heading: str
  form: str = ""

  def cell(self, row: Row) -> str:
    """What it says of a row; a dash where the row has nothing."""
    value = row.get(self.field)
    if value is None:
      return "-"
    return value if isinstance(value, str) else format(value, self.form)


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Target:
  """Something a table is to show.

  Attributes:
    wanted: what is asked for.
    found: what the run showed.
    is_met: whether that is as asked.
  """

  wanted: str
  found: str
  is_met: bool


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Table:
  """A table.

  Attributes:
    name: what `--only` calls the benchmark that it belongs to.
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

  def to_markdown(self) -> str:
    """A heading, the notes, the table and the targets."""
    lines = [f"### {self.title}", "", *_paragraph(self.notes)]
    lines.append(_line(column.heading for column in self.columns))
    lines.append(_line("---" for _ in self.columns))
    lines += [_line(column.cell(row) for column in self.columns)
              for row in self.rows]  # fmt: skip
    if self.targets:
      lines += ["", *(f"- {_verdict(target)}" for target in self.targets)]
    return "\n".join([*lines, ""])

  def print_to(self, console: rich.console.Console) -> None:
    """For a terminal."""
    console.print(self.title, style="bold", highlight=False)
    table = rich.table.Table(box=None)
    for at, column in enumerate(self.columns):
      table.add_column(column.heading, justify="right" if at else "left")
    for row in self.rows:
      table.add_row(*(column.cell(row) for column in self.columns))
    console.print(table, highlight=False)
    for line in (*self.notes, *map(_verdict, self.targets)):
      console.print(f"  {line}", highlight=False)
    console.print()


def _verdict(target: Target) -> str:
  outcome = "met" if target.is_met else "missed"
  return f"Target {outcome}: {target.wanted}. Found: {target.found}."


def _paragraph(notes: Sequence[str]) -> list[str]:
  return [" ".join(notes), ""] if notes else []


def _line(cells: Iterator[str]) -> str:
  return f"| {' | '.join(cells)} |"
