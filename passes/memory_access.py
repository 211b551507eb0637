# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Memory access of a kernel: what it reads and writes, and in which order.

A fusion computes only what its results depend on: of an operand that it slices
it reads the slice, and an array that it updates in place it neither reads nor
writes outside the update. So its values are followed back from its root.

XLA runs a scatter with a thread for each element of its updates. Where an index
may occur twice each thread updates memory atomically. `unique_indices` on JAX's
`.at[].add` promises that none does.

Of a fusion that goes through memory in order a thread computes four
neighbouring elements, or one where XLA cannot vectorize
(xla/service/gpu/hlo_fusion_analysis.cc and gpu_fusible.cc): in an update in
place, beside operations that are calls, and in a loop over a concatenation of
more than ten operands. Where a concatenation has an emitter of its own
(emitters/concatenate.cc in xla/backends/gpu/codegen), a thread computes
neighbouring elements of every operand, as many of four as divide what each has
along the dimension; XLA of 2024 gave it one. Few bytes per thread keep little
of the memory's bandwidth in flight, so such kernels are bound by how fast
threads come and go.

Some slices stand in a schedule as kernels and are none. A slice that a fusion
only cuts from an array, or writes into one, XLA moves by a memcpy on the
compute stream if it lies in one piece that begins where is known ahead, as that
of a loop's layer does. XLA notes before fusion where it begins in each trip
(dynamic_slice_annotator.cc). After scheduling, fusions of nothing but noted
slices become custom ones with a copy inside, on GPUs from Ampere on; slices
outside fusions get one of their own before that. So does JAX 0.10.2
(fusion_dynamic_memcpy_rewriter.cc, here by its rules). Later ones choose the
same before scheduling, and start them ahead (`passes/copies.py`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
import dataclasses
import math

from lagom_xla.passes import hlo
from lagom_xla.passes import matrix_products


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Scatter:
  """The scatter that a kernel runs.

  Attributes:
    num_updates: indices, each of which places one window of elements.
    window_elements: elements of one update.
    num_places: windows that an index can name, such as a vocabulary's rows.
    element_bits: size of an element.
    may_collide: whether two updates may combine with one element. A scatter
      that overwrites needs no atomic update; and an index of several
      coordinates, as a router's (token, expert), is taken to be unique even
      where the program does not promise it.
  """

  num_updates: int
  window_elements: int
  num_places: int
  element_bits: int
  may_collide: bool


def of_scatter(
  module: hlo.Module,
  computation: hlo.Computation,
  instruction: hlo.Instruction,
) -> Scatter:
  """What a scatter instruction does."""
  operands = computation.operands(instruction)
  # N operands, the indices, N updates.
  operand, updates = operands[0].shape, operands[len(operands) // 2 + 1].shape
  numbers = instruction.scatter_dimension_numbers
  window_elements = math.prod(
    updates.dimensions[d] for d in numbers.update_window_dims
  )
  combiner = module.computations[instruction.called_computation_ids[0]]
  indexed = numbers.scatter_dims_to_operand_dims
  return Scatter(
    num_updates=math.prod(updates.dimensions) // max(window_elements, 1),
    window_elements=window_elements,
    num_places=math.prod(operand.dimensions[d] for d in indexed),
    element_bits=(
      8 * hlo.shape_bytes(operand) // max(hlo.num_elements(operand), 1)
    ),
    may_collide=(
      len(indexed) == 1
      and not instruction.unique_indices
      and combiner.root.opcode != "parameter"
    ),
  )


SLICES = frozenset(["dynamic-slice", "slice", "gather"])
REDUCTIONS = frozenset(["reduce", "reduce-window", "select-and-scatter"])


def _wanted_of_fusion(fused: hlo.Computation) -> dict[int, int]:
  """Elements of each value in a fusion that its results depend on, by id.

  A fusion computes only those: what is sliced later is never computed whole,
  and what is updated in place is neither read nor written outside the update.
  """
  in_place = {update.id for update in updated_in_place(fused)}
  wanted = dict.fromkeys(fused.by_id, 0)
  wanted[fused.root.id] = hlo.num_elements(fused.root.shape)
  for user in _users_first(fused):
    for index, operand in enumerate(fused.operands(user)):
      whole = hlo.num_elements(operand.shape)
      if user.id in in_place and index == 0:
        continue
      passed = _passed_on(user, index, whole, wanted[user.id])
      wanted[operand.id] = min(wanted[operand.id] + passed, whole)
  return wanted


def _passed_on(
  user: hlo.Instruction, index: int, whole: int, wanted: int
) -> int:
  """Elements of an operand that so many elements of its user depend on."""
  opcode = user.opcode
  if opcode in SLICES and index == 0:
    return wanted
  if opcode in REDUCTIONS:
    return math.ceil(wanted * whole / max(hlo.num_elements(user.shape), 1))
  if opcode in matrix_products.MULTIPLYING or opcode == "tuple":
    return whole
  return min(wanted, whole)


def _users_first(fused: hlo.Computation) -> list[hlo.Instruction]:
  """The root and what it depends on, each value after all of its users."""
  order: list[hlo.Instruction] = []
  seen = set()
  pending = [(fused.root, False)]
  while pending:
    instruction, visited = pending.pop()
    if visited:
      order.append(instruction)
    elif instruction.id not in seen:
      seen.add(instruction.id)
      pending.append((instruction, True))
      pending += [(o, False) for o in fused.operands(instruction)]
  return order[::-1]


def _pattern_of_parts(
  computation: hlo.Computation, parts: Sequence[hlo.Instruction]
) -> str:
  """The costliest pattern of a kernel's instructions; see `Access`."""
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


_ELEMENTS_PER_THREAD = 4
_MAX_OPERANDS_VECTORIZED = 10
# So it was in the XLA of 2024 that compiled the traced steps. jaxlib 0.10.2
# gives a thread four elements beside these, too (grids that it dumps for A100,
# H100 and B200; on B200 eight of bfloat16). Counted so, lone kernels of the
# H100 trace would be 15.0 % off in the median for 14.7, and its step as before.
_CALLS = frozenset(["atan2", "cosine", "power", "sine", "tan"])
# Emitters of their own, whose threads go on to further elements.
_TILED = frozenset(["reduce", "reduce-window", "scatter", "sort", "transpose"])


def threads_of_fusion(fused: hlo.Computation, fusion_kind: str) -> int:
  """Threads of a fusion; 0 where they loop over elements.

  Args:
    fused: the computation that it runs.
    fusion_kind: "kLoop", "kInput" or another.
  """
  updates = updated_in_place(fused)
  if updates:
    return max(hlo.num_elements(fused.operands(u)[1].shape) for u in updates)
  opcodes = fused.opcodes
  if (
    fusion_kind == "kInput"
    and "concatenate" in opcodes
    and not (_TILED & opcodes)
  ):
    return max(_of_concatenation(fused, i) for i in _concatenations(fused))
  if fusion_kind != "kLoop":
    return 0
  elements = hlo.num_elements(fused.root.shape)
  if _CALLS & opcodes or any(
    len(i.operand_ids) > _MAX_OPERANDS_VECTORIZED
    for i in _concatenations(fused)
  ):
    return elements
  return math.ceil(elements / _ELEMENTS_PER_THREAD)


def _concatenations(fused: hlo.Computation) -> list[hlo.Instruction]:
  return [i for i in fused.instructions if i.opcode == "concatenate"]


def _of_concatenation(
  fused: hlo.Computation, concatenation: hlo.Instruction
) -> int:
  operands = fused.operands(concatenation)
  (dim,) = concatenation.dimensions
  sizes = [operand.shape.dimensions[dim] for operand in operands]
  largest = max(hlo.num_elements(operand.shape) for operand in operands)
  return math.ceil(largest / math.gcd(_ELEMENTS_PER_THREAD, *sizes))


def updated_in_place(fused: hlo.Computation) -> list[hlo.Instruction]:
  """The dynamic-update-slices that are a fusion's results, if all are.

  Only these are done in place; others are computed whole.
  """
  roots = [fused.root]
  if fused.root.opcode == "tuple":
    roots = fused.operands(fused.root)
  found = [fused.behind(root, ("bitcast",)) for root in roots]
  if all(i.opcode == "dynamic-update-slice" for i in found):
    return found
  return []


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


def memcpy_bytes(
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
    *SLICES,
    *matrix_products.MULTIPLYING,
  ]
)


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Access:
  """What one kernel does to memory, per execution.

  Attributes:
    num_bytes: bytes that it reads and writes.
    num_element_operations: scalar operations outside of matrix products, such
      as an addition or a conversion of one element.
    pattern: how it goes through memory: "elementwise" (in the order in which
      it lies), "row-reduction" (along the innermost dimension),
      "column-reduction" (across it), or "transpose" (another dimension
      becomes innermost); the costliest of what it holds. "memcpy" is no kernel.
    result_elements: elements of the largest array that it writes; of one that
      it updates in place, only the update.
    num_threads: threads that it starts, if each goes through memory once; 0 if
      they loop over elements, or that is not known.
    num_columns: results of its column reductions, of which a block takes 32; 0
      without one.
    scatter: the scatter that it runs, if any.
  """

  num_bytes: int
  num_element_operations: int = 0
  pattern: str = "elementwise"
  result_elements: int
  num_threads: int = 0
  num_columns: int = 0
  scatter: Scatter | None = None


def of_instruction(
  module: hlo.Module,
  computation: hlo.Computation,
  instruction: hlo.Instruction,
  *,
  has_product: bool,
) -> Access:
  """What the kernel that an instruction launches does to memory."""
  moved = memcpy_bytes(module, computation, instruction)
  if moved is not None:
    return Access(
      num_bytes=2 * hlo.shape_bytes(moved),
      pattern="memcpy",
      result_elements=hlo.num_elements(moved),
    )
  written = _written(module, computation, instruction)
  fused = _fused(module, instruction)
  wanted = _wanted_of_fusion(fused) if fused else {}
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
      else _pattern_of_parts(home, parts)
    ),
    result_elements=max(map(hlo.num_elements, written), default=0),
    num_threads=(
      threads_of_fusion(fused, instruction.fusion_kind) if fused else 0
    ),
    num_columns=num_columns(home, parts),
    scatter=next(
      (of_scatter(module, home, i) for i in parts if i.opcode == "scatter"),
      None,
    ),
  )


def _unfused_read_bytes(
  computation: hlo.Computation,
  instruction: hlo.Instruction,
  written: list[hlo.Shape],
) -> int:
  """Bytes that an instruction by itself reads; of a slice, only the slice."""
  if instruction.opcode in (*SLICES, "dynamic-update-slice"):
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
    if i.opcode in REDUCTIONS:
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
