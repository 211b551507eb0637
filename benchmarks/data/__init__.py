# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Tables of figures that come with the benchmarks.

README.md has their sources and licences.
"""

from __future__ import annotations

import csv
import pathlib

_FOLDER = pathlib.Path(__file__).resolve().parent


def rows(name: str) -> list[dict[str, str]]:
  """The rows of a table, by its columns.

  Args:
    name: of the file, without its suffix.
  """
  path = _FOLDER / f"{name}.csv"
  with path.open(newline="", encoding="utf-8") as file:
    return list(csv.DictReader(file))
