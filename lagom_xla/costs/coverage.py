# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Coverage of a step by a profile: how much of its time was measured."""

from __future__ import annotations

import collections
from collections.abc import Iterator, Mapping

from lagom_xla.costs import step as step_lib


def measured_shares(step: step_lib.Step) -> Mapping[str, float]:
  """By kind of kernel, then of collective: the share of its time measured.

  Of the time that they take alone, with NCCL's own settings.
  """
  total_us: dict[str, float] = collections.defaultdict(float)
  known_us: dict[str, float] = collections.defaultdict(float)
  for kind, time_us, is_measured in _parts(step):
    total_us[kind] += time_us
    known_us[kind] += time_us if is_measured else 0.0
  return {kind: known_us[kind] / us for kind, us in total_us.items() if us}


def _parts(step: step_lib.Step) -> Iterator[tuple[str, float, bool]]:
  """Kind, time per step and whether it was measured."""
  for kernel in step.analysis.kernels.values():
    cost = step.kernel_cost(kernel)
    time_us = cost.run_us * kernel.executions
    yield kernel.category, time_us, cost.source == "measured"
  keys = {} if step.measured is None else step.measured.keys
  for key, executions in step.executions.items():
    time_us = step.predict(key, step.default[key]).time_us * executions
    yield key.kind, time_us, key in keys
