# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Reads the tables that come with the benchmarks and those of a data folder.

README.md has the tables' sources and licenses.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
import csv
import json
import pathlib
from typing import Any

from benchmarks import table as table_lib
from lagom_xla import costs

FOLDER = pathlib.Path(__file__).resolve().parent


def rows(table: str | pathlib.Path) -> list[dict[str, str]]:
  """The rows of a table, as dictionaries by column.

  Args:
    table: the name of a table in this folder, or the path of a file.
  """
  path = FOLDER / f"{table}.csv" if isinstance(table, str) else table
  with path.open(newline="", encoding="utf-8") as file:
    return list(csv.DictReader(file))


def arguments(doc: str | None, *switches: str) -> argparse.Namespace:
  """The command line of a fit: --data and these switches."""
  table_lib.compile_ahead_of_time()
  parser = argparse.ArgumentParser(description=(doc or "").partition("\n")[0])
  parser.add_argument("--data", type=table_lib.folder, required=True)
  for switch in switches:
    parser.add_argument(f"--{switch}", action="store_true")
  return parser.parse_args()


def write_fitted(name: str, document: Mapping[str, Any]) -> None:
  """Writes a file of fitted parameters of the cost model."""
  text = json.dumps(document, indent=2) + "\n"
  (costs.FITTED / f"{name}.json").write_text(text, encoding="utf-8")
