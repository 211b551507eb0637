# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""The command of a benchmark that has rows of each traced step."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable
import dataclasses
import os
import pathlib
from typing import Any

from benchmarks import table as table_lib
from benchmarks.steps import trace as step_trace


def run(
  doc: str | None,
  table: table_lib.Table,
  rows: Callable[[pathlib.Path], Iterable[Any]],
) -> None:
  """Shows a table of all traced steps in the folder of --data.

  Args:
    doc: the benchmark's docstring, whose first line --help shows.
    table: without its rows.
    rows: those of the step in a folder, as dataclasses.
  """
  os.environ.setdefault("JAX_PLATFORMS", "cpu")
  parser = argparse.ArgumentParser(description=(doc or "").partition("\n")[0])
  parser.add_argument("--data", type=pathlib.Path, required=True)
  parser.add_argument("--format", choices=("text", "json"), default="text")
  arguments = parser.parse_args()
  found = [
    dataclasses.asdict(row)
    for folder in step_trace.folders(arguments.data)
    for row in rows(folder)
  ]
  table_lib.show([dataclasses.replace(table, rows=found)], arguments.format)
