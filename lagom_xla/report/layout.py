# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""The layout of text: sections that fit 40 lines of 80 columns, and tables.

Sections list the most important items first. Items that do not fit are counted;
-v shows them. Tables have no borders, and numbers are right-aligned.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
import dataclasses
import itertools
import pathlib
import re
import textwrap

import rich.console
import rich.table

NUM_LINES = 40
NUM_COLUMNS = 80
_COMMAND = re.compile("`[^`]*`")
# Stands for a space within a command, where lines are not broken.
_SPACE = "\ue000"
# More than any report has.
_ALL_LINES = 10**6


@dataclasses.dataclass(frozen=True, kw_only=True)
class Section:
  """A part of a screen.

  Attributes:
    head: lines that are always shown.
    items: items that are shown if there is room, each as lines.
    least: number of items that are always shown.
  """

  head: tuple[str, ...]
  items: tuple[tuple[str, ...], ...] = ()
  least: int = 0


def wrapped(
  text: str, *, indent: int = 0, more: int = 2, width: int = NUM_COLUMNS
) -> tuple[str, ...]:
  """Wraps a text into lines, without breaking commands in `backquotes`.

  Args:
    text: the text.
    indent: indent of the first line.
    more: additional indent of the other lines.
    width: columns per line; only a command may be longer.
  """
  commands = _COMMAND.findall(text)
  lines = textwrap.wrap(
    _COMMAND.sub(lambda found: found[0].replace(" ", _SPACE), text),
    width,
    initial_indent=" " * indent,
    subsequent_indent=" " * (indent + more),
    break_on_hyphens=False,
    break_long_words=all(len(c) + indent + more < width for c in commands),
  )
  return tuple(line.replace(_SPACE, " ") for line in lines)


def notes(sentences: Iterable[str]) -> Section:
  """A section of notes; the first is always shown."""
  items = tuple(wrapped(f"Note: {sentence}") for sentence in sentences)
  return Section(head=(), items=items, least=1)


def fitted(
  sections: Sequence[Section], num_lines: int = NUM_LINES
) -> list[str]:
  """The lines of sections, at most `num_lines`; sections add items in turn."""
  shown = [min(s.least, len(s.items)) for s in sections]
  is_full = False
  while not is_full:
    is_full = True
    for index, section in enumerate(sections):
      more = [*shown]
      more[index] = min(more[index] + 1, len(section.items))
      if more != shown and len(_lines(sections, more)) <= num_lines:
        shown, is_full = more, False
  return _lines(sections, shown)


def _lines(sections: Sequence[Section], shown: Sequence[int]) -> list[str]:
  """Sections with `shown` items each; a last line counts the other items."""
  found: list[str] = []
  for section, number in zip(sections, shown, strict=True):
    found += [*section.head, *itertools.chain(*section.items[:number])]
    if left := len(section.items) - number:
      found.append(f"  and {left:,} more (-v shows them)")
  return found


def show(
  console: rich.console.Console,
  sections: Iterable[Section | None],
  files: Sequence[pathlib.Path] = (),
  tables: Iterable[rich.console.RenderableType] | None = None,
) -> None:
  """Shows a report.

  Args:
    console: where to show it.
    sections: the sections, in this order; None is skipped.
    files: written files, named at the end.
    tables: tables to show with all items of the sections; None to show only
      what fits.
  """
  there = [section for section in sections if section is not None]
  num_lines = NUM_LINES - len(files) if tables is None else _ALL_LINES
  for line in fitted(there, num_lines):
    style = None if line.startswith(" ") else "bold"
    console.print(line, highlight=False, style=style, soft_wrap=True)
  for table in tables or ():
    console.print(table, highlight=False)
  for path in files:
    # On one line, so that it can be copied.
    console.print(f"Wrote {path}", highlight=False, soft_wrap=True)


def say(console: rich.console.Console, *told: str | rich.table.Table) -> None:
  """Prints sentences and tables in turn, without trailing spaces."""
  for one in told:
    width = min(console.width, NUM_COLUMNS)
    if isinstance(one, str):
      lines: Iterable[str] = wrapped(one, more=0, width=width)
    else:
      with console.capture() as captured:
        console.print(one, width=width, highlight=False)
      lines = captured.get().splitlines()
    for line in lines:
      console.print(line.rstrip(), highlight=False, soft_wrap=True)


def table(
  title: str | None,
  columns: Sequence[str],
  rows: Iterable[Iterable[str]] = (),
  *,
  texts: Sequence[int] = (0,),
  caption: str | None = None,
) -> rich.table.Table:
  """A table.

  Args:
    title: the title; None for none.
    columns: the headings.
    rows: the rows, each with at most as many cells.
    texts: indices of text columns; all others have numbers.
    caption: a line below the table.
  """
  table = rich.table.Table(
    title=title,
    title_justify="left",
    caption=caption,
    caption_justify="left",
    box=None,
    pad_edge=False,
    padding=(0, 1, 0, 0),
  )
  for column in columns:
    # Folded, because a truncated name is useless.
    table.add_column(column, justify="right", overflow="fold")
  for index in texts:
    table.columns[index].justify = "left"
  for row in rows:
    table.add_row(*row)
  return table
