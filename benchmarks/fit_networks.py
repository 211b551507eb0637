# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""The fit of fabrics' figures (wire.Fabric) to nccl-tests between nodes.

  python -m benchmarks.fit_networks --data FOLDER [--write] [--hold_out]

FOLDER holds nccl_tests/ (see nccl_tests.py). --write writes
lagom_xla/costs/fitted/network.json; --hold_out prints, of each system, the
errors of a fit that did not see it, and of one that saw no system of its site.

The figures of the fabrics with the most systems, InfiniBand and Slingshot, are
fitted to their rows alone; those of another are held to the figures of the
fabric most like it, which also stand for it where it has no rows, or none that
a fit may see. RoCE's few rows are taken for InfiniBand's. Only all-to-alls show
what an exchange takes, and only InfiniBand has rows of those.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Mapping, Sequence
import dataclasses
import json
import math
import pathlib
import sys

import numpy as np
from scipy import optimize

from benchmarks import groups
from benchmarks import nccl_tests
from lagom_xla.costs import wire

_OUTPUT = (
  pathlib.Path(__file__).resolve().parent.parent
  / "lagom_xla/costs/fitted/network.json"
)
# In the order in which they are fitted: fabric -> the one it is like. EFA runs
# through the same plugin as Slingshot (aws-ofi-nccl on libfabric), TCPX through
# a proxy thread of its own.
_LIKE = {
  "infiniband": None,
  "slingshot": None,
  "efa": "slingshot",
  "tcpx": "slingshot",
  "tcpxo": "tcpx",
}
# Fabrics that have another one's figures, by rows of both.
_SAME = {"roce": "infiniband"}
# NCCL's own latencies are InfiniBand's, so 1 us is left; chosen among 1, 2 and
# 3 us for the least errors held out, as is the weight. What exchanges take is
# as on NVLink in XLA's table (0.90 to 0.94; fitted/collective.json).
_START = {
  "infiniband": wire.Fabric(
    hop_us=1.0,
    message_us=1.0,
    flush_us=1.0,
    message_gbps=25.0,
    nic_efficiency=1.0,
    exchange_efficiency=0.92,
    peer_us=2.7,
  ),
  "slingshot": wire.Fabric(
    hop_us=10.0,
    message_us=10.0,
    flush_us=10.0,
    message_gbps=20.0,
    nic_efficiency=0.95,
    pcie_efficiency=0.8,
  ),
}
# Only where an adapter of 25 GB/s sits on the PCIe Gen 4 of an A100 without a
# switch of their own does PCIe bind; the other fabrics' rows do not show it.
_SHOWS_PCIE = "slingshot"
_SHOWN_BY_EXCHANGES = ("exchange_efficiency", "peer_us")
# How much a figure's logarithm is held to its start, where a row's weighs 1:
# of the fabrics that are like no other; of the others, chosen among 1, 1.5, 2
# and 3 for the least errors held out; and as a factor efficiencies', which
# large rows show well.
_PRIOR_WEIGHT = {"infiniband": 3.0, "slingshot": 0.2}
_LIKENESS_WEIGHT = 2.0
_EFFICIENCY_WEIGHT = 5.0
# Whether times scale is judged on more nodes than these.
_FEW_NODES = 4
# Errors beyond this, as logarithms, count linearly.
_OUTLIER = 0.2

Fabrics = Mapping[str, wire.Fabric]


def fit(rows: Sequence[nccl_tests.Row]) -> dict[str, wire.Fabric]:
  """Every fabric, by its name."""
  found: dict[str, wire.Fabric] = {}
  for name, like in _LIKE.items():
    seen = [row for row in rows if _SAME.get(row.fabric, row.fabric) == name]
    start = _START[name] if like is None else found[like]
    weight = _PRIOR_WEIGHT.get(name, _LIKENESS_WEIGHT)
    if found:
      exchanges = {
        f: getattr(found["infiniband"], f) for f in _SHOWN_BY_EXCHANGES
      }
      start = dataclasses.replace(start, **exchanges)
    found[name] = _fit(seen, name, start, weight)
  return found | {name: found[same] for name, same in _SAME.items()}


def _fit(
  rows: Sequence[nccl_tests.Row], name: str, start: wire.Fabric, weight: float
) -> wire.Fabric:
  fields = [field.name for field in dataclasses.fields(wire.Fabric)]
  if name != _SHOWS_PCIE:
    start = dataclasses.replace(start, pcie_efficiency=1.0)
    fields.remove("pcie_efficiency")
  if not any(row.key.kind == "all-to-all" for row in rows):
    fields = [field for field in fields if field not in _SHOWN_BY_EXCHANGES]
  if not rows:
    return start
  is_share = np.array([field.endswith("efficiency") for field in fields])
  origin = np.log([getattr(start, field) for field in fields])
  weights = weight * np.where(is_share, _EFFICIENCY_WEIGHT, 1.0)
  most = np.where(is_share, math.log(wire.MOST_EFFICIENCY), math.inf)

  def figures(x: np.ndarray) -> wire.Fabric:
    values = dict(zip(fields, np.exp(x).tolist(), strict=True))
    return dataclasses.replace(start, **values)

  def residuals(x: np.ndarray) -> np.ndarray:
    fabric = figures(x)
    errors = [math.log(predict_us(row, fabric) / row.time_us) for row in rows]
    return np.concatenate([errors, weights * (x - origin)])

  found = optimize.least_squares(
    residuals,
    origin,
    bounds=(-math.inf, most),
    loss="soft_l1",
    f_scale=_OUTLIER,
  )
  return _rounded(figures(found.x))


def _rounded(fabric: wire.Fabric) -> wire.Fabric:
  return wire.Fabric(
    **{k: float(f"{v:.3g}") for k, v in dataclasses.asdict(fabric).items()}
  )


def predict_us(row: nccl_tests.Row, fabric: wire.Fabric | None = None) -> float:
  """A row's time on a fabric; on the fitted one if none is given."""
  return wire.time_us(
    row.cluster,
    row.key.communicator,
    row.key.kind,
    row.key.num_bytes,
    row.setting,
    fabric=fabric,
  )


def held_out(
  rows: Sequence[nccl_tests.Row],
  fold_of: Callable[[nccl_tests.Row], str] = lambda row: row.system,
) -> list[tuple[nccl_tests.Row, float]]:
  """Rows between nodes with times by fits that did not see their fold."""
  rows = [row for row in rows if row.cluster.num_nodes > 1]
  fits = {
    fold: fit([row for row in rows if fold_of(row) != fold])
    for fold in {fold_of(row) for row in rows if row.key.num_nodes > 1}
  }
  return [
    (row, predict_us(row, fits[fold_of(row)][row.fabric]))
    if row.key.num_nodes > 1
    else (row, predict_us(row))
    for row in rows
  ]


def beyond(
  rows: Sequence[nccl_tests.Row], most_nodes: int = _FEW_NODES
) -> list[tuple[nccl_tests.Row, float]]:
  """Rows of more nodes, with times by a fit that saw none of so many."""
  few = [row for row in rows if 1 < row.key.num_nodes <= most_nodes]
  fabrics = fit(few)
  return [
    (row, predict_us(row, fabrics[row.fabric]))
    for row in rows
    if row.key.num_nodes > most_nodes
  ]


def compare(folder: pathlib.Path) -> Iterator[groups.Group]:
  """Groups of nccl_tests.py, each system by a fit without it.

  A group more has the rows of many nodes, by a fit on few.
  """
  rows = nccl_tests.rows(folder)
  yield from nccl_tests.grouped("nccl-tests, held out", held_out(rows))
  many = beyond(rows)
  if many:
    yield groups.of_comparisons(
      f"nccl-tests, by a fit on at most {_FEW_NODES} nodes: more nodes",
      [row.comparison(time_us) for row, time_us in many],
    )


def _site(row: nccl_tests.Row) -> str:
  return row.system.partition("-")[0]


def _print_errors(
  title: str, predicted: Sequence[tuple[nccl_tests.Row, float]]
) -> None:
  print(title)
  names = sorted({(row.fabric, row.system) for row, _ in predicted})
  for fabric, system in (*names, ("", "all")):
    group = groups.of_comparisons(
      system,
      [
        row.comparison(time_us)
        for row, time_us in predicted
        if system in (row.system, "all")
      ],
    )
    print(
      f"  {fabric:10} {system:14} n {group.n:4}  median {group.median:6.1%}"
      f"  p90 {group.p90:6.1%}  worst {group.worst:7.1%}"
    )


def _write(fabrics: Fabrics, rows: Sequence[nccl_tests.Row]) -> None:
  document = {
    "about": (
      "What fabrics between nodes take beyond NCCL's model, by their names in"
      " cluster files. Names are the fields of wire.Fabric: _us are"
      " microseconds, _gbps 1e9 bytes per second, _efficiency shares."
    ),
    "fitted_by": "benchmarks/fit_networks.py",
    "fitted_to": (
      "Rows of nccl-tests on public systems, of 64 KiB and more, under NCCL's"
      " own choices."
    ),
    "fitted_how": (
      "Least squares of logarithms of predicted over measured, soft above"
      f" {_OUTLIER}. InfiniBand's figures are held to where they start, and"
      " stand for RoCE; what its exchanges take stands for all fabrics. EFA's"
      " and TCPX's figures are held to Slingshot's. TCPX has one system and one"
      " collective. TCPXO has no rows and TCPX's figures."
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
  fabrics = fit(rows)
  for name, fabric in fabrics.items():
    print(name, dataclasses.asdict(fabric))
  _print_errors(
    "Fitted", [(row, predict_us(row, fabrics[row.fabric])) for row in rows]
  )
  if arguments.hold_out:
    _print_errors("Held out: each system", held_out(rows))
    _print_errors("Held out: each site", held_out(rows, _site))
    _print_errors(f"Held out: more than {_FEW_NODES} nodes", beyond(rows))
  if arguments.write:
    _write(fabrics, rows)


if __name__ == "__main__":
  main()
