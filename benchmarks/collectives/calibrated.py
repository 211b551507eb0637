# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Systems calibrated by a third of their nccl-tests, judged on the rest.

Of each system's rows (nccl_tests.py) every third size of each collective, the
second of each three, is given to `lagom_xla.calibrate`, and the other two are
predicted. Rows of several sets of software on one system are calibrated
together, as `lagom-xla calibrate *.log` would. A system with fewer than two
sizes of a collective has nothing to calibrate by, and is left out.

  python -m benchmarks.collectives.calibrated --data FOLDER

prints each system's errors before and after, and its figures.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
import dataclasses
import pathlib

from benchmarks import groups
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
  """A system, calibrated by the rows of one fold and judged by the others."""

  name: str
  fabric: str
  calibration: cluster_lib.Calibration
  judged: Sequence[samples_lib.Sample]

  @property
  def spans_nodes(self) -> bool:
    """Whether its collectives go between nodes, as NCCL counts them."""
    return any(sample.key.num_nodes > 1 for sample in self.judged)

  def comparisons(
    self, calibration: cluster_lib.Calibration
  ) -> list[groups.Comparison]:
    """The judged rows beside predictions."""
    return [
      groups.Comparison(
        what=(
          f"{self.name}, {sample.key.kind} of {sample.key.num_bytes} B, us"
        ),
        measured=sample.measured_us,
        predicted=fit_lib.predicted_us(sample, calibration),
      )
      for sample in self.judged
    ]


def systems(rows: Sequence[nccl_tests.Row]) -> Iterator[System]:
  """Each system with enough rows."""
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
    folds = fit_lib.fold_of(samples)
    pairs = list(zip(samples, folds, strict=True))
    seen = [sample for sample, fold in pairs if fold == _FITTED_FOLD]
    judged = [sample for sample, fold in pairs if fold != _FITTED_FOLD]
    if seen:
      yield System(
        name=name,
        fabric=fabrics[name],
        calibration=fit_lib.fit(seen),
        judged=judged,
      )


def compare(folder: pathlib.Path) -> Iterator[groups.Group]:
  """All judged rows, those of one node, and of several by fabric.

  Systems that no shipped fit saw are groups of their own.
  """
  seen = lone_collective.seen_systems() | fit_networks.seen_systems()
  found = list(systems(nccl_tests.rows(folder)))
  for title, is_seen in ((_TITLE, True), (f"{_TITLE}, no fit saw", False)):
    yield from _grouped(
      title,
      [
        (system, system.comparisons(system.calibration))
        for system in found
        if (system.name in seen) == is_seen
      ],
    )


def _grouped(
  title: str, found: Sequence[tuple[System, Sequence[groups.Comparison]]]
) -> Iterator[groups.Group]:
  by_name: dict[str, list[groups.Comparison]] = {}
  for system, comparisons in found:
    names = ["all systems", "one node"]
    if system.spans_nodes:
      names[1:] = ["several nodes", f"several nodes, {system.fabric}"]
    for name in names:
      by_name.setdefault(name, []).extend(comparisons)
  for name, comparisons in sorted(by_name.items()):
    yield groups.of_comparisons(f"{title}: {name}", comparisons)


def main() -> None:
  """The command."""
  parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
  parser.add_argument("--data", type=pathlib.Path, required=True)
  folder = parser.parse_args().data / "nccl_tests"
  found = list(systems(nccl_tests.rows(folder)))
  bare = cluster_lib.Calibration()
  for system in found:
    before, after = (
      groups.of_comparisons(system.name, system.comparisons(calibration))
      for calibration in (bare, system.calibration)
    )
    factors = system.calibration.of(2 if system.spans_nodes else 1)
    print(
      f"{system.name:14} n {after.n:4}  median {before.median:6.1%} ->"
      f" {after.median:6.1%}  p90 {before.p90:6.1%} -> {after.p90:6.1%} "
      f" latency x {factors.latency_factor:5.3g}, rate x"
      f" {factors.rate_factor:5.3g}, {len(factors.rate_factors)} paths"
    )
  uncalibrated = [(system, system.comparisons(bare)) for system in found]
  groups.show(_grouped("the same rows, uncalibrated", uncalibrated))
  groups.show(compare(folder))


if __name__ == "__main__":
  main()
