# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Memcpys: slices that stand in a schedule as kernels and are none.

A slice that a fusion only cuts from an array, or writes into one, XLA moves by
a memcpy on the compute stream if it lies in one piece that begins where is
known ahead, as that of a loop's layer does. XLA notes before fusion where it
begins in each trip (dynamic_slice_annotator.cc). After scheduling, fusions of
nothing but noted slices become custom ones with a copy inside, on GPUs from
Ampere on; slices outside fusions get one of their own before that. So does JAX
0.10.2 (fusion_dynamic_memcpy_rewriter.cc, here by its rules). Later ones choose
the same before scheduling, and start them ahead (`passes/device_copies.py`).
"""

from __future__ import annotations

from lagom_xla.passes import hlo

_SAME_BYTES = frozenset(["bitcast", "reshape"])
_DYNAMIC = frozenset(["dynamic-slice", "dynamic-update-slice"])

# What DynamicSliceFusion::Offset can evaluate (dynamic_slice_fusion.cc).
_OF_OFFSETS = frozenset(
  [
    "add",
    "compare",
    "constant",
    "multiply",
    "parameter",
    "select",
    "subtract",
    *_SAME_BYTES,
  ]
)


def moved(
  module: hlo.Module,
  computation: hlo.Computation,
  instruction: hlo.Instruction,
) -> hlo.Shape | None:
  """The slice that an instruction moves by a memcpy; None if it does not.

  It is read once and written once.

  Args:
    module: scheduled, or compiled to the end.
    computation: that the instruction stands in.
    instruction: any.
  """
  match instruction.opcode:
    case "dynamic-slice" | "dynamic-update-slice":
      if _is_noted(module, instruction):
        return _piece(computation, instruction)
    case "fusion":
      (fused_id,) = instruction.called_computation_ids
      return _moved_by(module, instruction, module.computations[fused_id])
  return None


def _moved_by(
  module: hlo.Module, fusion: hlo.Instruction, fused: hlo.Computation
) -> hlo.Shape | None:
  if fusion.fusion_kind == "kCustom":
    return _of_rewritten(module, fusion, fused)
  root = fused.behind(fused.root, _SAME_BYTES)
  if root.opcode in _DYNAMIC and _only_slices(module, fused, root):
    return _piece(fused, root)
  return None


def _of_rewritten(
  module: hlo.Module, fusion: hlo.Instruction, fused: hlo.Computation
) -> hlo.Shape | None:
  """Of a custom fusion; around anything but a copy it runs a library."""
  config = module.backend_config(fusion).get("fusion_backend_config", {})
  name = config.get("custom_fusion_config", {}).get("name")
  if name != "dynamic_slice_fusion":
    return None
  copies = (i.shape for i in fused.instructions if i.opcode == "copy")
  return next(copies, None)


def _only_slices(
  module: hlo.Module, fused: hlo.Computation, root: hlo.Instruction
) -> bool:
  """Whether a fusion with a slice as its root is nothing but noted slices."""
  if not all(_is_known(module, fused, i) for i in fused.instructions):
    return False
  if root.opcode == "dynamic-slice":
    return _cuts_parameter(fused, root)
  target, update, *offsets = fused.operands(root)
  source = fused.behind(update, _SAME_BYTES)
  return (
    _is_parameter(fused, target)
    and all(_is_of_scalars(fused, offset) for offset in offsets)
    and (source.opcode == "parameter" or _cuts_parameter(fused, source))
  )


def _is_known(
  module: hlo.Module, fused: hlo.Computation, instruction: hlo.Instruction
) -> bool:
  """Whether a slice lies in one piece that begins where is known ahead."""
  if instruction.opcode in _DYNAMIC:
    return _is_noted(module, instruction)
  return instruction.opcode != "slice" or _is_contiguous(fused, instruction)


def _is_noted(module: hlo.Module, instruction: hlo.Instruction) -> bool:
  return "dynamic_slice_config" in module.backend_config(instruction)


def _is_contiguous(fused: hlo.Computation, slice_: hlo.Instruction) -> bool:
  """IsContiguousSlice of XLA's ir_emission_utils.cc."""
  (source,) = fused.operands(slice_)
  is_cut = False
  for dim in source.shape.layout.minor_to_major:
    size = slice_.shape.dimensions[dim]
    if is_cut and size != 1:
      return False
    if size < source.shape.dimensions[dim]:
      if size > 1 and slice_.slice_dimensions[dim].stride != 1:
        return False
      is_cut = True
  return True


def _cuts_parameter(fused: hlo.Computation, slice_: hlo.Instruction) -> bool:
  if slice_.opcode not in ("dynamic-slice", "slice"):
    return False
  source, *offsets = fused.operands(slice_)
  return _is_parameter(fused, source) and all(
    _is_of_scalars(fused, offset) for offset in offsets
  )


def _is_parameter(fused: hlo.Computation, value: hlo.Instruction) -> bool:
  return fused.behind(value, _SAME_BYTES).opcode == "parameter"


def _is_of_scalars(fused: hlo.Computation, offset: hlo.Instruction) -> bool:
  """Whether an offset is what DynamicSliceFusion can evaluate."""
  return offset.opcode in _OF_OFFSETS and all(
    _is_of_scalars(fused, operand) for operand in fused.operands(offset)
  )


def _piece(computation: hlo.Computation, slice_: hlo.Instruction) -> hlo.Shape:
  """What a dynamic slice cuts or writes."""
  if slice_.opcode == "dynamic-slice":
    return slice_.shape
  return computation.operands(slice_)[1].shape
