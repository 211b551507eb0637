# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Contention that a job of two ranks measured, beside what is predicted.

What `costs/contention.py` is given is what was measured alone: the kernels'
times, the all-reduce's time and its channels. So only contention is compared.
Both ranks' NCCL kernels are on the one GPU: they take twice the SMs, and the
memory's rate for both.
"""

from __future__ import annotations

import dataclasses
import pathlib
import statistics
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
  from lagom_xla import cluster as cluster_lib
  from lagom_xla.costs import collective as collective_lib
  from lagom_xla.profiling import profile as profile_lib

_NUM_RANKS = 2


def compared(
  folder: pathlib.Path, cluster: cluster_lib.Cluster, *, chunk_bytes: int
) -> dict[str, Any]:
  """What kernels and the all-reduce lost to each other.

  Args:
    folder: with the traces of `rank.PROGRAMS`.
    cluster: two of this GPU.
    chunk_bytes: that a channel hands on at a time.
  """
  from lagom_xla.profiling import profile as profile_lib

  alone = profile_lib.read(folder / "kernels")
  collective = profile_lib.read(folder / "collective")
  both = profile_lib.read(folder / "both")
  cost = _cost(collective, cluster, chunk_bytes)
  return {
    "num_channels": cost.num_channels // _NUM_RANKS,
    "collective_us": cost.time_us,
    "memory_gbps": cost.memory_gbps,
    "kernels": _kernels(alone, both, cost, cluster),
    "collective": _collective(both, cost),
  }


def _cost(
  profile: profile_lib.Profile,
  cluster: cluster_lib.Cluster,
  chunk_bytes: int,
) -> collective_lib.CollectiveCost:
  """What the all-reduce takes of the GPU, both ranks' parts together."""
  from lagom_xla.costs import collective as collective_lib

  (found,) = profile.analysis.collectives
  key = collective_lib.tuning_key(found, cluster)
  setting = dataclasses.replace(
    collective_lib.default_setting(key, cluster),
    num_channels=profile.num_channels[found.name],
    chunk_bytes=chunk_bytes,
  )
  predicted = collective_lib.predict(key, setting, cluster)
  time_us = profile.own_us[found.name]
  return dataclasses.replace(
    predicted,
    time_us=time_us,
    num_channels=_NUM_RANKS * predicted.num_channels,
    # As many bytes in the time that it took here.
    memory_gbps=(
      _NUM_RANKS * predicted.memory_gbps * predicted.time_us / time_us
    ),
  )


def _kernels(
  alone: profile_lib.Profile,
  both: profile_lib.Profile,
  cost: collective_lib.CollectiveCost,
  cluster: cluster_lib.Cluster,
) -> list[dict[str, Any]]:
  """A row for each kernel that ran beside the all-reduce from start to end."""
  from lagom_xla.costs import contention
  from lagom_xla.costs import kernel as kernel_lib
  from lagom_xla.costs import measured as measured_lib
  from lagom_xla.profiling import costing
  from lagom_xla.profiling import profile as profile_lib

  priced = costing.of_profile(alone, cluster).measured
  times: dict[str, list[float]] = {}
  for run in both.kernel_runs:
    if run.share >= profile_lib.COVERED:
      times.setdefault(run.name, []).append(run.time_us)
  rows = []
  for name, beside_us in times.items():
    kernel = both.kernels[name]
    lone_us = priced.work_us.get(measured_lib.work_of(kernel))
    if lone_us is None:
      continue
    lone = priced.kernel(kernel, kernel_lib.predict(kernel, cluster.gpu))
    predicted = contention.beside(lone, cost, cluster.gpu)
    rows.append(
      {
        "kind": kernel.category,
        "shape": kernel.matrix_shape,
        "num_bytes": kernel.num_bytes,
        "num": len(beside_us),
        "lone_us": lone_us,
        "beside_us": statistics.median(beside_us),
        "predicted_us": predicted.kernel_us - lone.gap_us,
      }
    )
  return rows


def _collective(
  both: profile_lib.Profile, cost: collective_lib.CollectiveCost
) -> dict[str, float]:
  (found,) = both.analysis.collectives
  beside_us = both.own_us[found.name]
  return {"lone_us": cost.time_us, "beside_us": beside_us}
