# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""The memory limit: what a schedule may hold beside arguments and results.

XLA's scheduler keeps to it, and the rematerialization after that goes by it
(GetSchedulerMemoryLimit in xla/service/gpu/gpu_hlo_schedule.cc):

    limit = (base - arguments and results) * slop factor

Ahead of time the base is 80 % of the device's memory. In the process that
trains it is what JAX's allocator may take, with nothing off: 75 % of the
device's memory, or XLA_PYTHON_CLIENT_MEM_FRACTION of it
(jaxlib/py_client.cc).
"""

from __future__ import annotations

from lagom_xla.passes import hlo

# Of xla_gpu_memory_limit_slop_factor (xla/debug_options_flags.cc).
DEFAULT_SLOP_PERCENT = 95

_BASE_PERCENT = 80


def of(
  module: hlo.Module,
  device_bytes: int,
  slop_percent: float = DEFAULT_SLOP_PERCENT,
) -> float:
  """The limit of a module that is compiled ahead of time.

  Args:
    module: whose arguments and results come off.
    device_bytes: memory of the device.
    slop_percent: xla_gpu_memory_limit_slop_factor.

  Returns:
    In bytes; below zero where arguments and results are larger than the base.
  """
  base_bytes = device_bytes * _BASE_PERCENT // 100
  return (base_bytes - _interface_bytes(module)) * slop_percent / 100


def _interface_bytes(module: hlo.Module) -> int:
  """Arguments and results; where one is donated to the other, once.

  XLA counts those in the host's memory, too.
  """
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
