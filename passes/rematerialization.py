# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Rematerialization: what XLA computes again where memory is short.

XLA schedules a module, and then, if the schedule's peak is over the memory
limit (`schedule/memory_limit.py`), computes some values again later in place of
keeping them (HloRematerialization in xla/service/gpu/gpu_compiler.cc). Passes
see the schedule before that; what runs is the module of a compile to the end.
"""

from __future__ import annotations

from lagom_xla.passes import hlo
from lagom_xla.passes.schedule import aliasing
from lagom_xla.passes.schedule import live_bytes
from lagom_xla.passes.schedule import memory_limit

# From this share of the limit on a schedule counts as short of memory: live
# bytes are an estimate (live_bytes.py). On a step that was compiled for GPUs of
# less and less memory it was 1.4 % above the peak that XLA itself gives, and
# XLA began to compute again where its limit was 1 to 3 % below the estimate.
_SHORT_FROM = 0.95
# What XLA appends to the name of a value that it computes again.
_SUFFIX = ".remat"


def recomputed(module: hlo.Module) -> tuple[str, ...]:
  """Names of the instructions that XLA runs again, as often as they stand."""
  return tuple(
    instruction.name
    for computation_id in module.executions
    for instruction in module.computations[computation_id].instructions
    if _SUFFIX in instruction.name
  )


def is_short_of_memory(
  module: hlo.Module,
  device_bytes: int,
  slop_percent: float = memory_limit.DEFAULT_SLOP_PERCENT,
) -> bool:
  """Whether XLA is likely to compute values of a schedule again.

  Args:
    module: scheduled, not yet rematerialized.
    device_bytes: memory of the device.
    slop_percent: XLA's slop factor.
  """
  limit = memory_limit.of(module, device_bytes, slop_percent)
  # Arguments are taken off the limit and count in the peak, too: this pass
  # tracks them with all other values, unlike the scheduler.
  peak = live_bytes.peak_bytes(module, aliasing.of(module))
  return peak > _SHORT_FROM * limit
