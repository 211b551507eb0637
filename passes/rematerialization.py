# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Rematerialization: what XLA computes again where memory is short.

XLA schedules a module, and then, if the schedule's peak is over a limit,
computes some values again later in place of keeping them (HloRematerialization
in xla/service/gpu/gpu_compiler.cc). Passes see the schedule before that; what
runs is the module of a compile to the end.

The limit is that of the scheduler (GetSchedulerMemoryLimit in
xla/service/gpu/gpu_hlo_schedule.cc), for a compile without a GPU:

    limit = (80 % of device memory - arguments and results) * slop factor

A step in the process that trains has XLA's allocator's share of the memory in
place of the 80 %.
"""

from __future__ import annotations

from lagom_xla.passes import hlo
from lagom_xla.passes.schedule import aliasing
from lagom_xla.passes.schedule import live_bytes

# XLA's own slop factor (DebugOptions, xla/debug_options_flags.cc).
DEFAULT_SLOP_PERCENT = 95

# Of device memory, what XLA plans with where it has no allocator.
_PLANNED_SHARE = 0.8
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


def limit_bytes(
  module: hlo.Module, device_bytes: int, slop_percent: float
) -> float:
  """What the values between arguments and results may take at their peak.

  Args:
    module: scheduled.
    device_bytes: memory of the device.
    slop_percent: XLA's slop factor.
  """
  available = _PLANNED_SHARE * device_bytes - _interface_bytes(module)
  return available * slop_percent / 100


def is_short_of_memory(
  module: hlo.Module,
  device_bytes: int,
  slop_percent: float = DEFAULT_SLOP_PERCENT,
) -> bool:
  """Whether XLA is likely to compute values of a schedule again.

  Args:
    module: scheduled, not yet rematerialized.
    device_bytes: memory of the device.
    slop_percent: XLA's slop factor.
  """
  limit = limit_bytes(module, device_bytes, slop_percent)
  # The arguments count against both: XLA tracks them with all other values.
  peak = live_bytes.peak_bytes(module, aliasing.of(module))
  return peak > _SHORT_FROM * limit


def _interface_bytes(module: hlo.Module) -> int:
  """Arguments and results; where one is donated to the other, once."""
  entry = module.entry
  arguments = sum(
    hlo.shape_bytes(i.shape)
    for i in entry.instructions
    if i.opcode == "parameter"
  )
  result = entry.root.shape
  donated = 0
  for alias in module.proto.input_output_alias.entries:
    shape = result
    for index in alias.output_shape_index:
      shape = shape.tuple_shapes[index]
    donated += hlo.shape_bytes(shape)
  return arguments + hlo.shape_bytes(result) - donated
