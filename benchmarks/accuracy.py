# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""How far the cost model's predictions are from what was measured elsewhere.

    python -m benchmarks.accuracy --data ../shared/data [--format=json]

Reads measurements from a folder, predicts each one, and prints the relative
errors by group. What a folder lacks is left out, and named on stderr. With
--plot=FILE.png it also draws what was predicted over what was measured.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
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
  parser.add_argument("--data", type=pathlib.Path, required=True)
  parser.add_argument("--format", choices=("text", "json"), default="text")
  parser.add_argument("--plot", type=pathlib.Path)
  arguments = parser.parse_args()
  if not arguments.data.is_dir():
    sys.exit(f"accuracy: there is no folder {arguments.data}.")
  found = list(all_groups(arguments.data))
  if arguments.format == "json":
    print(json.dumps({"groups": [g.to_dict() for g in found]}))
  else:
    _show(found)
  if arguments.plot is not None:
    from benchmarks import plot

    plot.draw(found, arguments.plot)


def all_groups(data: pathlib.Path) -> Iterator[groups.Group]:
  """Every group that the data in a folder allows."""
  for path, compare in _parts().items():
    if not (data / path).exists():
      print(f"accuracy: {data} has no {path}; left out", file=sys.stderr)
      continue
    try:
      yield from compare(data / path)
    except errors.CompileError as error:
      print(f"accuracy: {path} left out: {error}", file=sys.stderr)
  yield from paper_facts.groups()


def _parts() -> dict[str, Callable[[pathlib.Path], Iterator[groups.Group]]]:
  """File or folder of the data -> what compares it."""
  return {
    "tables/nccl_2_32_3_choices.csv": tables.nccl_choices,
    "tables/collective_throughput.csv": tables.collectives,
    "tables/matmul_flops.csv": tables.products,
    "pax_a100": lambda path: pax_step.groups(path.parent),
    "hlo/hlo_llama31_8b_bf16_1x8.hlo.xz": xla_step.groups,
  }


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
