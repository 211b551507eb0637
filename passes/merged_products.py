# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Merged products: one that XLA makes of several that share an operand.

XLA concatenates the operands that they do not share (DotMerger, in xla/hlo/
transforms/simplifiers). The one product waits for all of these; two strands
that share a weight are coupled by it. XLA leaves apart what is large.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
import itertools

from lagom_xla.passes import dependencies
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
    for instruction, kernel in _products(computation, kernels):
      made_by = [instruction, *_makers(computation, instruction)]
      if any(_concatenates(module, i) for i in made_by):
        yield kernel


def apart(
  module: hlo.Module, kernels: Mapping[int, kernels_lib.Kernel]
) -> Iterator[kernels_lib.Kernel]:
  """Of each two products that XLA could merge and has not, the smaller one.

  They share an operand, sum over the same of it, and do not wait for each
  other.

  Args:
    module: scheduled.
    kernels: its kernels, by the id of their instruction.
  """
  for computation in module.computations.values():
    alike: dict[tuple[int, int], list[kernels_lib.Kernel]] = {}
    for instruction, kernel in _products(computation, kernels):
      if kernel.matrix_shape is not None and kernel.matrix_shape[0] == 1:
        summed = kernel.matrix_shape[3]
        for maker in {i.id for i in _makers(computation, instruction)}:
          alike.setdefault((maker, summed), []).append(kernel)
    graph = dependencies.of(computation)
    for products in alike.values():
      for one, other in itertools.combinations(products, 2):
        # In the order of the schedule: only the later one may wait.
        if not graph.depends(other.instruction_id, one.instruction_id):
          yield min(one, other, key=lambda kernel: kernel.num_bytes)


def _products(
  computation: hlo.Computation, kernels: Mapping[int, kernels_lib.Kernel]
) -> Iterator[tuple[hlo.Instruction, kernels_lib.Kernel]]:
  for instruction in computation.instructions:
    kernel = kernels.get(instruction.id)
    if kernel is not None and kernel.category == "gemm":
      yield instruction, kernel


def _makers(
  computation: hlo.Computation, instruction: hlo.Instruction
) -> Iterator[hlo.Instruction]:
  """What made the operands of an instruction."""
  for operand_id in instruction.operand_ids:
    yield _maker(computation, computation.by_id[operand_id])


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
