# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Compares searchers by predicted step times, without a GPU.

    python -m benchmarks.search [--data FOLDER] [--only=NAME,...]
        [--format=text|csv] [--csv=FOLDER]

Tables: equal_budget, growth. Progress goes to stderr. Without --data, its
modules are named and skipped. --csv also writes the tables into a folder; those
in results/ were written this way.
"""

from __future__ import annotations

from collections.abc import Sequence
import pathlib
import sys

from benchmarks import table as table_lib
from benchmarks.search import equal_budget
from benchmarks.search import growth
from benchmarks.search import modules
from benchmarks.workloads import cases
from lagom_xla import errors

# With four collectives in flight, several keys share overlaps.
_RACED = (
  *(
    modules.MODULES[name]
    for name in (
      "mlp-tp", "mlp-ep", "llama-1b-fsdp", "llama-8b-tp", "llama-8b-fsdp-a100",
      "llama-8b-fsdp-tp", "llama-70b-fsdp-tp", "llama-70b-16x8", "llama-8b-cp",
    )
  ),
  *(
    modules.overlapping(modules.MODULES[name], 4)
    for name in ("mlp-fsdp", "llama-8b-fsdp-tp", "llama-8b-cp")
  ),
)  # fmt: skip


def _raced(data: pathlib.Path | None) -> table_lib.Table:
  races = []
  for case in cases.available(_RACED, data):
    step = modules.step(case, data)
    table_lib.say(f"searching {case.module}")
    races.append(equal_budget.race(step, num_seeds=equal_budget.NUM_SEEDS))
  return equal_budget.table(races)


def main(argv: Sequence[str] | None = None) -> None:
  """Runs the command."""
  parser = table_lib.parser("benchmarks.search", __doc__)
  parser.add_argument("--data", type=table_lib.folder)
  parser.add_argument("--only", default="")
  arguments = parser.parse_args(argv)
  makers = {
    "equal_budget": lambda: _raced(arguments.data),
    "growth": growth.table,
  }
  try:
    tables = [
      makers[name]()
      for name in table_lib.chosen(arguments.only, makers, "table")
    ]
  except errors.CompileError as error:
    sys.exit(f"search: {error}")
  table_lib.show(tables, arguments.format, arguments.csv)


if __name__ == "__main__":
  main()
