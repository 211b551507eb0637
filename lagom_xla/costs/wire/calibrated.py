# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""The time of a lone collective on a machine that was calibrated.

A prediction t(S) of S bytes falls into what the collective takes however short
it is, L = t(1 byte) under the same setting, and what its bytes add, t(S) - L.
Calibration multiplies the first and divides the second:

    t = latency_factor * latency_factors[path] * L
      + (t(S) - L) / (rate_factor * rate_factors[path])

A path is how NCCL moves the bytes (path.py): plugins, adapters and versions
differ in what a flag of LL takes, and in what a chunk of Simple does.

This knows nothing of how t comes about, so the equations of paths and fabrics
and the calibration of a site do not get into each other's way. NCCL's choices
do not see it: NCCL would not either.
"""

from __future__ import annotations

import functools

from lagom_xla import cluster as cluster_lib
from lagom_xla.costs import nccl
from lagom_xla.costs.wire import path as path_lib
from lagom_xla.costs.wire import timing


def time_us(
  cluster: cluster_lib.Cluster,
  communicator: nccl.Communicator,
  kind: str,
  num_bytes: int,
  setting: nccl.Setting,
  paths: path_lib.Paths | None = None,
  fabric: path_lib.Fabric | None = None,
) -> float:
  """Run time of a lone collective, calibrated if its cluster is.

  Args:
    cluster: where it runs.
    communicator: who takes part.
    kind: XLA's name of the collective.
    num_bytes: as NCCL counts them (see nccl/choice.py).
    setting: how it runs.
    paths: the parameters; those fitted for the cluster's GPU if not given.
    fabric: the network's; those fitted for the cluster's if not given.

  Raises:
    ValueError: no such kind, or NCCL cannot run the setting here.
  """
  us = timing.time_us(
    cluster, communicator, kind, num_bytes, setting, paths, fabric
  )
  if cluster.calibration is None or not us:
    return us
  factors = cluster.calibration.of(communicator.num_nodes)
  least_us = _latency_us(cluster, communicator, kind, setting)
  path = path_lib.path_name(cluster, communicator, kind, setting)
  return calibrated_us(factors, path, us, min(least_us, us))


def calibrated_us(
  factors: cluster_lib.Factors, path: str, us: float, latency_us: float
) -> float:
  """A predicted time with its factors.

  Args:
    factors: of the collective's reach.
    path: how its bytes move, by `path_name`.
    us: the whole prediction.
    latency_us: the part that it would take for a byte; at most `us`.
  """
  latency_factor = factors.latency_factor * factors.latency_factors.get(path, 1)
  rate_factor = factors.rate_factor * factors.rate_factors.get(path, 1)
  return latency_factor * latency_us + (us - latency_us) / rate_factor


def most_speedup(
  cluster: cluster_lib.Cluster, communicator: nccl.Communicator
) -> float:
  """How many times faster than predicted a collective can be; at least 1."""
  if cluster.calibration is None:
    return 1.0
  factors = cluster.calibration.of(communicator.num_nodes)
  rate = factors.rate_factor * max((1.0, *factors.rate_factors.values()))
  latency = factors.latency_factor * min(
    (1.0, *factors.latency_factors.values())
  )
  return max(1.0, rate, 1 / latency)


@functools.lru_cache(maxsize=4096)
def _latency_us(
  cluster: cluster_lib.Cluster,
  communicator: nccl.Communicator,
  kind: str,
  setting: nccl.Setting,
) -> float:
  return timing.time_us(cluster, communicator, kind, 1, setting)
