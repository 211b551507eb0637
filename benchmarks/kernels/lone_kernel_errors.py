# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Kernels of traced steps where they ran alone, beside the model.

Kernels that are alike in all that the cost model sees are a class. Measured is
the median time of a class where it ran beside no collective, times how often it
runs per step; gaps between kernels are in neither figure.
"""

from __future__ import annotations

import collections
from collections.abc import Iterator
import pathlib
import statistics

from benchmarks import groups as groups_lib
from benchmarks.steps import traced_step
from lagom_xla.costs import measured as measured_lib
from lagom_xla.passes import kernels as kernels_lib

_LEAST_SAMPLES = 2


def groups(folder: pathlib.Path) -> Iterator[groups_lib.Group]:
  """Lone products and lone other kernels of the step in a folder."""
  trace = traced_step.TracedStep(folder)
  found: dict[bool, list[groups_lib.Comparison]] = {True: [], False: []}
  for kernels, times in _classes(trace):
    kernel = kernels[0]
    runs = sum(k.executions for k in kernels)
    alone = traced_step.without_gap(trace.step.kernel_cost(kernel))
    found[kernel.category == "gemm"].append(
      groups_lib.Comparison(
        what=f"{kernel.name}, us per step",
        measured=statistics.median(times) * runs,
        predicted=alone.time_us * runs,
      )
    )
  for is_product, name in (
    (True, "lone products"),
    (False, "lone other kernels"),
  ):
    if found[is_product]:
      yield groups_lib.of_comparisons(
        f"{trace.name}: {name}", found[is_product]
      )


def _classes(
  trace: traced_step.TracedStep,
) -> Iterator[tuple[list[kernels_lib.Kernel], list[float]]]:
  """Kernels that are alike, with their lone times."""
  alike: dict[measured_lib.Work, list[kernels_lib.Kernel]] = (
    collections.defaultdict(list)
  )
  # What these take depends on how often their indices repeat.
  of_data = {kernel.name for kernel in trace.colliding_scatters}
  for kernel in trace.kernels.values():
    if kernel.name not in of_data:
      alike[measured_lib.work_of(kernel)].append(kernel)
  for kernels in alike.values():
    times = [us for k in kernels for us in trace.lone_us.get(k.name, ())]
    if len(times) >= _LEAST_SAMPLES and statistics.median(times) > 0:
      yield kernels, times
