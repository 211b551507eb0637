# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""The fit of fabrics' figures (wire.Fabric) to nccl-tests between nodes.

  python -m benchmarks.collectives.fit_networks --data FOLDER [--write]
      [--hold_out]

FOLDER holds nccl_tests/ (see nccl_tests.py). --write writes
lagom_xla/costs/fitted/network.json; --hold_out prints, of each system, the
errors of a fit that did not see it, also by algorithm and protocol, of one that
saw no system of its site, and of one that saw few nodes. network_fit.py says
how they are fitted.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Sequence
import dataclasses
import functools
import json
import pathlib
import sys

from benchmarks import groups
from benchmarks.collectives import nccl_tests
from benchmarks.collectives import network_fit
from lagom_xla.costs import wire

_OUTPUT = (
  pathlib.Path(__file__).resolve().parents[2]
  / "lagom_xla/costs/fitted/network.json"
)
# Whether times scale is judged on more nodes than these.
_FEW_NODES = 4


def held_out(
  rows: Sequence[nccl_tests.Row],
  fold_of: Callable[[str], str] = lambda system: system,
) -> list[tuple[nccl_tests.Row, float]]:
  """Rows between nodes with times by fits that did not see their fold.

  Args:
    rows: of any systems. Folds of which the shipped fit saw nothing are
      predicted by it.
    fold_of: the fold of a system, by its name.
  """
  rows = [row for row in rows if row.cluster.num_nodes > 1]
  seen = {fold_of(system) for system in seen_systems()}

  @functools.cache
  def fitted(fold: str, fabric: str) -> wire.Fabric:
    others = [
      row
      for row in rows
      if row.system in seen_systems() and fold_of(row.system) != fold
    ]
    return network_fit.fit_one(others, fabric)

  def predicted_us(row: nccl_tests.Row) -> float:
    fold = fold_of(row.system)
    if row.key.num_nodes == 1 or fold not in seen:
      return network_fit.predict_us(row)
    return network_fit.predict_us(row, fitted(fold, row.fabric))

  return [(row, predicted_us(row)) for row in rows]


def seen_systems() -> frozenset[str]:
  """The systems of nccl-tests that the shipped figures were fitted to."""
  raw = json.loads(_OUTPUT.read_text(encoding="utf-8"))
  return frozenset(name for names in raw["systems"].values() for name in names)


def beyond(
  rows: Sequence[nccl_tests.Row],
) -> list[tuple[nccl_tests.Row, float]]:
  """Rows of more nodes, with times by a fit that saw none of so many."""
  few = [row for row in rows if 1 < row.key.num_nodes <= _FEW_NODES]
  if not few:
    return []
  fabrics = network_fit.fit(few)
  return [
    (row, network_fit.predict_us(row, fabrics[row.fabric]))
    for row in rows
    if row.key.num_nodes > _FEW_NODES
  ]


def compare(folder: pathlib.Path) -> Iterator[groups.Group]:
  """Groups of nccl_tests.py, each system by a fit without it.

  A group more has the rows of many nodes, by a fit on few. Both are of the
  systems that the shipped fit saw; all others are groups of their own.
  """
  rows, seen = nccl_tests.rows(folder), seen_systems()
  yield from nccl_tests.by_what_fits_saw(
    "nccl-tests, held out", held_out(rows), seen
  )
  many = beyond([row for row in rows if row.system in seen])
  if many:
    yield groups.of_comparisons(
      f"nccl-tests, by a fit on at most {_FEW_NODES} nodes: more nodes",
      [row.comparison(time_us) for row, time_us in many],
    )


def _site(system: str) -> str:
  return system.partition("-")[0]


def _system(row: nccl_tests.Row) -> str:
  return row.system


def _pair(row: nccl_tests.Row) -> str:
  return f"{row.setting.algorithm}.{row.setting.protocol}"


def _print_errors(
  title: str,
  predicted: Sequence[tuple[nccl_tests.Row, float]],
  name_of: Callable[[nccl_tests.Row], str] = _system,
) -> None:
  print(title)
  found: dict[tuple[str, str], list[groups.Comparison]] = {}
  for row, time_us in predicted:
    name = row.fabric, name_of(row)
    found.setdefault(name, []).append(row.comparison(time_us))
  every = [comparison for some in found.values() for comparison in some]
  for (fabric, name), some in (*sorted(found.items()), (("", "all"), every)):
    group = groups.of_comparisons(name, some)
    print(
      f"  {fabric:10} {name:15} n {group.n:4}  median {group.median:6.1%}"
      f"  p90 {group.p90:6.1%}  worst {group.worst:7.1%}"
    )


def _write(
  fabrics: network_fit.Fabrics, rows: Sequence[nccl_tests.Row]
) -> None:
  document = {
    "about": (
      "What fabrics between nodes take beyond NCCL's model, by their names in"
      " cluster files. Names are the fields of wire.Fabric: _us are"
      " microseconds, _gbps 1e9 bytes per second, _efficiency shares."
    ),
    "fitted_by": "benchmarks/collectives/fit_networks.py",
    "fitted_to": (
      "Rows of nccl-tests on public systems, of 64 KiB and more, under NCCL's"
      " own choices."
    ),
    "fitted_how": (
      "Least squares of logarithms of predicted over measured, soft above"
      f" {network_fit.OUTLIER}. InfiniBand's figures are held to where they"
      " start, and stand for RoCE; what its exchanges take stands for all"
      " fabrics. EFA's"
      " and TCPX's figures are held to Slingshot's. TCPX has one system and one"
      " collective, under Ring and Simple, and of its adapters what Google"
      " states. TCPXO has no rows and Slingshot's figures."
    ),
    "num_rows": {
      name: sum(row.fabric == name for row in rows) for name in fabrics
    },
    "systems": {
      name: sorted({row.system for row in rows if row.fabric == name})
      for name in fabrics
    },
    "fabrics": {n: dataclasses.asdict(f) for n, f in fabrics.items()},
  }
  _OUTPUT.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")


def main() -> None:
  """The command."""
  parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
  parser.add_argument("--data", type=pathlib.Path, required=True)
  parser.add_argument("--write", action="store_true")
  parser.add_argument("--hold_out", action="store_true")
  arguments = parser.parse_args()
  folder = arguments.data / "nccl_tests"
  if not folder.is_dir():
    sys.exit(f"fit_networks: there is no folder {folder}.")
  rows = [r for r in nccl_tests.rows(folder) if r.key.num_nodes > 1]
  fabrics = network_fit.fit(rows)
  for name, fabric in fabrics.items():
    print(name, dataclasses.asdict(fabric))
  _print_errors(
    "Fitted",
    [(row, network_fit.predict_us(row, fabrics[row.fabric])) for row in rows],
  )
  if arguments.hold_out:
    by_system = held_out(rows)
    _print_errors("Held out: each system", by_system)
    _print_errors("The same by algorithm and protocol", by_system, _pair)
    _print_errors("Held out: each site", held_out(rows, _site))
    _print_errors(f"Held out: more than {_FEW_NODES} nodes", beyond(rows))
  if arguments.write:
    _write(fabrics, rows)


if __name__ == "__main__":
  main()
