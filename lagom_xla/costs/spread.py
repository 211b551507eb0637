# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Spreads of the model's errors on measurements, by part of the model.

fitted/errors.json has, for each part of the model, what 90 % of its errors are
within, over figures that no fit saw where there are such. benchmarks/errors.py
writes it.
"""

from __future__ import annotations

from collections.abc import Mapping
import dataclasses
import functools
import json
import math
import pathlib

from lagom_xla import cluster as cluster_lib

_FITTED = pathlib.Path(__file__).with_name("fitted") / "errors.json"

# The percentile of fewer figures says little: such a fabric gets no smaller a
# spread than all fabrics together.
LEAST_FIGURES = 20


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Spread:
  """Errors of a part of the model, as ln(measured / predicted).

  Attributes:
    groups: of what, in the words of `python -m benchmarks.accuracy`.
    n: how many figures.
    median: of the errors' size.
    p90: the 90th percentile of that.
    low: the 5th percentile of the errors, 0 at most.
    bias: the median error; above 0 where the model is too fast.
    high: the 95th percentile of the errors, 0 at least.
    is_held_out: whether no fit saw the figures.
  """

  groups: tuple[str, ...]
  n: int
  median: float
  p90: float
  low: float
  bias: float
  high: float
  is_held_out: bool

  @property
  def factors(self) -> tuple[float, float]:
    """What a prediction may have to be multiplied by, the larger first."""
    return math.exp(self.high), math.exp(self.low)


@functools.cache
def spreads() -> Mapping[str, Spread]:
  """The spreads of fitted/errors.json, by part."""
  raw = json.loads(_FITTED.read_text(encoding="utf-8"))
  return {
    part: Spread(**(figures | {"groups": tuple(figures["groups"])}))
    for part, figures in raw["parts"].items()
  }


def of_collectives(
  cluster: cluster_lib.Cluster, *, is_between_nodes: bool
) -> Spread:
  """How well collectives of 64 KiB and more are known on a cluster.

  Between nodes it is the spread of the cluster's fabric; that of all fabrics
  where that is larger and the fabric has fewer than `LEAST_FIGURES` figures, or
  none. Within nodes it is that of NVLink; no fit has rows of GPUs that PCIe
  alone joins, for which that of all fabrics stands in. Where the cluster was
  calibrated, it is the spread of systems that were calibrated by a third of
  their rows, over the other rows, if that is smaller: few rows calibrate a
  system badly, and nobody has to use what they give.

  Args:
    cluster: which.
    is_between_nodes: whether the collectives span nodes.
  """
  is_near = not is_between_nodes and cluster.node.nvlink is not None
  part = "within_nodes" if is_near else "between_nodes"
  fabric = cluster.node.fabric if is_between_nodes else ""
  found = _spread(part, fabric)
  if _is_calibrated(cluster, is_between_nodes=is_between_nodes):
    calibrated = _spread(f"{part}.calibrated", fabric)
    return min(found, calibrated, key=lambda spread: spread.p90)
  return found


def _spread(part: str, fabric: str) -> Spread:
  """Of a fabric, or of all where it is hardly known."""
  pooled = spreads()[part]
  own = spreads().get(f"{part}.{fabric}")
  if own is None or (own.n < LEAST_FIGURES and own.p90 < pooled.p90):
    return pooled
  return own


def _is_calibrated(
  cluster: cluster_lib.Cluster, *, is_between_nodes: bool
) -> bool:
  if cluster.calibration is None:
    return False
  factors = cluster.calibration.of(2 if is_between_nodes else 1)
  return factors != cluster_lib.Factors()
