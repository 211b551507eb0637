# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Tables of a run's results, and their command line.

Rows are plain data (shares as shares, times in the unit of their name). A
column has the format of its figures, in a terminal and in CSV.

A row takes minutes, and all rows take hours. So a run of some modules replaces
only their rows in the table that it writes.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Mapping, Sequence
import csv
import dataclasses
import io
import itertools
import os
import pathlib
import sys
from typing import Any

import jax
import rich.console
import rich.table

from lagom_xla import errors

# Strings, numbers and None.
Row = Mapping[str, Any]

_WIDTH = 200


@dataclasses.dataclass(frozen=True, slots=True)
class Column:
  """A column: the field of a row, and the format of numbers, such as ".1%"."""

  field: str
  form: str = ""

  def cell(self, row: Row) -> str:
    """The text for a row; "" if the row lacks the field."""
    value = row.get(self.field)
    if value is None:
      return ""
    return value if isinstance(value, str) else format(value, self.form)


def columns(**forms: str) -> tuple[Column, ...]:
  """Columns in this order, as field=format."""
  return tuple(itertools.starmap(Column, forms.items()))


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Target:
  """A target for a table, and the result of the run."""

  wanted: str
  found: str
  is_met: bool

  @property
  def outcome(self) -> str:
    """Whether the target was met, as a word."""
    return "met" if self.is_met else "missed"


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Table:
  """A table; `name` is that of its file, and notes say how it was made."""

  name: str
  title: str
  columns: Sequence[Column]
  rows: Sequence[Row]
  targets: Sequence[Target] = ()
  notes: Sequence[str] = ()

  def to_csv(self) -> str:
    """The rows as CSV."""
    return _csv(
      [column.field for column in self.columns],
      [[column.cell(row) for column in self.columns] for row in self.rows],
    )

  def write_csv(self, folder: pathlib.Path) -> None:
    """Writes NAME.csv and, if it has targets, NAME_targets.csv."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{self.name}.csv").write_text(self.to_csv(), encoding="utf-8")
    if self.targets:
      (folder / f"{self.name}_targets.csv").write_text(
        _csv(
          ["outcome", "wanted", "found"],
          [[t.outcome, t.wanted, t.found] for t in self.targets],
        ),
        encoding="utf-8",
      )

  def print_to(self, console: rich.console.Console) -> None:
    """Prints it for a terminal."""
    console.print(self.title, style="bold", highlight=False)
    table = rich.table.Table(box=None)
    for column in self.columns:
      is_text = any(isinstance(r.get(column.field), str) for r in self.rows)
      table.add_column(column.field, justify="left" if is_text else "right")
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
  """Prints tables, as "text" or "csv", and writes them into a folder."""
  if csv_folder is not None:
    for table in tables:
      table.write_csv(csv_folder)
  if form == "csv":
    print(*(table.to_csv() for table in tables), sep="\n", end="")
    return
  console = rich.console.Console(width=_WIDTH)
  for table in tables:
    table.print_to(console)


def _csv(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
  file = io.StringIO()
  csv.writer(file, lineterminator="\n").writerows([heads, *rows])
  return file.getvalue()


def keep(
  make: Callable[[Sequence[Row]], Table],
  rows: Sequence[Row],
  folder: pathlib.Path,
  names: Sequence[tuple[Any, ...]],
  *,
  fields: Sequence[str] = ("module",),
) -> None:
  """Writes the table of these rows and of earlier ones; see `beside`."""
  kept = beside(make(rows), folder, names, fields=fields)
  make(kept).write_csv(folder)


def beside(
  table: Table,
  folder: pathlib.Path,
  names: Sequence[tuple[Any, ...]],
  *,
  fields: Sequence[str] = ("module",),
) -> list[Row]:
  """The rows of a table, and those of earlier runs in a folder.

  `names` has the names of all rows, in order, as the values of these fields.
  Other rows of the file are dropped, with a message.

  Raises:
    LagomError: the file has other columns.
  """

  def name(row: Row) -> tuple[Any, ...]:
    return tuple(row[field] for field in fields)

  made = set(map(name, table.rows))
  rows = [*table.rows]
  for row in _read(table, folder / f"{table.name}.csv"):
    if name(row) not in names:
      unknown = " on ".join(map(str, name(row)))
      say(f"{table.name}: dropped the row of {unknown}, which no longer exists")
    elif name(row) not in made:
      rows.append(row)
  return sorted(rows, key=lambda row: names.index(name(row)))


def _read(table: Table, path: pathlib.Path) -> list[Row]:
  if not path.exists():
    return []
  with path.open(newline="", encoding="utf-8") as file:
    reader = csv.DictReader(file)
    if reader.fieldnames != [column.field for column in table.columns]:
      raise errors.LagomError(
        f"{path} has other columns than this version writes: move it away, or"
        " run without --only."
      )
    return [
      {c.field: _value(c, line[c.field]) for c in table.columns}
      for line in reader
    ]


def _value(column: Column, cell: str) -> Any:
  """The value of a cell, to as many digits as it has."""
  if not column.form:
    return cell
  if not cell:
    return None
  if column.form == "d":
    return int(cell)
  return float(cell[:-1]) / 100 if cell.endswith("%") else float(cell)


def parser(module: str, doc: str | None) -> argparse.ArgumentParser:
  """The parser of `python -m MODULE`, whose docstring is `doc`.

  The command compiles on a machine without GPUs.
  """
  compile_ahead_of_time()
  made = argparse.ArgumentParser(
    prog=f"python -m {module}", description=(doc or "").partition("\n")[0]
  )
  made.add_argument("--format", choices=("text", "csv"), default="text")
  made.add_argument(
    "--csv",
    type=pathlib.Path,
    metavar="FOLDER",
    help="also write the tables into this folder; commands that keep the rows"
    " of earlier runs replace only those of --only",
  )
  return made


def compile_ahead_of_time() -> None:
  """Keeps JAX off the GPUs, here and in child processes."""
  os.environ.setdefault("JAX_PLATFORMS", "cpu")
  os.environ.setdefault("JAX_SKIP_CUDA_CONSTRAINTS_CHECK", "1")
  os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
  jax.config.update("jax_platforms", os.environ["JAX_PLATFORMS"])


def names(text: str) -> tuple[str, ...]:
  """The names in a comma-separated list."""
  return tuple(name.strip() for name in text.split(",") if name.strip())


def folder(text: str) -> pathlib.Path:
  """The argument type for an existing folder."""
  path = pathlib.Path(text)
  if not path.is_dir():
    raise argparse.ArgumentTypeError(f"there is no folder {text}")
  return path


def chosen(only: str, known: Iterable[str], what: str) -> tuple[str, ...]:
  """The names in --only, or all; an unknown name ends the command."""
  known = tuple(known)
  for name in (found := names(only)):
    if name not in known:
      sys.exit(f"--only={name} is no {what}; choose from {', '.join(known)}.")
  return found or known


def say(what: str) -> None:
  """Prints progress to stderr."""
  print(what, file=sys.stderr, flush=True)
