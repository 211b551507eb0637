# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Fits the parameters of fabrics (wire.Fabric) to nccl-tests between nodes.

  python -m benchmarks.collectives.fit_networks --data FOLDER [--write]
      [--hold_out]

--write puts the parameters into lagom_xla/costs/fitted/network.json. --hold_out
prints, for each system in FOLDER/nccl_tests, the errors of a fit that did not
see it, also by algorithm and protocol. The fit uses the systems of the previous
fit again; all others in FOLDER only judge it.

The fabrics with the most systems, InfiniBand and Slingshot, are fitted to their
own rows alone. The parameters of another fabric have a prior at those of the
most similar fabric, which it gets unchanged if it has no rows. RoCE's few rows
count as InfiniBand's. Only all-to-alls show the cost of an exchange, and only
InfiniBand has rows of those.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
import dataclasses
import functools
import math
import pathlib

import numpy as np
from scipy import optimize

from benchmarks import data as data_lib
from benchmarks import groups
from benchmarks.collectives import nccl_tests
from lagom_xla import costs
from lagom_xla.costs import wire

# Fabric -> the most similar one. EFA uses the same plugin as Slingshot
# (aws-ofi-nccl on libfabric), TCPX its own proxy thread. TCPXO has its own
# transport (FasTrak) and no rows here. Published times on two a3-megagpu-8g are
# like Slingshot's, not TCPX's (tests/costs/networks_test.py).
_LIKE = {
  "infiniband": None,
  "slingshot": None,
  "efa": "slingshot",
  "tcpx": "slingshot",
  "tcpxo": "slingshot",
}
# Fabrics that share the parameters of another one, fitted to rows of both.
_SAME = {"roce": "infiniband"}
# InfiniBand's hop starts at NCCL's own, and a post at NCCL's getNetOverhead.
# NCCL's steps of 2.7, 4 and 14 us over the network, less posts, are round trips
# of 14 to 24 us. Of 16 and 20, the start is the one with the smaller held-out
# error, and so is the weight. The efficiency of exchanges is that of NVLink in
# XLA's table (0.90 to 0.94; fitted/collective.json).
_START = {
  "infiniband": wire.Fabric(
    hop_us=1.0,
    message_us=1.0,
    round_trip_us=16.0,
    message_gbps=25.0,
    nic_efficiency=1.0,
    exchange_efficiency=0.92,
    peer_us=2.7,
  ),
  "slingshot": wire.Fabric(
    hop_us=10.0,
    message_us=1.0,
    round_trip_us=60.0,
    message_gbps=20.0,
    nic_efficiency=0.95,
    pcie_efficiency=0.8,
  ),
}
# Documented parameters. Google expects about 150 Gbit/s from each 200 Gbit/s
# card of an A3 High (GKE documentation, "Maximize GPU network bandwidth"). No
# row is large enough to show it.
_STATED = {"tcpx": {"nic_efficiency": 0.75 * wire.MOST_EFFICIENCY}}
# PCIe limits only adapters of 25 GB/s on the PCIe Gen 4 of A100s without a
# common switch. The rows of other fabrics do not show it.
_SHOWS_PCIE = "slingshot"
_HAS_EXCHANGES = "infiniband"
_SHOWN_BY_EXCHANGES = ("exchange_efficiency", "peer_us")
# Weights of the prior on a parameter's logarithm, where a row weighs 1: for the
# fabrics that resemble no other; for the others, chosen among 1, 1.5, 2 and 3
# for the least held-out errors; and a factor for efficiencies, which large rows
# show well.
_PRIOR_WEIGHT = {"infiniband": 3.0, "slingshot": 0.2}
_LIKENESS_WEIGHT = 2.0
_EFFICIENCY_WEIGHT = 5.0
# Larger errors, as logarithms, count linearly.
_OUTLIER = 0.2


def fit(rows: Sequence[nccl_tests.Row]) -> dict[str, wire.Fabric]:
  """Fits every fabric; returns them by name."""
  return {name: fit_one(rows, name) for name in (*_LIKE, *_SAME)}


def fit_one(rows: Sequence[nccl_tests.Row], name: str) -> wire.Fabric:
  """Fits one fabric to its rows and those of the fabrics it builds on."""
  name = _SAME.get(name, name)
  seen = tuple(r for r in rows if _SAME.get(r.fabric, r.fabric) == name)
  like = _LIKE[name]
  start = _START[name] if like is None else fit_one(rows, like)
  if name != _HAS_EXCHANGES:
    infiniband = fit_one(rows, _HAS_EXCHANGES)
    exchanges = {f: getattr(infiniband, f) for f in _SHOWN_BY_EXCHANGES}
    start = dataclasses.replace(start, **exchanges, **_STATED.get(name, {}))
  return _fit(seen, name, start, _PRIOR_WEIGHT.get(name, _LIKENESS_WEIGHT))


@functools.cache
def _fit(
  rows: tuple[nccl_tests.Row, ...], name: str, start: wire.Fabric, weight: float
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
    errors = [
      math.log(row.wire_us(fabric=fabric) / row.time_us) for row in rows
    ]
    return np.concatenate([errors, weights * (x - origin)])

  found = optimize.least_squares(
    residuals,
    origin,
    bounds=(-math.inf, most),
    loss="soft_l1",
    f_scale=_OUTLIER,
  )
  rounded = dataclasses.asdict(figures(found.x))
  return wire.Fabric(**{k: float(f"{v:.3g}") for k, v in rounded.items()})


# Scaling is judged on more nodes than these.
_FEW_NODES = 4


def seen_systems() -> frozenset[str]:
  """The systems of nccl-tests to which the shipped parameters were fitted."""
  found = costs.read_fitted("network")["systems"].values()
  return frozenset(name for names in found for name in names)


def held_out(
  rows: Sequence[nccl_tests.Row],
) -> list[tuple[nccl_tests.Row, float]]:
  """Rows between nodes, with times from fits that did not see their system.

  The shipped fit predicts the systems that it did not see.
  """
  seen = seen_systems()
  rows = [row for row in rows if row.cluster.num_nodes > 1]

  @functools.cache
  def fitted(system: str, fabric: str) -> wire.Fabric:
    others = [r for r in rows if r.system in seen and r.system != system]
    return fit_one(others, fabric)

  def predicted_us(row: nccl_tests.Row) -> float:
    if row.key.num_nodes == 1 or row.system not in seen:
      return row.wire_us()
    return row.wire_us(fabric=fitted(row.system, row.fabric))

  return [(row, predicted_us(row)) for row in rows]


def compare(folder: pathlib.Path) -> Iterator[groups.Group]:
  """Groups of nccl_tests.py, with each system predicted by a fit without it.

  Another group has the rows of many nodes, predicted by a fit to few. Both use
  the systems that the shipped fit saw; all others have their own groups.
  """
  rows, seen = nccl_tests.rows(folder), seen_systems()
  yield from nccl_tests.by_what_fits_saw(
    "nccl-tests, held out", held_out(rows), seen
  )
  rows = [row for row in rows if row.system in seen]
  fabrics = fit([r for r in rows if 1 < r.key.num_nodes <= _FEW_NODES])
  yield groups.of_comparisons(
    f"nccl-tests, by a fit on at most {_FEW_NODES} nodes: more nodes",
    [
      row.compared(row.wire_us(fabric=fabrics[row.fabric]))
      for row in rows
      if row.key.num_nodes > _FEW_NODES
    ],
  )


def _show(
  title: str,
  predicted: Sequence[tuple[nccl_tests.Row, float]],
  name_of: Callable[[nccl_tests.Row], str] = lambda row: row.system,
) -> None:
  groups.show(
    title,
    groups.by_name(
      "",
      (
        (name, row.compared(time_us))
        for row, time_us in predicted
        for name in (f"{row.fabric}, {name_of(row)}", "all")
      ),
    ),
  )


def main() -> None:
  """Fits, reports, and writes the parameters if asked to."""
  arguments = data_lib.arguments(__doc__, "write", "hold_out")
  found = nccl_tests.rows(arguments.data / "nccl_tests")
  rows = [row for row in found if row.key.num_nodes > 1]
  fabrics = fit([row for row in rows if row.system in seen_systems()])
  for name, fabric in fabrics.items():
    print(name, dataclasses.asdict(fabric))
  _show("Fitted", [(r, r.wire_us(fabric=fabrics[r.fabric])) for r in rows])
  if arguments.hold_out:
    by_system = held_out(rows)
    _show("Held out: each system", by_system)
    _show(
      "The same by algorithm and protocol",
      by_system,
      lambda row: f"{row.setting.algorithm}.{row.setting.protocol}",
    )
  if arguments.write:
    document = costs.read_fitted("network")
    seen = [row for row in rows if row.system in seen_systems()]
    of = {name: [r for r in seen if r.fabric == name] for name in fabrics}
    document["num_rows"] = {name: len(of[name]) for name in fabrics}
    document["systems"] = {
      name: sorted({row.system for row in of[name]}) for name in fabrics
    }
    document["fabrics"] = {n: dataclasses.asdict(f) for n, f in fabrics.items()}
    data_lib.write_fitted("network", document)


if __name__ == "__main__":
  main()
