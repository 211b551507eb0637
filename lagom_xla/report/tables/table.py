# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""The look of tables in reports: no borders, and numbers to the right."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import rich.console
import rich.table


def new(title: str | None, *columns: str) -> rich.table.Table:
  """An empty table; the first column is text, the others are numbers."""
  table = rich.table.Table(
    title=title,
    title_justify="left",
    caption_justify="left",
    box=None,
    pad_edge=False,
    padding=(0, 1, 0, 0),
  )
  for index, column in enumerate(columns):
    # Folded, as a name that is cut off says nothing.
    justify = "left" if index == 0 else "right"
    table.add_column(column, justify=justify, overflow="fold")
  return table


def lines(
  console: rich.console.Console, table: rich.table.Table, width: int
) -> list[str]:
  """A table's lines, without blanks at their ends.

  Args:
    console: it is for.
    table: what to lay out.
    width: columns that it has at most.
  """
  with console.capture() as captured:
    console.print(table, width=width)
  return [line.rstrip() for line in captured.get().splitlines()]


def filled(
  title: str, columns: Sequence[str], rows: Iterable[Sequence[str]]
) -> rich.table.Table:
  """A table with rows, each of as many cells as there are columns."""
  table = new(title, *columns)
  for row in rows:
    table.add_row(*row)
  return table
