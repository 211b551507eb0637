# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Figures of fabrics, from rows of nccl-tests between nodes.

The figures of the fabrics with the most systems, InfiniBand and Slingshot, are
fitted to their rows alone; those of another are held to the figures of the
fabric most like it, which also stand for it where it has no rows, or none that
a fit may see. RoCE's few rows are taken for InfiniBand's. Only all-to-alls show
what an exchange takes, and only InfiniBand has rows of those.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
import dataclasses
import functools
import math

import numpy as np
from scipy import optimize

from benchmarks.collectives import nccl_tests
from lagom_xla.costs import wire

# Fabric -> the one it is like. EFA runs through the same plugin as Slingshot
# (aws-ofi-nccl on libfabric), TCPX through a proxy thread of its own. TCPXO has
# a transport of its own (FasTrak) and no rows here; on two a3-megagpu-8g it was
# published to run as Slingshot does, and not as TCPX
# (tests/costs/networks_test.py).
_LIKE = {
  "infiniband": None,
  "slingshot": None,
  "efa": "slingshot",
  "tcpx": "slingshot",
  "tcpxo": "slingshot",
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
# What is stated of a fabric. Google expects about 150 Gbit/s of each 200 Gbit/s
# card of an A3 High (GKE documentation, "Maximize GPU network bandwidth"), and
# no row is large enough to show it.
_STATED = {"tcpx": {"nic_efficiency": 0.75 * wire.MOST_EFFICIENCY}}
# Only where an adapter of 25 GB/s sits on the PCIe Gen 4 of an A100 without a
# switch of their own does PCIe bind; the other fabrics' rows do not show it.
_SHOWS_PCIE = "slingshot"
_HAS_EXCHANGES = "infiniband"
_SHOWN_BY_EXCHANGES = ("exchange_efficiency", "peer_us")
# How much a figure's logarithm is held to its start, where a row's weighs 1:
# of the fabrics that are like no other; of the others, chosen among 1, 1.5, 2
# and 3 for the least errors held out; and as a factor efficiencies', which
# large rows show well.
_PRIOR_WEIGHT = {"infiniband": 3.0, "slingshot": 0.2}
_LIKENESS_WEIGHT = 2.0
_EFFICIENCY_WEIGHT = 5.0
# Errors beyond this, as logarithms, count linearly.
OUTLIER = 0.2

Fabrics = Mapping[str, wire.Fabric]


def fit(rows: Sequence[nccl_tests.Row]) -> dict[str, wire.Fabric]:
  """Every fabric, by its name."""
  return {name: fit_one(rows, name) for name in (*_LIKE, *_SAME)}


def fit_one(rows: Sequence[nccl_tests.Row], name: str) -> wire.Fabric:
  """One fabric, from its rows and those of the fabrics that it rests on."""
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
  rows: tuple[nccl_tests.Row, ...],
  name: str,
  start: wire.Fabric,
  weight: float,
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
    f_scale=OUTLIER,
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
