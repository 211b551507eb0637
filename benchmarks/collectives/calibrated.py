# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Errors of systems calibrated with a third of their nccl-tests rows.

For each system (nccl_tests.py), `lagom_xla.calibrate` gets every third size of
each collective, the second of each three. The others are predicted and judged.
Rows of several software versions on one system are calibrated together, like
`lagom-xla calibrate *.log`. Systems with fewer than two sizes of a collective
cannot be calibrated and are skipped.

  python -m benchmarks.collectives.calibrated --data FOLDER

prints the errors of each system and of all, before and after.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
import dataclasses
import pathlib

from benchmarks import groups
from benchmarks import table as table_lib
from benchmarks.collectives import fit_networks
from benchmarks.collectives import lone_collective
from benchmarks.collectives import nccl_tests
from lagom_xla import cluster as cluster_lib
from lagom_xla.calibrate import fit as fit_lib
from lagom_xla.calibrate import samples as samples_lib

_TITLE = "nccl-tests, calibrated on a third"
_FITTED_FOLD = 1


@dataclasses.dataclass(frozen=True, kw_only=True)
class System:
  """A system, calibrated with one fold of its rows and judged on the others."""

  name: str
  fabric: str
  calibration: cluster_lib.Calibration
  judged: Sequence[samples_lib.Sample]

  def comparisons(
    self, calibration: cluster_lib.Calibration
  ) -> list[groups.Comparison]:
    """Comparisons of the judged rows with predictions."""
    return [
      groups.Comparison(
        f"{self.name}, {sample.key.kind} of {sample.key.num_bytes} B, us",
        sample.measured_us,
        fit_lib.predicted_us(sample, calibration),
      )
      for sample in self.judged
    ]

  @property
  def group_names(self) -> Sequence[str]:
    """Names of the system's groups."""
    if all(sample.key.num_nodes == 1 for sample in self.judged):
      return "all systems", "one node"
    return "all systems", "several nodes", f"several nodes, {self.fabric}"


def systems(rows: Sequence[nccl_tests.Row]) -> Iterator[System]:
  """All systems with enough rows."""
  fabrics = {row.system: row.fabric for row in rows}
  for name in sorted(fabrics):
    samples = [
      samples_lib.sample(
        cluster=row.cluster,
        key=row.key,
        measured_us=row.time_us,
        where=name,
        # One thread launches for all GPUs of one node (nccl_tests.py).
        gpus_per_thread=row.key.num_ranks if row.cluster.num_nodes == 1 else 1,
      )
      for row in rows
      if row.system == name
    ]
    pairs = list(zip(samples, fit_lib.fold_of(samples), strict=True))
    if seen := [sample for sample, fold in pairs if fold == _FITTED_FOLD]:
      yield System(
        name=name,
        fabric=fabrics[name],
        calibration=fit_lib.fit(seen),
        judged=[sample for sample, fold in pairs if fold != _FITTED_FOLD],
      )


def compare(folder: pathlib.Path) -> Iterator[groups.Group]:
  """Groups of judged rows: all, one node, and several nodes by fabric.

  Systems that no shipped fit saw have their own groups.
  """
  seen = lone_collective.seen_systems() | fit_networks.seen_systems()
  found = list(systems(nccl_tests.rows(folder)))
  for title, is_seen in ((_TITLE, True), (f"{_TITLE}, no fit saw", False)):
    yield from groups.by_name(
      f"{title}: ",
      (
        (name, comparison)
        for system in found
        if (system.name in seen) == is_seen
        for comparison in system.comparisons(system.calibration)
        for name in system.group_names
      ),
    )


def main() -> None:
  """Runs the command."""
  parser = table_lib.parser("benchmarks.collectives.calibrated", __doc__)
  parser.add_argument("--data", type=table_lib.folder, required=True)
  arguments = parser.parse_args()
  folder = arguments.data / "nccl_tests"
  found = list(systems(nccl_tests.rows(folder)))
  uncalibrated = cluster_lib.Calibration()
  compared = [
    (f"{title}: {name}", comparison)
    for title in ("uncalibrated", "calibrated")
    for system in found
    for comparison in system.comparisons(
      system.calibration if title == "calibrated" else uncalibrated
    )
    for name in (system.name, *system.group_names)
  ]
  table = groups.table(
    "Systems before and after, and by whether a fit saw them",
    [*groups.by_name("", compared), *compare(folder)],
  )
  table_lib.show([table], arguments.format, arguments.csv)


if __name__ == "__main__":
  main()
