# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Merged products: one that XLA makes of several that share an operand.

XLA concatenates the operands that they do not share (DotMerger, in xla/hlo/
transforms/simplifiers). The one product waits for all of these; two strands
that share a weight are coupled by it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from lagom_xla.passes import hlo
from lagom_xla.passes import kernels as kernels_lib

_PASSED_ON = frozenset(["bitcast", "get-tuple-element"])
# How JAX ends the op name of what a program concatenates.
_WRITTEN = "/concatenate"


def find(
  module: hlo.Module, kernels: Mapping[int, kernels_lib.Kernel]
) -> Iterator[kernels_lib.Kernel]:
  """The products of a module that take a concatenation of XLA's.

  Where a module has no op names, those that the program wrote count, too.

  Args:
    module: scheduled.
    kernels: its kernels, by the id of their instruction.
  """
  for computation in module.computations.values():
    for instruction in computation.instructions:
      kernel = kernels.get(instruction.id)
      if kernel is None or kernel.category != "gemm":
        continue
      operands = map(computation.by_id.__getitem__, instruction.operand_ids)
      made_by = [instruction, *(_maker(computation, i) for i in operands)]
      if any(_concatenates(module, i) for i in made_by):
        yield kernel


def _maker(
  computation: hlo.Computation, instruction: hlo.Instruction
) -> hlo.Instruction:
  while instruction.opcode in _PASSED_ON:
    instruction = computation.by_id[instruction.operand_ids[0]]
  return instruction


def _concatenates(module: hlo.Module, instruction: hlo.Instruction) -> bool:
  """Whether a kernel, or a fusion inside it, has XLA concatenate arrays."""
  if instruction.opcode != "fusion":
    # XLA names what it adds after what it is made of.
    is_own = instruction.metadata.op_name.endswith(_WRITTEN)
    return instruction.opcode == "concatenate" and not is_own
  fused = module.computations[instruction.called_computation_ids[0]]
  return any(_concatenates(module, i) for i in fused.instructions)
