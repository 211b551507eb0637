# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""The layout of text: sections that fit 40 lines of 80 columns, and tables.

Sections list what matters most first. What does not fit is counted, and -v
shows it. Tables have no borders, and numbers to the right.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
import dataclasses
import pathlib
import textwrap

import rich.console
import rich.table

NUM_LINES = 40
NUM_COLUMNS = 80
# More than any report has.
_ALL_LINES = 10**6


@dataclasses.dataclass(frozen=True, kw_only=True)
class Section:
  """A part of a screen.

  Attributes:
    head: lines that are always shown.
    items: what is shown as far as there is room, each as lines.
    num_left_out: further things of the kind that have no item.
    least: items that are shown whatever else there is.
  """

  head: tuple[str, ...]
  items: tuple[tuple[str, ...], ...] = ()
  num_left_out: int = 0
  least: int = 0


def wrapped(text: str, *, indent: int = 0, more: int = 2) -> tuple[str, ...]:
  """Text in lines, nothing of it left out.

  Args:
    text: what to say.
    indent: columns before the first line.
    more: columns before the others, beyond that.
  """
  return tuple(
    textwrap.wrap(
      text,
      NUM_COLUMNS,
      initial_indent=" " * indent,
      subsequent_indent=" " * (indent + more),
      break_on_hyphens=False,
    )
  )


def fitted(
  sections: Sequence[Section], num_lines: int = NUM_LINES
) -> list[str]:
  """The lines of sections, the items shared out among them in turn.

  Args:
    sections: in the order in which they are shown.
    num_lines: that there are.
  """
  shown = [min(s.least, len(s.items)) for s in sections]
  while True:
    grown = False
    for index, section in enumerate(sections):
      more = [*shown]
      more[index] += 1
      if shown[index] < len(section.items) and (
        len(_all(sections, more)) <= num_lines
      ):
        shown, grown = more, True
    if not grown:
      return _all(sections, shown)


def show_sections(
  console: rich.console.Console,
  sections: Sequence[Section | None],
  files: Sequence[pathlib.Path],
  *,
  is_whole: bool,
) -> None:
  """Shows sections.

  Args:
    console: where.
    sections: in this order; None is none.
    files: that are going to be named below, a line each.
    is_whole: whether to show all items, however many there are.
  """
  there = [section for section in sections if section is not None]
  num_lines = _ALL_LINES if is_whole else NUM_LINES - len(files)
  for line in fitted(there, num_lines):
    style = None if line.startswith(" ") else "bold"
    console.print(line, highlight=False, style=style)


def show_files(
  console: rich.console.Console, files: Sequence[pathlib.Path]
) -> None:
  """Names files that were written, each in a line that can be copied."""
  for path in files:
    console.print(f"Wrote {path}", highlight=False, soft_wrap=True)


def _all(sections: Sequence[Section], shown: Sequence[int]) -> list[str]:
  """The lines of sections, each with so many of its items.

  Where items are left out, the last line counts them.
  """
  found: list[str] = []
  for section, number in zip(sections, shown, strict=True):
    found += section.head
    for item in section.items[:number]:
      found += item
    left = len(section.items) - number + section.num_left_out
    if left:
      found.append(f"  and {left:,} more, which -v shows")
  return found


def new_table(title: str | None, *columns: str) -> rich.table.Table:
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


def table_lines(
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


def filled_table(
  title: str, columns: Sequence[str], rows: Iterable[Sequence[str]]
) -> rich.table.Table:
  """A table with rows, each of as many cells as there are columns."""
  table = new_table(title, *columns)
  for row in rows:
    table.add_row(*row)
  return table
