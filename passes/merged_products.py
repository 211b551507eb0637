# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Merged products: one that XLA makes of several that share an operand.

XLA concatenates the operands that they do not share (DotMerger, in xla/hlo/
transforms/simplifiers). The one product waits for all of these; two strands
that share a weight are coupled by it. XLA leaves apart what is large.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
import dataclasses
import itertools

from lagom_xla.passes import dependencies
from lagom_xla.passes import hlo
from lagom_xla.passes import kernels as kernels_lib

# How JAX ends the op name of what a program concatenates.
_WRITTEN = "/concatenate"


def find(
  module: hlo.Module, kernels: Mapping[int, kernels_lib.Kernel]
) -> Iterator[kernels_lib.Kernel]:
  """The products of a scheduled module that take a concatenation of XLA's.

  Where a module has no op names, those that the program wrote count, too.
  Kernels are by the id of their instruction.
  """
  for computation in module.computations.values():
    for instruction, kernel in _products(computation, kernels):
      made_by = [
        computation.behind(operand, ("bitcast", "get-tuple-element"))
        for operand in computation.operands(instruction)
      ]
      if any(_concatenates(module, i) for i in (instruction, *made_by)):
        yield kernel


@dataclasses.dataclass(frozen=True, kw_only=True)
class Apart:
  """Two products that XLA could merge and has not.

  Attributes:
    products: both, in the order of the schedule.
    merged: the one that they would be, without what concatenates operands.
  """

  products: tuple[kernels_lib.Kernel, kernels_lib.Kernel]
  merged: kernels_lib.Kernel


def apart(
  module: hlo.Module, kernels: Mapping[int, kernels_lib.Kernel]
) -> Iterator[Apart]:
  """Products that share an operand, sum over the same of it, and do not wait.

  Of several that share one, those that follow each other in the schedule.
  """
  for computation in module.computations.values():
    # By an array, as what made it and its place in that, and what it sums over.
    sharing: dict[tuple[int, int, int], list[kernels_lib.Kernel]] = {}
    shapes: dict[tuple[int, int, int], hlo.Shape] = {}
    for instruction, kernel in _products(computation, kernels):
      if kernel.matrix_shape is None or kernel.matrix_shape[0] != 1:
        continue
      k = kernel.matrix_shape[3]
      taken: dict[tuple[int, int, int], hlo.Shape] = {}
      for operand in computation.operands(instruction):
        operand = computation.behind(operand, ("bitcast",))
        if operand.opcode == "get-tuple-element":
          made_by = operand.operand_ids[0]
          taken[made_by, operand.tuple_index, k] = operand.shape
        else:
          taken[operand.id, 0, k] = operand.shape
      shapes |= taken
      for key in taken:
        sharing.setdefault(key, []).append(kernel)
    graph = dependencies.of(computation)
    for key, products in sharing.items():
      for one, other in itertools.pairwise(products):
        merged = _as_one(one, other, shapes[key])
        depends = graph.depends(other.instruction_id, one.instruction_id)
        if merged is not None and not depends:
          yield Apart(products=(one, other), merged=merged)


def _as_one(
  one: kernels_lib.Kernel, other: kernels_lib.Kernel, shared: hlo.Shape
) -> kernels_lib.Kernel | None:
  """Two products as one; None where they do not share the whole array."""
  assert one.matrix_shape is not None and other.matrix_shape is not None
  _, m, n, k = one.matrix_shape
  _, other_m, other_n, _ = other.matrix_shape
  num_shared = hlo.num_elements(shared)
  if num_shared == m * k == other_m * k:
    matrix_shape = (1, m, n + other_n, k)
  elif num_shared == n * k == other_n * k:
    matrix_shape = (1, m + other_m, n, k)
  else:
    return None
  return dataclasses.replace(
    one,
    matrix_shape=matrix_shape,
    flops=one.flops + other.flops,
    num_bytes=one.num_bytes + other.num_bytes - hlo.shape_bytes(shared),
    result_elements=one.result_elements + other.result_elements,
  )


def _products(
  computation: hlo.Computation, kernels: Mapping[int, kernels_lib.Kernel]
) -> Iterator[tuple[hlo.Instruction, kernels_lib.Kernel]]:
  for instruction in computation.instructions:
    kernel = kernels.get(instruction.id)
    if kernel is not None and kernel.category == "gemm":
      yield instruction, kernel


def _concatenates(module: hlo.Module, instruction: hlo.Instruction) -> bool:
  """Whether a kernel, or a fusion inside it, has XLA concatenate arrays."""
  if instruction.opcode != "fusion":
    # XLA names what it adds after what it is made of.
    is_own = instruction.metadata.op_name.endswith(_WRITTEN)
    return instruction.opcode == "concatenate" and not is_own
  fused = module.computations[instruction.called_computation_ids[0]]
  return any(_concatenates(module, i) for i in fused.instructions)
