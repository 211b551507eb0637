# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Which fusions XLA gives to Triton after it has scheduled a module.

XLA's loop emitter reads across memory where a transpose moves the innermost
dimension far out. Its last pass over fusions gives such transposes to Triton,
which goes through tiles (ShouldRewriteLoopTransposeFusion in XLA's
fusion_block_level_rewriter.cc). A schedule does not show that yet.
"""

from __future__ import annotations

import itertools

from lagom_xla.passes import hlo

# Element types that Triton lacks.
_COMPLEX = ("c64", "c128")


def apply(module: hlo.Module) -> hlo.Module:
  """The module, its fusions of the kinds that they run as; edits it."""
  for computation in module.computations.values():
    for instruction in computation.instructions:
      if instruction.opcode == "fusion" and instruction.fusion_kind == "kLoop":
        (fused_id,) = instruction.called_computation_ids
        if _is_slow_transpose(module.computations[fused_id]):
          instruction.fusion_kind = "kCustom"
  return module


def _is_slow_transpose(fused: hlo.Computation) -> bool:
  """Whether a loop swaps the innermost dimension with one far out."""
  root = fused.root
  if root.opcode != "transpose" or hlo.element_type(root.shape) in _COMPLEX:
    return False
  minor_to_major = list(root.shape.layout.minor_to_major)
  if minor_to_major != sorted(minor_to_major, reverse=True):
    return False
  (operand,) = fused.operands(root)
  if operand.opcode == "bitcast":
    # Triton's tiles have sizes that are powers of two.
    if operand.shape.dimensions[-1].bit_count() != 1:
      return False
    (operand,) = fused.operands(operand)
  order = _moved(root)
  return (
    operand.opcode == "parameter"
    and len(order) > 2
    and order[order[-1]] == len(order) - 1
    and order[-1] < len(order) - 2
  )


def _moved(transpose: hlo.Instruction) -> list[int]:
  """Its permutation, with dimensions that stay together counted as one."""
  shape = transpose.shape.dimensions
  dims = [
    d for d, size in zip(transpose.dimensions, shape, strict=True) if size > 1
  ]
  ranks = [sorted(dims).index(d) for d in dims]
  heads = [
    rank
    for before, rank in itertools.pairwise([-2, *ranks])
    if rank != before + 1
  ]
  return [sorted(heads).index(head) for head in heads]
