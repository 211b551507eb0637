# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Errors on nccl-tests of systems that were unknown when the model was made.

  python -m benchmarks.collectives.unseen

benchmarks/data/unseen has the rows, in the format of nccl_tests.py: all public
tables found after the model was made, of GPUs that it knows, on systems not
reported as broken, under NCCL's own choices. They were predicted before they
were compared. Nothing was fitted to them, and nothing should be; four rules
that they showed to be wrong were fixed (docs/cost_model.md).

Prints the errors of each system and the number of its rows within the 90 %
range of the prediction (costs/uncertainty.py). For systems with enough rows, it
also prints the errors on two thirds of them after calibration with the other
third (calibrated.py).
"""

from __future__ import annotations

from collections.abc import Iterator
import statistics
from typing import Any

from benchmarks import data
from benchmarks import groups
from benchmarks import table as table_lib
from benchmarks.collectives import calibrated
from benchmarks.collectives import nccl_tests
from lagom_xla.costs import uncertainty


def rows() -> list[nccl_tests.Row]:
  """The rows of 64 KiB and more."""
  return nccl_tests.rows(data.FOLDER / "unseen")


def compare() -> Iterator[groups.Group]:
  """Groups by the connection of the GPUs: NVLink, only PCIe, or a network."""
  yield from groups.by_name(
    "unseen systems: ", ((_joined_by(row), row.compared()) for row in rows())
  )


def _joined_by(row: nccl_tests.Row) -> str:
  return row.fabric if row.cluster.node.nvlink else "PCIe alone"


def _is_in_range(row: nccl_tests.Row) -> bool:
  most, least = uncertainty.of_collectives(
    row.cluster, is_between_nodes=row.key.num_nodes > 1
  ).factors
  return least <= row.time_us / row.predict_us() <= most


def _by_system() -> Iterator[dict[str, Any]]:
  after = {
    system.name: groups.of_comparisons(
      system.name, system.comparisons(system.calibration)
    )
    for system in calibrated.systems(rows())
  }
  for found in groups.by_name("", ((r.system, r.compared()) for r in rows())):
    own = [row for row in rows() if row.system == found.name]
    yield {
      **found.row,
      "joined_by": _joined_by(own[-1]),
      "in_range": statistics.fmean(map(_is_in_range, own)),
      "calibrated": getattr(after.get(found.name), "median", None),
      "calibrated_p90": getattr(after.get(found.name), "p90", None),
    }


def main() -> None:
  """Runs the command."""
  arguments = table_lib.parser(
    "benchmarks.collectives.unseen", __doc__
  ).parse_args()
  table = table_lib.Table(
    name="unseen",
    title="Relative errors on systems that the model was not made on",
    columns=table_lib.columns(
      group="",
      joined_by="",
      n="",
      median=".1%",
      p90=".1%",
      in_range=".0%",
      calibrated=".1%",
      calibrated_p90=".1%",
    ),
    rows=list(_by_system()),
  )
  joined = groups.table("The same by what joins the GPUs", compare())
  table_lib.show([table, joined], arguments.format, arguments.csv)


if __name__ == "__main__":
  main()
