# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""The searchers compared, on predicted step times, without a GPU.

    python -m benchmarks.search [--data FOLDER] [--only=NAME,...]
        [--format=text|csv] [--csv=FOLDER]

Tables: against_exhaustive, growth, equal_budget, ablation.
Every figure comes out of the run; progress goes to stderr. Modules that are
read from the data folder are left out where it is not given, and named. --csv
also writes the tables into a folder; those in results/ were written so.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
import os
import pathlib
import sys

from lagom_xla import errors

os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("JAX_SKIP_CUDA_CONSTRAINTS_CHECK", "1")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

from benchmarks import table as table_lib
from benchmarks.search import ablation
from benchmarks.search import against_exhaustive
from benchmarks.search import equal_budget
from benchmarks.search import growth
from benchmarks.search import modules as modules_lib

_MODULES = tuple(modules_lib.MODULES.values())
# On GPUs that XLA has no cost tables for, collectives meet by themselves.
_MEETING = tuple(
  module.overlapping(2)
  for module in _MODULES
  if not module.cluster.endswith(("a40", "a100"))
)
# More overlaps of two collectives.
_MORE = tuple(
  modules_lib.llama(
    f"llama-{model}-{mesh}", cluster, model=model, mesh=mesh
  ).overlapping(2)
  for model, cluster, mesh in (
    ("1b", "2x8xh100", "fsdp:16,tp:1"),
    ("3b", "1x8xh100", "fsdp:4,tp:2"),
    ("3b", "2x8xh200", "fsdp:8,tp:2"),
    ("8b", "2x8xb200", "fsdp:4,tp:4"),
    ("70b", "8x8xh100", "fsdp:8,tp:8"),
  )
)
# In these, several keys share overlaps.
_CHAINED = tuple(
  modules_lib.MODULES[name].overlapping(4)
  for name in ("mlp-fsdp", "llama-1b-fsdp", "llama-8b-fsdp-tp",
               "llama-70b-fsdp-tp", "llama-70b-16x8", "llama-8b-cp")
)  # fmt: skip
_RACED = tuple(
  map(
    modules_lib.named,
    (
      "mlp-tp",
      "mlp-ep",
      "mlp-fsdp, 4 at a time",
      "llama-1b-fsdp",
      "llama-8b-tp",
      "llama-8b-fsdp-a100",
      "llama-8b-fsdp-tp",
      "llama-8b-fsdp-tp, 4 at a time",
      "llama-70b-fsdp-tp",
      "llama-70b-16x8",
      "llama-8b-cp",
      "llama-8b-cp, 4 at a time",
    ),
  )
)


def _tables(
  shelf: modules_lib.Shelf,
) -> Mapping[str, Callable[[], Sequence[table_lib.Table]]]:
  return {
    against_exhaustive.NAME: lambda: [
      against_exhaustive.table(
        shelf,
        (*_MODULES, *_MEETING, *_MORE),
        {**equal_budget.OURS, "autoccl": equal_budget.OTHERS["autoccl"]},
      )
    ],
    growth.NAME: lambda: [growth.table(shelf, equal_budget.OURS)],
    equal_budget.NAME: lambda: equal_budget.parallel_tables(shelf, _RACED),
    ablation.NAME: lambda: ablation.tables(shelf, (*_MODULES, *_CHAINED)),
  }


def main(arguments_: Sequence[str] | None = None) -> None:
  """The command."""
  parser = table_lib.parser("benchmarks.search", __doc__)
  parser.add_argument("--data", type=pathlib.Path)
  parser.add_argument("--only", default="")
  arguments = parser.parse_args(arguments_)
  if arguments.data is not None and not arguments.data.is_dir():
    parser.error(f"there is no folder {arguments.data}")
  makers = _tables(modules_lib.Shelf(arguments.data))
  names = table_lib.names(arguments.only)
  unknown = sorted(set(names) - set(makers))
  if unknown:
    parser.error(
      f"--only={unknown[0]} is no table; choose from {', '.join(makers)}"
    )
  try:
    tables = [t for name in names or makers for t in makers[name]()]
  except errors.CompileError as error:
    sys.exit(f"search: {error}")
  table_lib.show(tables, arguments.format, arguments.csv)


if __name__ == "__main__":
  main()
