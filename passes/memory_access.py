# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Memory access of a kernel: what it reads and writes, and in which order.

A fusion computes only what its results depend on. Of a sliced operand it reads
only the slice, and of an array updated in place it touches only the update. So
this module follows values back from the fusion's root.

XLA runs a scatter with one thread per element of the updates. If an index may
occur twice, each thread updates memory atomically. `unique_indices` on JAX's
`.at[].add` promises unique indices.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
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
    num_places: windows that an index can select, such as a vocabulary's rows.
    element_bits: size of an element.
    may_collide: whether two updates may combine with one element. False for a
      scatter that overwrites, which needs no atomic updates, and for an index
      of several coordinates, such as a router's (token, expert), which is
      assumed unique even if the program does not promise it.
  """

  num_updates: int
  window_elements: int
  num_places: int
  element_bits: int
  may_collide: bool


def _scatter(
  module: hlo.Module,
  computation: hlo.Computation,
  instruction: hlo.Instruction,
) -> Scatter:
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


_SLICES = frozenset(["dynamic-slice", "slice", "gather"])
_REDUCTIONS = frozenset(["reduce", "reduce-window", "select-and-scatter"])


def _needed_of_fusion(fused: hlo.Computation) -> dict[int, int]:
  """Elements of each value in a fusion that its results depend on, by id.

  A fusion computes only those: it computes only the needed slice of a value,
  and neither reads nor writes an array updated in place outside of the update.
  """
  in_place = {update.id for update in _updated_in_place(fused)}
  needed = dict.fromkeys(fused.by_id, 0)
  needed[fused.root.id] = hlo.num_elements(fused.root.shape)
  for user in reversed(fused.instructions):  # Each after all of its users.
    needed_of_user = needed[user.id]
    if not needed_of_user:
      continue
    for index, operand in enumerate(fused.operands(user)):
      size = hlo.num_elements(operand.shape)
      if user.id in in_place and index == 0:
        continue
      if user.opcode in _SLICES and index == 0:
        passed = needed_of_user
      elif user.opcode in _REDUCTIONS:
        results = max(hlo.num_elements(user.shape), 1)
        passed = math.ceil(needed_of_user * size / results)
      elif user.opcode in matrix_products.MULTIPLYING or user.opcode == "tuple":
        passed = size
      else:
        passed = min(needed_of_user, size)
      needed[operand.id] = min(needed[operand.id] + passed, size)
  return needed


def _column_reductions(
  computation: hlo.Computation, parts: Sequence[hlo.Instruction]
) -> list[hlo.Instruction]:
  """The reductions across the innermost dimension."""
  found = []
  for reduction in parts:
    if reduction.opcode == "reduce":
      taken = _innermost(computation.operands(reduction)[0].shape)
      if taken is not None and taken not in reduction.dimensions:
        found.append(reduction)
  return found


def _moves_innermost(
  computation: hlo.Computation, instruction: hlo.Instruction
) -> bool:
  """Whether an operation separates elements that are neighbors in memory."""
  if instruction.opcode not in ("copy", "copy-start", "transpose"):
    return False
  (operand,) = computation.operands(instruction)
  before = _innermost(operand.shape)
  after = _innermost(hlo.first_array(instruction.shape))
  if instruction.opcode == "transpose" and after is not None:
    after = instruction.dimensions[after]
  return before is not None and before != after


def _innermost(shape: hlo.Shape) -> int | None:
  """The innermost dimension of more than one element, if there is one."""
  return next((d for d in _order(shape) if shape.dimensions[d] > 1), None)


_ELEMENTS_PER_THREAD = 4
_MAX_OPERANDS_VECTORIZED = 10
# The XLA of 2024, which compiled the traced steps, did not vectorize these.
# jaxlib 0.10.2 computes four elements per thread here, too (eight of bfloat16
# on B200), according to the grids that it dumps for A100, H100 and B200.
# Counting them that way would raise the median error of lone kernels in the
# H100 trace from 14.7 % to 15.0 %, and would not change the step's.
_CALLS = frozenset(["atan2", "cosine", "power", "sine", "tan"])
# Operations with their own emitters, whose threads loop over elements.
_TILED = frozenset(["reduce", "reduce-window", "scatter", "sort", "transpose"])


def threads_of_fusion(fused: hlo.Computation, fusion_kind: str) -> int:
  """The number of threads of a fusion; 0 if threads loop over elements.

  `fusion_kind` is XLA's, such as "kLoop". In a fusion that goes through memory
  in order, a thread computes four neighboring elements, or one if XLA cannot
  vectorize (xla/service/gpu/hlo_fusion_analysis.cc and gpu_fusible.cc): in an
  update in place, next to operations that are calls, and in a loop over a
  concatenation of more than ten operands. If a concatenation has its own
  emitter (emitters/concatenate.cc in xla/backends/gpu/codegen), a thread
  computes neighboring elements of every operand: the largest number up to four
  that divides each operand's size along the dimension (one in the XLA of 2024).
  With few bytes per thread, too little data is in flight to saturate the
  memory, and the rate at which threads start and end limits the kernel.
  """
  if updates := _updated_in_place(fused):
    return max(hlo.num_elements(fused.operands(u)[1].shape) for u in updates)
  joined = [
    (concatenation, fused.operands(concatenation))
    for concatenation in fused.instructions
    if concatenation.opcode == "concatenate"
  ]
  if fusion_kind == "kInput" and joined and not _TILED & fused.opcodes:
    num_threads = 0
    for concatenation, operands in joined:
      (dim,) = concatenation.dimensions
      sizes = [operand.shape.dimensions[dim] for operand in operands]
      largest = max(hlo.num_elements(operand.shape) for operand in operands)
      per_thread = math.gcd(_ELEMENTS_PER_THREAD, *sizes)
      num_threads = max(num_threads, math.ceil(largest / per_thread))
    return num_threads
  if fusion_kind != "kLoop":
    return 0
  elements = hlo.num_elements(fused.root.shape)
  if _CALLS & fused.opcodes or any(
    len(operands) > _MAX_OPERANDS_VECTORIZED for _, operands in joined
  ):
    return elements
  return math.ceil(elements / _ELEMENTS_PER_THREAD)


def _updated_in_place(fused: hlo.Computation) -> list[hlo.Instruction]:
  """The dynamic-update-slices that are a fusion's results, if all results are.

  Only these run in place.
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

# Opcodes that DynamicSliceFusion::Offset can evaluate
# (dynamic_slice_fusion.cc).
_OF_OFFSETS = _SAME_BYTES | {
  "add", "compare", "constant", "multiply", "parameter", "select", "subtract",
}  # fmt: skip


def memcpy_bytes(
  module: hlo.Module,
  computation: hlo.Computation,
  instruction: hlo.Instruction,
) -> hlo.Shape | None:
  """The slice that an instruction moves by memcpy; None if it moves none.

  If a fusion only reads a slice of an array, or only writes one into it, XLA
  moves the slice by a memcpy on the compute stream, provided that the slice is
  contiguous and its offset is known ahead, as for a layer in a loop. XLA notes
  the offsets of each trip before fusion (dynamic_slice_annotator.cc). After
  scheduling, fusions of nothing but noted slices become custom fusions around a
  copy, on Ampere and newer GPUs; slices outside of fusions do so earlier. These
  are the rules of JAX 0.10.2 (fusion_dynamic_memcpy_rewriter.cc). Later
  versions choose the same slices before scheduling, and start them ahead
  (`passes/copies.py`).
  """
  if instruction.opcode in _DYNAMIC and _is_noted(module, instruction):
    return _piece(computation, instruction)
  if instruction.opcode != "fusion":
    return None
  (fused_id,) = instruction.called_computation_ids
  fused = module.computations[fused_id]
  if instruction.fusion_kind == "kCustom":
    # Custom fusions around anything but a copy call a library.
    config = module.backend_config(instruction).get("fusion_backend_config", {})
    name = config.get("custom_fusion_config", {}).get("name")
    copies = [i.shape for i in fused.instructions if i.opcode == "copy"]
    return copies[0] if copies and name == "dynamic_slice_fusion" else None
  root = fused.behind(fused.root, _SAME_BYTES)
  if root.opcode in _DYNAMIC and _only_slices(module, fused, root):
    return _piece(fused, root)
  return None


def _only_slices(
  module: hlo.Module, fused: hlo.Computation, root: hlo.Instruction
) -> bool:
  """Whether a fusion with a slice as its root has nothing but noted slices."""

  def is_parameter(value: hlo.Instruction) -> bool:
    return fused.behind(value, _SAME_BYTES).opcode == "parameter"

  def can_be_evaluated(offset: hlo.Instruction) -> bool:
    return offset.opcode in _OF_OFFSETS and all(
      map(can_be_evaluated, fused.operands(offset))
    )

  def cuts_parameter(slice_: hlo.Instruction) -> bool:
    source, *offsets = fused.operands(slice_)
    return is_parameter(source) and all(map(can_be_evaluated, offsets))

  for instruction in fused.instructions:
    if instruction.opcode in _DYNAMIC and not _is_noted(module, instruction):
      return False
    if instruction.opcode == "slice" and not _is_contiguous(fused, instruction):
      return False
  if root.opcode == "dynamic-slice":
    return cuts_parameter(root)
  target, update, *offsets = fused.operands(root)
  if not is_parameter(target) or not all(map(can_be_evaluated, offsets)):
    return False
  source = fused.behind(update, _SAME_BYTES)
  if source.opcode in ("dynamic-slice", "slice"):
    return cuts_parameter(source)
  return source.opcode == "parameter"


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


def _piece(computation: hlo.Computation, slice_: hlo.Instruction) -> hlo.Shape:
  """The slice that a dynamic slice reads or writes."""
  if slice_.opcode == "dynamic-slice":
    return slice_.shape
  return computation.operands(slice_)[1].shape


# In a fusion, these do no arithmetic, except for products.
_NO_ARITHMETIC = _SLICES | matrix_products.MULTIPLYING | {
  "bitcast", "broadcast", "constant", "copy", "dynamic-update-slice", "fusion",
  "get-tuple-element", "parameter", "reshape", "transpose", "tuple",
}  # fmt: skip


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Scattered:
  """Reads that do not follow the array's order in memory.

  Attributes:
    num_elements: number of such elements.
    element_bytes: bytes of each element.
    bytes_apart: distance in memory from one to the next.
    elements_between: elements read before the next neighbor in memory is read.
  """

  num_elements: int
  element_bytes: float
  bytes_apart: float
  elements_between: int


def _order(shape: hlo.Shape) -> tuple[int, ...]:
  """Dimensions of an array in memory order, the innermost first."""
  dims = range(len(shape.dimensions))
  return tuple(shape.layout.minor_to_major) or tuple(dims)[::-1]


def _scattered(
  fused: hlo.Computation, wanted: Mapping[int, int]
) -> Iterator[Scattered]:
  """The reads of a loop fusion that do not follow the order in memory.

  Threads go through the result in order. This function follows that order back
  to the operands, through all operations that move dimensions. If XLA
  transposes tiles in shared memory instead, the fusion is no loop: its
  transpose emitter is for kInput, which XLA chooses (ChooseFusionKind in
  gpu_fusible.cc) if it supports the permutation. Before 2025 it supported only
  10, 021 and 210, where dimensions that stay together count as one
  (ir_emission_utils.cc).
  """
  root = hlo.first_array(fused.root.shape)
  orders = {fused.root.id: _order(root)}
  for user in reversed(fused.instructions):  # Each after all of its users.
    order = orders.get(user.id, _order(hlo.first_array(user.shape)))
    is_reshaped = user.opcode in _SAME_BYTES and order != _order(user.shape)
    if user.opcode == "parameter" or is_reshaped:
      # A reshape and its operand have the same order in memory.
      yield from _read_in_order(user.shape, order, wanted[user.id])
      continue
    for operand in fused.operands(user):
      if not wanted[operand.id]:
        continue
      if user.opcode == "transpose":
        orders.setdefault(operand.id, tuple(user.dimensions[d] for d in order))
      elif (
        user.opcode not in _SAME_BYTES
        and operand.shape.dimensions == hlo.first_array(user.shape).dimensions
      ):
        orders.setdefault(operand.id, order)


def _read_in_order(
  shape: hlo.Shape, order: Sequence[int], num_elements: int
) -> Iterator[Scattered]:
  """The elements of an array that are read far from their neighbors."""
  taken, between = _innermost(shape), 1
  for dim in order:
    if dim == taken or not num_elements:
      break
    between *= shape.dimensions[dim]
  if taken is not None and between > 1:
    first = next(dim for dim in order if shape.dimensions[dim] > 1)
    inside = _order(shape)[: _order(shape).index(first)]
    num_between = math.prod(shape.dimensions[dim] for dim in inside)
    element_bytes = hlo.shape_bytes(shape) / max(hlo.num_elements(shape), 1)
    yield Scattered(
      num_elements=num_elements,
      element_bytes=element_bytes,
      bytes_apart=element_bytes * num_between,
      elements_between=between,
    )


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Access:
  """The memory access of one kernel, per execution.

  Attributes:
    num_bytes: bytes that it reads and writes.
    num_element_operations: scalar operations outside of matrix products, such
      as an addition or a conversion of one element.
    pattern: the order of its accesses: "elementwise" (in memory order),
      "row-reduction" (along the innermost dimension), "column-reduction"
      (across it), or "transpose" (another dimension becomes innermost); the
      costliest of these. "memcpy" is no kernel.
    result_elements: elements of the largest array that it writes, or of the
      update if it updates in place.
    num_threads: threads that it starts, if each goes through memory once; 0 if
      they loop over elements or the number is unknown.
    num_columns: results of its column reductions, of which a block computes 32;
      0 without one.
    scatter: the scatter that it runs, if any.
    scattered: reads that do not follow the order in memory.
  """

  num_bytes: int
  num_element_operations: int = 0
  pattern: str = "elementwise"
  result_elements: int
  num_threads: int = 0
  num_columns: int = 0
  scatter: Scatter | None = None
  scattered: tuple[Scattered, ...] = ()


def _pattern(
  home: hlo.Computation,
  parts: Sequence[hlo.Instruction],
  *,
  has_columns: bool,
) -> str:
  if any(_moves_innermost(home, i) for i in parts):
    return "transpose"
  if has_columns:
    return "column-reduction"
  is_reduction = any(i.opcode == "reduce" for i in parts)
  return "row-reduction" if is_reduction else "elementwise"


def of_instruction(
  module: hlo.Module,
  computation: hlo.Computation,
  instruction: hlo.Instruction,
  *,
  has_product: bool,
) -> Access:
  """The memory access of the kernel that an instruction launches."""
  moved = memcpy_bytes(module, computation, instruction)
  if moved is not None:
    return Access(
      num_bytes=2 * hlo.shape_bytes(moved),
      pattern="memcpy",
      result_elements=hlo.num_elements(moved),
    )
  written = _written(module, computation, instruction)
  written_bytes = sum(map(hlo.shape_bytes, written))
  fused = _fused(module, instruction)
  if fused:
    needed = _needed_of_fusion(fused)
    home, parts = fused, fused.instructions
    read_bytes = sum(
      math.ceil(
        hlo.shape_bytes(i.shape)
        * needed[i.id]
        / max(hlo.num_elements(i.shape), 1)
      )
      for i in fused.parameters
    )
    num_threads = threads_of_fusion(fused, instruction.fusion_kind)
  else:
    operands = computation.operands(instruction)
    needed = {o.id: hlo.num_elements(o.shape) for o in operands}
    needed[instruction.id] = hlo.num_elements(instruction.shape)
    home, parts = computation, (instruction,)
    read_bytes = sum(hlo.shape_bytes(o.shape) for o in operands)
    if instruction.opcode in (*_SLICES, "dynamic-update-slice"):
      read_bytes = written_bytes
    num_threads = 0
  num_element_operations = 0
  for part in parts:
    if part.opcode not in _NO_ARITHMETIC:
      # A reduction does one operation per element of its operand.
      is_reduction = part.opcode in _REDUCTIONS
      counted = part.operand_ids[0] if is_reduction else part.id
      num_element_operations += needed[counted]
  columns = _column_reductions(home, parts)
  pattern = "elementwise"
  if not has_product:  # A product transposes its tiles in shared memory.
    pattern = _pattern(home, parts, has_columns=bool(columns))
  return Access(
    num_bytes=written_bytes + read_bytes,
    num_element_operations=num_element_operations,
    pattern=pattern,
    result_elements=max(map(hlo.num_elements, written), default=0),
    num_threads=num_threads,
    num_columns=max((hlo.num_elements(i.shape) for i in columns), default=0),
    scatter=next(
      (_scatter(module, home, i) for i in parts if i.opcode == "scatter"), None
    ),
    scattered=tuple(_scattered(fused, needed))
    if fused and instruction.fusion_kind == "kLoop" and pattern == "transpose"
    else (),
  )


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


def _is_scratch(shape: hlo.Shape) -> bool:
  is_bytes = hlo.element_type(shape) in ("s8", "u8")
  return is_bytes and len(shape.dimensions) == 1


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
      results = list(instruction.shape.tuple_shapes) or [instruction.shape]
      # The last results may be scratch memory.
      while len(results) > 1 and _is_scratch(results[-1]):
        results.pop()
      return results
  return [instruction.shape]
