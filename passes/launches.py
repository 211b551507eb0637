# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Launches: the kernels of a whole module, in the order of its schedule.

Another schedule of the same module launches mostly the same kernels, which need
not be looked at again.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from lagom_xla.passes import hlo
from lagom_xla.passes import kernels as kernels_lib

Kernels = Mapping[int, kernels_lib.Kernel]


def find(
  module: hlo.Module,
  sequences: Iterable[hlo.Computation],
  *,
  apart: Collection[int],
  known: tuple[hlo.Module, Kernels] | None,
) -> Kernels:
  """All kernels that run, by instruction id, in schedule order.

  Args:
    module: scheduled.
    sequences: the computations that run as sequences of kernels.
    apart: ids of instructions that are something else, such as host copies.
    known: another schedule of the module, and its kernels.
  """
  found: dict[int, kernels_lib.Kernel] = {}
  for computation in sequences:
    if known is not None and _has(known[0], module, computation):
      ids = (i.id for i in computation.instructions)
      found.update((id_, known[1][id_]) for id_ in ids if id_ in known[1])
      continue
    for instruction in computation.instructions:
      if instruction.id in apart or not kernels_lib.launches_kernel(
        module, instruction
      ):
        continue
      kernel = None if known is None else known[1].get(instruction.id)
      if kernel is None or not _is_of(kernel, module, computation, instruction):
        kernel = kernels_lib.of_instruction(module, computation, instruction)
      found[instruction.id] = kernel
  return found


def _has(
  other: hlo.Module, module: hlo.Module, computation: hlo.Computation
) -> bool:
  """Whether another schedule has a computation, and runs it as often."""
  theirs = other.computations.get(computation.id)
  return (
    theirs is not None
    and theirs.proto is computation.proto
    and other.executions.get(computation.id)
    == module.executions[computation.id]
  )


def _is_of(
  kernel: kernels_lib.Kernel,
  module: hlo.Module,
  computation: hlo.Computation,
  instruction: hlo.Instruction,
) -> bool:
  """Whether nothing changed of a kernel that another schedule has."""
  return (
    kernel.name == instruction.name
    and kernel.computation == computation.name
    and kernel.executions == module.executions[computation.id]
  )
