# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Command line of a benchmark, as far as all of them have the same."""

from __future__ import annotations

import argparse
import pathlib


def parser(module: str, doc: str | None) -> argparse.ArgumentParser:
  """The parser of a benchmark that prints tables, with --format and --csv.

  Args:
    module: what `python -m` runs.
    doc: its docstring, whose first line --help shows.
  """
  made = argparse.ArgumentParser(
    prog=f"python -m {module}", description=(doc or "").partition("\n")[0]
  )
  made.add_argument("--format", choices=("text", "json"), default="text")
  made.add_argument(
    "--csv",
    type=pathlib.Path,
    metavar="FOLDER",
    help="also write the tables into this folder; a command that keeps rows of"
    " earlier runs puts only those of --only in their place",
  )
  return made


def names(text: str) -> tuple[str, ...]:
  """The names in a list with commas."""
  return tuple(name.strip() for name in text.split(",") if name.strip())
