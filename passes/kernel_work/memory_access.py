# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Memory access of a kernel: what it reads and writes, and in which order.

A fusion reads what its results depend on (`wanted_elements.py`); of an array
that it updates in place it writes the update.
"""

from __future__ import annotations

from collections.abc import Mapping
import dataclasses
import math

from lagom_xla.passes import hlo
from lagom_xla.passes import matrix_products
from lagom_xla.passes.kernel_work import access_pattern
from lagom_xla.passes.kernel_work import memcpys
from lagom_xla.passes.kernel_work import scatters
from lagom_xla.passes.kernel_work import threads
from lagom_xla.passes.kernel_work import wanted_elements

# In a fusion these only say where a value is or what it is called.
_NO_ARITHMETIC = frozenset(
  [
    "bitcast",
    "broadcast",
    "constant",
    "copy",
    "dynamic-update-slice",
    "fusion",
    "get-tuple-element",
    "parameter",
    "reshape",
    "transpose",
    "tuple",
    *wanted_elements.SLICES,
    *matrix_products.MULTIPLYING,
  ]
)


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Access:
  """What one kernel does to memory.

  Attributes:
    num_bytes: bytes that it reads and writes.
    num_element_operations: operations on single elements.
    pattern: see `kernels.Kernel`.
    result_elements: elements of the largest array that it writes; of one that
      it updates in place, only the update.
    num_threads: threads that it starts, if each goes through memory once; 0 if
      they loop over elements.
    num_columns: results of its column reductions, of which a block takes 32; 0
      without one.
    scatter: the scatter that it runs, if any.
  """

  num_bytes: int
  num_element_operations: int
  pattern: str
  result_elements: int
  num_threads: int
  num_columns: int
  scatter: scatters.Scatter | None


def of_instruction(
  module: hlo.Module,
  computation: hlo.Computation,
  instruction: hlo.Instruction,
  *,
  has_product: bool,
) -> Access:
  """What the kernel that an instruction launches does to memory."""
  moved = memcpys.moved(module, computation, instruction)
  if moved is not None:
    return _of_memcpy(moved)
  written = _written(module, computation, instruction)
  fused = _fused(module, instruction)
  wanted = wanted_elements.of_fusion(fused) if fused else {}
  home = fused or computation
  parts = fused.instructions if fused else (instruction,)
  read_bytes = (
    _read_bytes(fused, wanted)
    if fused
    else _unfused_read_bytes(computation, instruction, written)
  )
  return Access(
    num_bytes=sum(map(hlo.shape_bytes, written)) + read_bytes,
    num_element_operations=_element_operations(home, instruction, wanted),
    pattern=(
      "elementwise"  # Tiles of a product are turned in shared memory.
      if has_product
      else access_pattern.of_parts(home, parts)
    ),
    result_elements=max(map(hlo.num_elements, written), default=0),
    num_threads=(
      threads.of_fusion(fused, instruction.fusion_kind) if fused else 0
    ),
    num_columns=access_pattern.num_columns(home, parts),
    scatter=_scatter(module, computation, instruction, fused),
  )


def _of_memcpy(moved: hlo.Shape) -> Access:
  return Access(
    num_bytes=2 * hlo.shape_bytes(moved),
    num_element_operations=0,
    pattern="memcpy",
    result_elements=hlo.num_elements(moved),
    num_threads=0,
    num_columns=0,
    scatter=None,
  )


def _scatter(
  module: hlo.Module,
  computation: hlo.Computation,
  instruction: hlo.Instruction,
  fused: hlo.Computation | None,
) -> scatters.Scatter | None:
  if fused:
    return scatters.of_computation(module, fused)
  if instruction.opcode != "scatter":
    return None
  return scatters.of_scatter(module, computation, instruction)


def _unfused_read_bytes(
  computation: hlo.Computation,
  instruction: hlo.Instruction,
  written: list[hlo.Shape],
) -> int:
  """Bytes that an instruction by itself reads; of a slice, only the slice."""
  if instruction.opcode in (*wanted_elements.SLICES, "dynamic-update-slice"):
    return sum(map(hlo.shape_bytes, written))
  operands = computation.operands(instruction)
  return sum(hlo.shape_bytes(o.shape) for o in operands)


def _fused(
  module: hlo.Module, instruction: hlo.Instruction
) -> hlo.Computation | None:
  """The computation that a fusion runs, async or not."""
  if instruction.opcode not in ("fusion", "async-start"):
    return None
  called = module.computations[instruction.called_computation_ids[0]]
  if instruction.opcode == "async-start":
    return _fused(module, called.root) or called
  return called


def _read_bytes(fused: hlo.Computation, wanted: Mapping[int, int]) -> int:
  return sum(
    math.ceil(
      hlo.shape_bytes(i.shape)
      * wanted[i.id]
      / max(hlo.num_elements(i.shape), 1)
    )
    for i in fused.instructions
    if i.opcode == "parameter"
  )


def _element_operations(
  computation: hlo.Computation,
  instruction: hlo.Instruction,
  wanted: Mapping[int, int],
) -> int:
  """Operations on single elements, one for each element that is computed.

  A reduction does one for each element that it takes in.
  """

  def operations(i: hlo.Instruction, count: int) -> int:
    if i.opcode in _NO_ARITHMETIC:
      return 0
    if i.opcode in wanted_elements.REDUCTIONS:
      taken = computation.by_id[i.operand_ids[0]]
      return wanted.get(taken.id, hlo.num_elements(taken.shape))
    return count

  if wanted:
    return sum(operations(i, wanted[i.id]) for i in computation.instructions)
  return operations(instruction, hlo.num_elements(instruction.shape))


def _written(
  module: hlo.Module,
  computation: hlo.Computation,
  instruction: hlo.Instruction,
) -> list[hlo.Shape]:
  """The arrays, or updates of arrays, that an instruction writes."""
  fused = _fused(module, instruction)
  if fused:
    return _written(module, fused, fused.root)
  match instruction.opcode:
    case "tuple":
      return [
        shape
        for operand in computation.operands(instruction)
        for shape in _written(module, computation, operand)
      ]
    case "bitcast":
      (operand,) = computation.operands(instruction)
      return _written(module, computation, operand)
    case "dynamic-update-slice":
      return [computation.operands(instruction)[1].shape]
    case "copy-start":  # (destination, source, context)
      return [instruction.shape.tuple_shapes[0]]
    case "custom-call":
      return _without_workspace(instruction.shape)
  return [instruction.shape]


def _without_workspace(shape: hlo.Shape) -> list[hlo.Shape]:
  """The results of a library call; the last may be its scratch memory."""
  results = list(shape.tuple_shapes) or [shape]
  last = results[-1]
  is_raw = hlo.element_type(last) in ("s8", "u8") and len(last.dimensions) == 1
  return results[:-1] if len(results) > 1 and is_raw else results
