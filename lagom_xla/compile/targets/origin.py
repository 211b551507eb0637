# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""The platform that an optimized module was compiled for, by marks in it.

XLA's backends leave different things in a module: other fusions, other library
calls, other order. What was optimized for a CPU or a TPU says nothing about a
GPU. No field of the proto names the platform, but each backend has fields of
its own in the `backend_config` of its instructions.
"""

from __future__ import annotations

from lagom_xla import errors
from lagom_xla.passes import hlo

# Seen in modules of jaxlib 0.10.2 for CPUs (xla/service/cpu/
# backend_config.proto), and in dumps of libtpu.
_CPU_FIELDS = frozenset(["outer_dimension_partitions", "onednn_matmul_config"])
_TPU_FIELDS = frozenset(["scoped_memory_configs", "window_config"])
_TPU_CALLS = frozenset(["tpu_custom_call"])


def check_is_gpu(module: hlo.Module) -> None:
  """Checks that an optimized module bears no mark of another platform.

  Raises:
    TargetError: it does.
  """
  for computation in module.computations.values():
    for instruction in computation.instructions:
      platform = _platform(module, instruction)
      if platform is not None:
        raise errors.TargetError(
          f"{module.name} was optimized for {platform} (by {instruction.name}"
          f" in {computation.name}), and says nothing of GPUs: give the step"
          " itself, or what XLA dumps of it before_optimizations."
        )


def _platform(module: hlo.Module, instruction: hlo.Instruction) -> str | None:
  """The platform other than GPUs that an instruction is for, if any."""
  if instruction.custom_call_target in _TPU_CALLS:
    return "TPUs"
  config = module.backend_config(instruction)
  if not _CPU_FIELDS.isdisjoint(config):
    return "CPUs"
  return None if _TPU_FIELDS.isdisjoint(config) else "TPUs"
