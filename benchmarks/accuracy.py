# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""The cost model's errors on figures that were measured elsewhere.

    python -m benchmarks.accuracy [--data FOLDER] [--format=text|json]
        [--plot=FILE.png]

Predicts each figure and prints the relative errors by group. Tables of figures
come with the benchmarks (benchmarks/data); modules and traces of whole steps do
not, and are read from the folder that --data names. What is not there is left
out, and named on stderr. --plot draws what was predicted over what was
measured.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Mapping
import json
import os
import pathlib
import sys

import rich.console
import rich.table

from benchmarks import groups
from benchmarks import paper_facts
from benchmarks import pax_step
from benchmarks import tables
from benchmarks import xla_step
from lagom_xla import errors


def main() -> None:
  """The command."""
  parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
  parser.add_argument("--data", type=pathlib.Path)
  parser.add_argument("--format", choices=("text", "json"), default="text")
  parser.add_argument("--plot", type=pathlib.Path)
  arguments = parser.parse_args()
  if arguments.data is not None and not arguments.data.is_dir():
    sys.exit(f"accuracy: there is no folder {arguments.data}.")
  found = list(all_groups(arguments.data))
  if arguments.format == "json":
    print(json.dumps({"groups": [g.to_dict() for g in found]}))
  else:
    _show(found)
  if arguments.plot is not None:
    from benchmarks import plot

    plot.draw(found, arguments.plot)


def all_groups(data: pathlib.Path | None = None) -> Iterator[groups.Group]:
  """Every group that can be compared here.

  Args:
    data: the folder with modules and traces; None leaves their groups out.
  """
  yield from tables.nccl_choices()
  yield from tables.collectives()
  yield from tables.products()
  for name, compare in _STEPS.items():
    if data is None or not (data / name).exists():
      _leave_out(name, f"{data} has none" if data else "it needs --data FOLDER")
      continue
    try:
      yield from compare(data / name)
    except errors.CompileError as error:
      _leave_out(name, str(error))
  yield from paper_facts.groups()


# File or folder of --data -> what compares it.
_STEPS: Mapping[str, Callable[[pathlib.Path], Iterator[groups.Group]]] = {
  "pax_a100": pax_step.groups,
  "hlo/hlo_llama31_8b_bf16_1x8.hlo.xz": xla_step.groups,
}


def _leave_out(name: str, reason: str) -> None:
  print(f"accuracy: {name} left out: {reason}", file=sys.stderr)


def _show(found: list[groups.Group]) -> None:
  table = rich.table.Table(box=None)
  for column in ("group", "n", "median", "p90", "worst", "worst case"):
    table.add_column(column)
  for group in found:
    table.add_row(
      group.name,
      str(group.n),
      *(f"{100 * e:.1f} %" for e in (group.median, group.p90, group.worst)),
      group.worst_case,
    )
  rich.console.Console(width=160).print(table)


if __name__ == "__main__":
  os.environ.setdefault("JAX_PLATFORMS", "cpu")
  os.environ.setdefault("JAX_SKIP_CUDA_CONSTRAINTS_CHECK", "1")
  os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
  main()
