# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Kernels beside collectives in real steps: what they lose.

Kernels that are alike in all that the cost model sees are a class. Measured is
the median time of a class beside one collective, over its median time beside
none; predicted is `contention.beside` of predicted costs. Classes shorter than
8 us are mostly launch, and left out.

Several collectives of the A100 step spend most of their time on waiting for
ranks that come late: the all-gather of 28 MB that starts the step takes 374 to
2,225 us, the first reduce-scatter 2,293 to 2,600 us, against some 120 and 270
for their bytes. What waits takes SMs but draws no bandwidth, and a module
does not show what waits. So kernels beside them are slowed less than predicted,
by up to the collective's share of the bandwidth, a third.

Products lose more than predicted: 1.55 to 2.12 times their lone time beside
all-gathers of 24 channels, where their waves (10 for 8, or 14 for 11) and the
bytes that they must move make 1.25 to 1.31. What kernels bound by memory lose
beside two of these all-gathers is 1.13 and 1.56; a product beside the same two
loses 1.50 and 1.36 times that. So products are slowed as if memory took all
their time. A likely reason, which this data cannot prove, is that their tiles
come from L2 several times each, while the model counts bytes of HBM only.
"""

from __future__ import annotations

import collections
from collections.abc import Iterator
import pathlib
import statistics

from benchmarks import groups as groups_lib
from benchmarks import traced_step
from lagom_xla.costs import contention

_LEAST_LONE_US = 8.0
_LEAST_SAMPLES = 2


def groups(folder: pathlib.Path) -> Iterator[groups_lib.Group]:
  """The comparison of the step in a folder."""
  trace = traced_step.TracedStep(folder)
  yield groups_lib.of_comparisons(
    f"{trace.name}: kernels beside collectives", slowdowns(trace)
  )


def slowdowns(trace: traced_step.TracedStep) -> list[groups_lib.Comparison]:
  """Time of each class beside each collective, over its lone time."""
  step = trace.step
  alone = collections.defaultdict(list)
  example = {}
  for name, times in trace.lone_us.items():
    class_ = traced_step.class_of(trace.kernels[name])
    alone[class_].extend(times)
    example[class_] = trace.kernels[name]
  beside = collections.defaultdict(list)
  for (kernel, collective), times in trace.beside_us.items():
    beside[traced_step.class_of(trace.kernels[kernel]), collective].extend(
      times
    )
  comparisons = []
  for (class_, name), times in beside.items():
    lone_us = statistics.median(alone[class_] or [0.0])
    if lone_us < _LEAST_LONE_US:
      continue
    if min(len(times), len(alone[class_])) < _LEAST_SAMPLES:
      continue
    kernel = traced_step.without_gap(step.kernel_cost(example[class_]))
    slowed = contention.beside(
      kernel,
      traced_step.predicted(step, trace.collectives[name]),
      step.cluster.gpu,
    )
    comparisons.append(
      groups_lib.Comparison(
        what=f"{example[class_].name} beside {name}",
        measured=statistics.median(times) / lone_us,
        predicted=slowed.kernel_us / kernel.time_us,
      )
    )
  return comparisons
