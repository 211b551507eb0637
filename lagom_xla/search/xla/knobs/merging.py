# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""How large products are that XLA merges where they share an operand.

It merges those of which one moves no more than a limit (`merged_products.py`).
"""

from __future__ import annotations

from collections.abc import Iterator

from lagom_xla.costs import kernel as kernel_lib
from lagom_xla.costs import step as step_lib
from lagom_xla.passes import kernels as kernels_lib
from lagom_xla.passes import merged_products
from lagom_xla.search.xla import candidates
from lagom_xla.search.xla.knobs import value as value_lib

_OPTION = "xla_gpu_dot_merger_threshold_mb"

# XLA's default, a lower limit and a higher one.
_MIB, _LESS_MIB, _MORE_MIB = 64, 32, 128


def values(step: step_lib.Step) -> Iterator[value_lib.Value]:
  """The limits that can act on a step."""
  module, kernels = step.analysis.module, step.analysis.kernels
  merged = merged_products.find(module, kernels)
  # A smaller one is made of products that are merged all the same.
  if any(kernel.num_bytes > _LESS_MIB * 2**20 for kernel in merged):
    yield _limit(_LESS_MIB)
  # It is compiled from the beginning, which takes long.
  least_us = candidates.LEAST_GAIN * step.timeline(step.default).step_time_us
  if _merging_saves_us(step) >= least_us:
    yield _limit(_MORE_MIB)


def _merging_saves_us(step: step_lib.Step) -> float:
  """What products that the higher limit would merge take less as one.

  By the model alone, whatever a profile says of them apart, and without what
  it takes to concatenate their operands.
  """

  def time_us(kernel: kernels_lib.Kernel) -> float:
    return kernel_lib.predict(kernel, step.cluster.gpu).time_us

  saved_us = 0.0
  for pair in merged_products.apart(
    step.analysis.module, step.analysis.kernels
  ):
    one, other = pair.products
    # Those that are smaller XLA leaves apart for another reason.
    if _MIB < min(one.num_bytes, other.num_bytes) / 2**20 <= _MORE_MIB:
      apart_us = time_us(one) + time_us(other)
      saved_us += one.executions * max(apart_us - time_us(pair.merged), 0.0)
  return saved_us


def _limit(mib: int) -> value_lib.Value:
  return value_lib.Value(
    label=f"products merged up to {mib} MiB", options={_OPTION: mib}
  )
