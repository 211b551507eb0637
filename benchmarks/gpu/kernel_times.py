# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Kernel times that traces have, beside what the cost model predicts.

The model is the one that ships, for this GPU's data sheet, with no figure of
this machine in it. Beside a collective, what `costs/contention.py` is given is
what was measured alone: the kernels' times, the all-reduce's time and its
channels. So only contention is compared there.
"""

from __future__ import annotations

import dataclasses
import pathlib
import statistics
from typing import Any

from lagom_xla import cluster as cluster_lib
from lagom_xla.costs import collective as collective_lib
from lagom_xla.costs import contention
from lagom_xla.costs import kernel as kernel_lib
from lagom_xla.costs import measured as measured_lib
from lagom_xla.costs import step as step_lib
from lagom_xla.profiling import costing
from lagom_xla.profiling import profile as profile_lib

# Of the kernels that take the most time, so many are told one by one.
_NUM_KERNELS = 40
_NUM_RANKS = 2


def compared(trace: pathlib.Path, cluster_name: str) -> dict[str, Any]:
  """A traced step's kernels and its time, predicted and measured."""
  cluster = cluster_lib.parse(cluster_name)
  profile = profile_lib.read(trace)
  costed = costing.of_profile(profile, cluster)
  with measured_lib.pricing(None):
    predicted = step_lib.Step(profile.analysis, cluster)
  with measured_lib.pricing(costed.measured):
    replayed = step_lib.Step(profile.analysis, cluster)
  return {
    "cluster": cluster.name,
    "step_us": {
      "measured": profile.step_time_us,
      "predicted": predicted.timeline(predicted.default).step_time_us,
      "replayed with measured kernels": replayed.timeline(
        replayed.default
      ).step_time_us,
    },
    "gap_us": {
      "measured": profile.gap_us,
      "predicted": statistics.median(
        predicted.kernel_cost(k).gap_us for k in profile.kernels.values()
      ),
    },
    "by_kind": [dataclasses.asdict(ratio) for ratio in costed.ratios],
    "kernels": _by_kernel(profile, predicted)[:_NUM_KERNELS],
    "not_run": len(costed.not_run),
  }


def _by_kernel(
  profile: profile_lib.Profile, predicted: step_lib.Step
) -> list[dict[str, Any]]:
  """A row for each kernel that ran alone, the longest in a step first."""
  rows = []
  for name, times_us in profile.lone_us.items():
    kernel = profile.kernels[name]
    cost = predicted.kernel_cost(kernel)
    rows.append(
      {
        "name": name,
        "kind": kernel.category,
        "pattern": kernel.pattern,
        "shape": kernel.matrix_shape,
        "element_type": kernel.element_type,
        "num_bytes": kernel.num_bytes,
        "executions": kernel.executions,
        "num_blocks": cost.num_blocks,
        "measured_us": statistics.median(times_us),
        "predicted_us": cost.run_us,
      }
    )
  return sorted(rows, key=lambda row: -row["measured_us"] * row["executions"])


def compared_beside(
  folder: pathlib.Path, cluster_name: str, *, chunk_bytes: int
) -> dict[str, Any]:
  """What kernels and an all-reduce of two ranks on a GPU lost to each other.

  Args:
    folder: with the traces of `ranks.PROGRAMS`.
    cluster_name: two of this GPU.
    chunk_bytes: that a channel hands on at a time.
  """
  cluster = cluster_lib.parse(cluster_name)
  alone, collective, both = (
    profile_lib.read(folder / name)
    for name in ("kernels", "collective", "both")
  )
  cost = _cost(collective, cluster, chunk_bytes)
  (found,) = both.analysis.collectives
  return {
    "num_channels": cost.num_channels // _NUM_RANKS,
    "collective_us": cost.time_us,
    "memory_gbps": cost.memory_gbps,
    "kernels": _kernels_beside(alone, both, cost, cluster),
    "collective": {
      "lone_us": cost.time_us,
      "beside_us": both.own_us[found.name],
    },
  }


def _cost(
  profile: profile_lib.Profile,
  cluster: cluster_lib.Cluster,
  chunk_bytes: int,
) -> collective_lib.CollectiveCost:
  """What the all-reduce takes of the GPU, both ranks' parts together."""
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


def _kernels_beside(
  alone: profile_lib.Profile,
  both: profile_lib.Profile,
  cost: collective_lib.CollectiveCost,
  cluster: cluster_lib.Cluster,
) -> list[dict[str, Any]]:
  """A row for each kernel that ran beside the all-reduce from start to end."""
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
