# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""nccl-tests on systems that the model was not made on.

  python -m benchmarks.collectives.unseen

benchmarks/data/unseen has the rows, in the format of nccl_tests.py: all public
tables that were found when the model stood, of GPUs that it knows, on systems
that were not said to be broken, under NCCL's own choices. They were predicted
before they were compared. No figure was fitted to them, and none is to be; two
rules that they showed to be wrong were mended (docs/cost_model.md).

Prints the errors of each system, how many of its rows the 90 % range of their
prediction holds (costs/uncertainty.py), and where it has enough rows the errors
of the other two thirds when a third calibrated it (calibrated.py).
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Sequence
import pathlib

from benchmarks import data
from benchmarks import groups
from benchmarks import table as table_lib
from benchmarks.collectives import calibrated
from benchmarks.collectives import nccl_tests
from lagom_xla.costs import uncertainty

_FOLDER = pathlib.Path(data.__file__).with_name("unseen")


def rows() -> list[nccl_tests.Row]:
  """The rows of 64 KiB and more."""
  return nccl_tests.rows(_FOLDER)


def compare() -> Iterator[groups.Group]:
  """Groups by what joins the GPUs: NVLink, PCIe alone, or a network."""
  yield from _grouped("unseen systems: ", _joined_by)


def _joined_by(row: nccl_tests.Row) -> str:
  return row.fabric if row.cluster.node.nvlink else "PCIe alone"


def _grouped(
  title: str, name_of: Callable[[nccl_tests.Row], str]
) -> Iterator[groups.Group]:
  found: dict[str, list[groups.Comparison]] = {}
  for row in rows():
    comparison = row.comparison(row.predict_us())
    found.setdefault(name_of(row), []).append(comparison)
  for name in sorted(found):
    yield groups.of_comparisons(title + name, found[name])


def _share_in_range(system: str) -> float:
  """The share of a system's rows that their predictions' ranges hold."""
  held = []
  for row in rows():
    if row.system == system:
      most, least = uncertainty.of_collectives(
        row.cluster, is_between_nodes=row.key.num_nodes > 1
      ).factors
      held.append(least <= row.time_us / row.predict_us() <= most)
  return sum(held) / len(held)


_COLUMNS = (
  table_lib.Column("name"),
  table_lib.Column("joined_by"),
  table_lib.Column("n"),
  table_lib.Column("median", ".1%"),
  table_lib.Column("p90", ".1%"),
  table_lib.Column("in_range", ".0%"),
  table_lib.Column("calibrated", ".1%"),
  table_lib.Column("calibrated_p90", ".1%"),
)


def _table(systems: Sequence[groups.Group]) -> table_lib.Table:
  joined_by = {row.system: _joined_by(row) for row in rows()}
  after = {
    system.name: groups.of_comparisons(
      system.name, system.comparisons(system.calibration)
    )
    for system in calibrated.systems(rows())
  }
  return table_lib.Table(
    name="unseen",
    title="Relative errors on systems that the model was not made on",
    columns=_COLUMNS,
    rows=[
      {
        **system.to_dict(),
        "joined_by": joined_by[system.name],
        "in_range": _share_in_range(system.name),
        "calibrated": getattr(after.get(system.name), "median", None),
        "calibrated_p90": getattr(after.get(system.name), "p90", None),
      }
      for system in systems
    ],
  )


def main() -> None:
  """The command."""
  argparse.ArgumentParser(description=__doc__.partition("\n")[0]).parse_args()
  systems = list(_grouped("", lambda row: row.system))
  table_lib.show([_table(systems)], "text")
  groups.show(compare())


if __name__ == "__main__":
  main()
