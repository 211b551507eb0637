# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Plans beside published recipes, on predicted step times, without a GPU.

    python -m benchmarks.recipes [--data FOLDER] [--only=MODULE,...]
        [--gpus=h100,b200,a100_80] [--format=text|json] [--csv=FOLDER]

A row for each step and kind of GPU: XLA's default, each recipe, what a search
keeps that begins with the default only, and one that begins with all of them.
Each is a process of its own, as XLA may end it. Modules of the data folder are
left out where it is not given, and named on stderr, where progress goes, too.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
import concurrent.futures
import concurrent.futures.process
import json
import multiprocessing
import os
import pathlib
import sys
from typing import Any

os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("JAX_SKIP_CUDA_CONSTRAINTS_CHECK", "1")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

from benchmarks import table as table_lib
from benchmarks.recipes import cases as cases_lib
from benchmarks.recipes import rows as rows_lib
from lagom_xla import errors


def main(arguments_: Sequence[str] | None = None) -> None:
  """The command."""
  parser = argparse.ArgumentParser(
    prog="python -m benchmarks.recipes",
    description=(__doc__ or "").partition("\n")[0],
  )
  parser.add_argument("--data", type=pathlib.Path)
  parser.add_argument("--only", default="")
  parser.add_argument("--gpus", default=",".join(cases_lib.GPUS))
  parser.add_argument("--format", choices=("text", "json"), default="text")
  parser.add_argument("--csv", type=pathlib.Path, metavar="FOLDER")
  arguments = parser.parse_args(arguments_)
  if arguments.data is not None and not arguments.data.is_dir():
    parser.error(f"there is no folder {arguments.data}")
  chosen = [
    case for gpu in _names(arguments.gpus) for case in cases_lib.cases(gpu)
  ]
  wanted = _names(arguments.only)
  unknown = sorted(set(wanted) - {case.module for case in chosen})
  if unknown:
    names = dict.fromkeys(case.module for case in chosen)
    parser.error(f"there is no {unknown[0]}; choose from {', '.join(names)}")
  chosen = [c for c in chosen if not wanted or c.module in wanted]
  rows = [
    _in_a_process(case, arguments.data)
    for case in chosen
    if _is_here(case, arguments.data)
  ]
  table = rows_lib.table(rows)
  if arguments.format == "json":
    if arguments.csv is not None:
      arguments.csv.mkdir(parents=True, exist_ok=True)
      table.write_csv(arguments.csv)
    print(json.dumps(table.to_dict(), indent=1))
  else:
    table_lib.show([table], arguments.format, arguments.csv)


def _names(text: str) -> list[str]:
  return [name.strip() for name in text.split(",") if name.strip()]


def _is_here(case: cases_lib.Case, data: pathlib.Path | None) -> bool:
  if not case.file or (data is not None and (data / case.file).is_file()):
    return True
  _say(f"{case.module} left out: it needs --data with {case.file}")
  return False


def _in_a_process(
  case: cases_lib.Case, data: pathlib.Path | None
) -> dict[str, Any]:
  _say(f"{case.module} on {case.cluster}")
  named = {"module": case.module, "cluster": case.cluster}
  gpu = case.cluster.split("x", 2)[-1]
  context = multiprocessing.get_context("spawn")
  with concurrent.futures.ProcessPoolExecutor(1, context) as pool:
    try:
      row = pool.submit(rows_lib.by_name, case.module, gpu, data).result()
    except concurrent.futures.process.BrokenProcessPool:
      return {**named, "failure": "XLA ended the process in a compile"}
    except errors.LagomError as error:
      return {**named, "failure": str(error)}
  _say(f"  tuned {row['tuned_ms']:,.2f} ms of {row['default_ms']:,.2f} ms")
  return {**named, **row}


def _say(what: str) -> None:
  print(f"recipes: {what}", file=sys.stderr, flush=True)


if __name__ == "__main__":
  main()
