# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Plans beside published recipes, on predicted step times, without a GPU.

    python -m benchmarks.recipes [--data FOLDER] [--only=MODULE,...]
        [--gpus=h100,b200,a100_80] [--format=text|csv] [--csv=FOLDER]
    python -m benchmarks.recipes --exhaustive [--format=text|csv]
        [--csv=FOLDER]
    python -m benchmarks.recipes --screen [--only=MODULE,...]
        [--format=text|csv] [--csv=FOLDER]

A row for each step and kind of GPU: XLA's default, each recipe, what a search
keeps that begins with the default only, and one that begins with all of them.
With --csv each row is in the table in that folder as soon as it is there,
beside those of earlier runs, so that a run can be ended at any time and gone on
with. Modules of the data folder are left out where it is not given, and named
on stderr, where progress goes, too. On small modules instead, --exhaustive
compares plans with all pairs and triples of knobs, and --screen with what each
option adds that no knob sets.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator, Sequence
import os
import pathlib
import sys
from typing import Any

os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("JAX_SKIP_CUDA_CONSTRAINTS_CHECK", "1")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

from benchmarks import table as table_lib
from benchmarks.recipes import cases as cases_lib
from benchmarks.recipes import exhaustive
from benchmarks.recipes import rows as rows_lib
from benchmarks.recipes import screen
from lagom_xla import errors
from lagom_xla.cli import options
from lagom_xla.compile import pool
from lagom_xla.compile import target as target_lib


def main(argv: Sequence[str] | None = None) -> None:
  """The command."""
  arguments = _arguments(argv)
  try:
    with options.workers(arguments) as workers:
      if arguments.exhaustive:
        table = _exhaustive(arguments.csv, workers)
      elif arguments.screen:
        table = _screen(arguments, workers)
      else:
        table = _recipes(arguments, workers)
  except errors.LagomError as error:
    sys.exit(f"recipes: {error}")
  table_lib.show([table], arguments.format)


def _arguments(argv: Sequence[str] | None) -> argparse.Namespace:
  parser = table_lib.parser("benchmarks.recipes", __doc__)
  parser.add_argument("--data", type=pathlib.Path, metavar="FOLDER")
  parser.add_argument(
    "--only", type=table_lib.names, default=(), metavar="MODULE,..."
  )
  parser.add_argument("--gpus", type=table_lib.names, default=cases_lib.GPUS)
  instead = parser.add_mutually_exclusive_group()
  instead.add_argument("--exhaustive", action="store_true")
  instead.add_argument("--screen", action="store_true")
  options.add_compiling(parser)
  arguments = parser.parse_args(argv)
  if arguments.data is not None and not arguments.data.is_dir():
    parser.error(f"there is no folder {arguments.data}")
  known = screen.CASES if arguments.screen else cases_lib.all_cases()
  modules = dict.fromkeys(case.module for case in known)
  for name in arguments.only:
    if name not in modules:
      parser.error(f"there is no {name}; choose from {', '.join(modules)}")
  return arguments


def _recipes(
  arguments: argparse.Namespace, workers: pool.Pool | None
) -> table_lib.Table:
  table = rows_lib.table([])
  for case in _chosen(arguments):
    row = _row(case, arguments.data, workers)
    table = rows_lib.table([*table.rows, row])
    if arguments.csv is not None:
      _write(table, arguments.csv)
  return table


def _exhaustive(
  folder: pathlib.Path | None, workers: pool.Pool | None
) -> table_lib.Table:
  table = exhaustive.table([])
  for named, target in _loaded(exhaustive.CASES, workers):
    row = exhaustive.row(target, progress=lambda what: _say(f"  {what}"))
    table = exhaustive.table([*table.rows, {**named, **row}])
    if folder is not None:
      table.write_csv(folder)
  return table


def _screen(
  arguments: argparse.Namespace, workers: pool.Pool | None
) -> table_lib.Table:
  names = [(case.module, case.cluster) for case in screen.CASES]
  only = arguments.only or [module for module, _ in names]
  chosen = [case for case in screen.CASES if case.module in only]
  table = screen.table([])
  for named, target in _loaded(chosen, workers):
    rows = screen.rows(target, progress=lambda what: _say(f"  {what}"))
    table = screen.table([*table.rows, *({**named, **row} for row in rows)])
    if arguments.csv is not None:
      kept = table_lib.beside(
        table, arguments.csv, names, fields=("module", "cluster")
      )
      screen.table(kept).write_csv(arguments.csv)
  return table


def _loaded(
  cases: Iterable[cases_lib.Case], workers: pool.Pool | None
) -> Iterator[tuple[dict[str, str], target_lib.Target]]:
  """The targets of cases that need no data, with what a row calls them."""
  for case in cases:
    _say(f"{case.module} on {case.cluster}")
    yield _named(case), _with(workers, case.load(None))


def _named(case: cases_lib.Case) -> dict[str, str]:
  return {"module": case.module, "cluster": case.cluster}


def _with(
  workers: pool.Pool | None, target: target_lib.Target
) -> target_lib.Target:
  return target if workers is None else target.with_workers(workers)


def _chosen(arguments: argparse.Namespace) -> list[cases_lib.Case]:
  chosen = [
    case
    for gpu in arguments.gpus
    for case in cases_lib.cases(gpu)
    if not arguments.only or case.module in arguments.only
  ]
  return [case for case in chosen if _is_here(case, arguments.data)]


def _is_here(case: cases_lib.Case, data: pathlib.Path | None) -> bool:
  if not case.file or (data is not None and (data / case.file).is_file()):
    return True
  _say(f"{case.module} left out: it needs --data with {case.file}")
  return False


def _row(
  case: cases_lib.Case,
  data: pathlib.Path | None,
  workers: pool.Pool | None,
) -> dict[str, Any]:
  """The row of a case; where there is none, why."""
  _say(f"{case.module} on {case.cluster}")
  named = _named(case)
  try:
    target = _with(workers, case.load(data))
    row = rows_lib.row(target, lambda what: _say(f"  {what}"))
  except errors.LagomError as error:
    return {**named, "failure": str(error)}
  _say(f"  tuned {row['tuned_ms']:,.2f} ms of {row['default_ms']:,.2f} ms")
  return {**named, **row}


def _write(table: table_lib.Table, folder: pathlib.Path) -> None:
  names = [(case.module, case.cluster) for case in cases_lib.all_cases()]
  rows = table_lib.beside(table, folder, names, fields=("module", "cluster"))
  rows_lib.table(rows).write_csv(folder)


def _say(what: str) -> None:
  print(f"recipes: {what}", file=sys.stderr, flush=True)


if __name__ == "__main__":
  main()
