# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""A table of benchmarks.strands can be made row by row."""

from __future__ import annotations

from collections.abc import Sequence
import csv
import pathlib
import shutil

import pytest

from benchmarks import table as table_lib
from benchmarks.strands import __main__ as command
from benchmarks.strands import forms_table
from benchmarks.strands import modules as modules_lib
from benchmarks.strands import settings_table

_RESULTS = pathlib.Path(command.__file__).parent / "results"
_FIRST, _SECOND, *_, _LAST = modules_lib.MODULES
_TABLES_OF = {
  "forms": forms_table.table_of,
  "exposed": forms_table.exposed_table_of,
  "settings": settings_table.table_of,
}


def _row(
  columns: Sequence[table_lib.Column], module: str, number: float
) -> table_lib.Row:
  return {
    column.field: module
    if column.field == "module"
    else (int(number) if column.form == "d" else number)
    if column.form
    else "as written"
    for column in columns
  }


def _run(
  monkeypatch: pytest.MonkeyPatch, folder: pathlib.Path, module: str, us: float
) -> None:
  """Runs the command for a module, whose figures are all this number."""

  def tables(modules: object) -> list[table_lib.Table]:
    del modules
    return [
      table_of([_row(table_of([]).columns, module, us)])
      for table_of in (forms_table.table_of, forms_table.exposed_table_of)
    ]

  monkeypatch.setattr(forms_table, "tables", tables)
  command.main([f"--only={module}", f"--csv={folder}"])


def _column(folder: pathlib.Path, name: str, field: str) -> list[str]:
  with (folder / f"{name}.csv").open(newline="", encoding="utf-8") as file:
    return [row[field] for row in csv.DictReader(file)]


def test_rows_of_one_module_stand_beside_all_others_in_order(
  monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path
):
  for module, number in ((_LAST, 3.0), (_FIRST, 1.0), (_SECOND, 2.0)):
    _run(monkeypatch, tmp_path, module, number)
  for name in ("forms", "exposed"):
    assert _column(tmp_path, name, "module") == [_FIRST, _SECOND, _LAST]
  assert _column(tmp_path, "forms", "best_ms") == ["1.0", "2.0", "3.0"]


def test_targets_are_those_of_all_rows(
  monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path
):
  for module, number in ((_FIRST, 1.0), (_SECOND, 3.0)):
    _run(monkeypatch, tmp_path, module, number)
  median, *_ = _column(tmp_path, "forms_targets", "found")
  assert median == "2.000x, from 1.000x to 3.000x"


def test_other_columns_are_refused(
  monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path
):
  path = tmp_path / "forms.csv"
  path.write_text("module,best\n", encoding="utf-8")
  with pytest.raises(SystemExit, match=r"forms.csv has other columns"):
    _run(monkeypatch, tmp_path, _FIRST, 1.0)
  assert path.read_text(encoding="utf-8") == "module,best\n"


@pytest.mark.parametrize("name", _TABLES_OF)
def test_rows_that_are_kept_are_written_as_they_were(
  name: str,
  monkeypatch: pytest.MonkeyPatch,
  tmp_path: pathlib.Path,
):
  shutil.copy(_RESULTS / f"{name}.csv", tmp_path)
  before = (tmp_path / f"{name}.csv").read_bytes()
  table_of = _TABLES_OF[name]

  def nothing(modules: object) -> table_lib.Table:
    del modules  # A run that makes no row replaces none.
    return table_of([])

  monkeypatch.setattr(settings_table, "table", nothing)
  monkeypatch.setattr(forms_table, "tables", lambda modules: [nothing(modules)])
  options = ["--settings"] if name == "settings" else []
  command.main([f"--only={_FIRST}", f"--csv={tmp_path}", *options])
  assert (tmp_path / f"{name}.csv").read_bytes() == before
