# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Pattern of access: in which order a kernel goes through memory."""

from __future__ import annotations

from collections.abc import Sequence

from lagom_xla.passes import hlo


def of_parts(
  computation: hlo.Computation, parts: Sequence[hlo.Instruction]
) -> str:
  """The costliest pattern of a kernel's instructions; see `kernels.Kernel`."""
  if any(_moves_innermost(computation, i) for i in parts):
    return "transpose"
  if _column_reductions(computation, parts):
    return "column-reduction"
  is_row_reduction = any(i.opcode == "reduce" for i in parts)
  return "row-reduction" if is_row_reduction else "elementwise"


def num_columns(
  computation: hlo.Computation, parts: Sequence[hlo.Instruction]
) -> int:
  """Results of the largest column reduction; 0 without one."""
  found = _column_reductions(computation, parts)
  return max((hlo.num_elements(i.shape) for i in found), default=0)


def _column_reductions(
  computation: hlo.Computation, parts: Sequence[hlo.Instruction]
) -> list[hlo.Instruction]:
  """The reductions across the innermost dimension."""
  return [
    i
    for i in parts
    if i.opcode == "reduce" and not _reduces_innermost(computation, i)
  ]


def _reduces_innermost(
  computation: hlo.Computation, reduction: hlo.Instruction
) -> bool:
  taken = _innermost(computation.by_id[reduction.operand_ids[0]].shape)
  return taken is None or taken in reduction.dimensions


def _moves_innermost(
  computation: hlo.Computation, instruction: hlo.Instruction
) -> bool:
  """Whether neighbours in memory are no longer neighbours afterwards."""
  if instruction.opcode not in ("copy", "copy-start", "transpose"):
    return False
  (operand,) = computation.operands(instruction)
  result = instruction.shape
  while result.tuple_shapes:
    result = result.tuple_shapes[0]
  before, after = _innermost(operand.shape), _innermost(result)
  if instruction.opcode == "transpose" and after is not None:
    after = instruction.dimensions[after]
  return before is not None and before != after


def _innermost(shape: hlo.Shape) -> int | None:
  """The innermost dimension of more than one element, if there is one."""
  order = shape.layout.minor_to_major or range(len(shape.dimensions))[::-1]
  return next((d for d in order if shape.dimensions[d] > 1), None)
