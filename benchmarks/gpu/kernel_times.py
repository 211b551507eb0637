# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Kernel times that a trace has, beside what the cost model predicts.

The model is the one that ships, for this GPU's data sheet, with no figure of
this machine in it.
"""

from __future__ import annotations

import dataclasses
import pathlib
import statistics
from typing import TYPE_CHECKING, Any

from benchmarks.gpu import live_gpu
from benchmarks.gpu import part as part_lib
from benchmarks.gpu import traced_step

if TYPE_CHECKING:
  from lagom_xla import cluster as cluster_lib
  from lagom_xla.profiling import profile as profile_lib

# Of the kernels that take the most time, so many are told one by one.
_NUM_KERNELS = 40


def measure(folder: pathlib.Path) -> dict[str, Any]:
  """Compares the kernels of the example's step."""
  live_gpu.check()
  trace = folder / traced_step.TRACE
  if not trace.exists():
    raise part_lib.NotMeasuredError("The part traced_step left no trace.")
  from lagom_xla import cluster as cluster_lib
  from lagom_xla.profiling import profile as profile_lib

  cluster = cluster_lib.parse(live_gpu.cluster_name())
  return compared(profile_lib.read(trace), cluster)


def compared(
  profile: profile_lib.Profile, cluster: cluster_lib.Cluster
) -> dict[str, Any]:
  """A step's kernels and its time, predicted and measured.

  Args:
    profile: of the step.
    cluster: that it ran on.
  """
  from lagom_xla.costs import measured as measured_lib
  from lagom_xla.costs import step as step_lib
  from lagom_xla.profiling import costing

  costed = costing.of_profile(profile, cluster)
  with measured_lib.pricing(None):
    predicted = step_lib.Step(profile.analysis, cluster)
  with measured_lib.pricing(costed.measured):
    replayed = step_lib.Step(profile.analysis, cluster)
  rows = _by_kernel(profile, predicted)
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
    "kernels": rows[:_NUM_KERNELS],
    "not_run": len(costed.not_run),
  }


def _by_kernel(
  profile: profile_lib.Profile, predicted: Any
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
  return sorted(
    rows, key=lambda row: row["measured_us"] * row["executions"], reverse=True
  )
