# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Tables are printed as they are written, and keep rows of earlier runs."""

from __future__ import annotations

import pathlib

import pytest

from benchmarks import table as table_lib
from lagom_xla import errors


def _table(*rows: table_lib.Row) -> table_lib.Table:
  return table_lib.Table(
    name="one",
    title="A table",
    columns=(
      table_lib.Column("module"),
      table_lib.Column("share", ".1%"),
      table_lib.Column("n", "d"),
    ),
    rows=rows,
    targets=(table_lib.Target(wanted="w", found="f", is_met=False),),
  )


def test_a_table_is_printed_as_it_is_written(
  tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
):
  table = _table({"module": "a", "share": 0.125, "n": 2}, {"module": "b"})
  table_lib.show([table], "csv", tmp_path / "results")
  text = "module,share,n\na,12.5%,2\nb,,\n"
  assert (tmp_path / "results" / "one.csv").read_text() == text
  assert capsys.readouterr().out == text
  targets = (tmp_path / "results" / "one_targets.csv").read_text()
  assert targets == "outcome,wanted,found\nmissed,w,f\n"


def test_rows_of_earlier_runs_stay_beside_new_ones(tmp_path: pathlib.Path):
  old = [{"module": name, "share": 0.5, "n": 1} for name in ("a", "b", "gone")]
  _table(*old).write_csv(tmp_path)
  new = {"module": "b", "share": 0.25, "n": 2}
  assert table_lib.beside(_table(new), tmp_path, [("a",), ("b",)]) == [
    old[0],
    new,
  ]
  (tmp_path / "one.csv").write_text("module,best\n")
  with pytest.raises(errors.LagomError, match=r"one.csv has other columns"):
    table_lib.beside(_table(), tmp_path, [])
