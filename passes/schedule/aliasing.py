# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Buffers: which values may share one, and who reads and writes it.

XLA gives each array a buffer, but some arrays the same one: what a tuple holds
is what was put in, a loop carries its state in place, a dynamic-update-slice
writes into its operand, and a donated input becomes an output. XLA checked that
the old contents are no longer needed when the new ones are written, for the
order in which it scheduled the instructions. Another order has to be checked
again, and this module says what to look at:

    buffers = aliasing.of(module)
    access = buffers.access(computation, instruction)
    access.reads, access.writes         # buffers, as numbers

Arrays are put together whenever XLA might do so; two that end up with one
number may still have buffers of their own. A collective, a fusion or a library
call counts as writing in place wherever it could. The rules are those of XLA's
HloDataflowAnalysis (what is passed on) and AliasInfo (what is updated in
place), taken widely.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
import dataclasses
import functools

from lagom_xla.passes import collectives
from lagom_xla.passes import hlo
from lagom_xla.passes import host_copies

# Pass on their operands, touch no memory and take no time.
FORWARDING = collectives.NOPS - {"partition-id", "replica-id"}

_CALLING = frozenset(["call", "conditional", "while"])

_TUPLE = 13  # xla_data.proto, enum PrimitiveType.

# May write into an operand of the size of their result.
_IN_PLACE = frozenset(
  ["dynamic-update-slice", "scatter", "set-dimension-size", "sort"]
)


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Access:
  """The buffers that an instruction reads and writes."""

  reads: frozenset[int] = frozenset()
  writes: frozenset[int] = frozenset()

  @property
  def all(self) -> frozenset[int]:
    """The buffers that it touches."""
    return self.reads | self.writes

  def conflicts(self, other: Access) -> bool:
    """Whether one writes to what the other touches."""
    return not (
      self.writes.isdisjoint(other.all) and other.writes.isdisjoint(self.all)
    )


_NONE = Access()


class Buffers:
  """The buffers of a module; see the module's docstring."""

  def __init__(self, module: hlo.Module):
    self._module = module
    self._leaves: dict[int, range] = {}
    self._sizes_bytes: list[int] = []
    self._inside: dict[int, Access] = {}
    self._accesses: dict[int, Access] = {}
    for computation in module.computations.values():
      for instruction in computation.instructions:
        sizes = list(_leaf_bytes(instruction.shape))
        begin = len(self._sizes_bytes)
        self._sizes_bytes += sizes
        self._leaves[instruction.id] = range(begin, len(self._sizes_bytes))
    self._parent = list(range(len(self._sizes_bytes)))
    for computation in module.computations.values():
      for instruction in computation.instructions:
        self._join_instruction(computation, instruction)
    self._join_donated()

  def of(self, instruction: hlo.Instruction) -> tuple[int, ...]:
    """The buffers of an instruction's arrays, in the order of its shape."""
    return tuple(map(self._find, self._leaves[instruction.id]))

  @functools.cached_property
  def num_bytes(self) -> dict[int, int]:
    """The size of each buffer: that of the largest array in it."""
    sizes: dict[int, int] = {}
    for leaf, size in enumerate(self._sizes_bytes):
      buffer = self._find(leaf)
      sizes[buffer] = max(sizes.get(buffer, 0), size)
    return sizes

  def access(
    self, computation: hlo.Computation, instruction: hlo.Instruction
  ) -> Access:
    """What an instruction reads and writes.

    A collective in flight reads its operands and writes its results until its
    done is over, so the done counts as doing both again.
    """
    if instruction.id not in self._accesses:
      self._accesses[instruction.id] = self._access(computation, instruction)
    return self._accesses[instruction.id]

  def _access(
    self, computation: hlo.Computation, instruction: hlo.Instruction
  ) -> Access:
    if instruction.opcode in FORWARDING:
      return _NONE
    start = _started(computation, instruction)
    operands = self._buffers(self._operand_leaves(computation, start))
    if instruction.opcode in _CALLING:
      inside = self._access_inside(instruction)
      visible = operands | frozenset(self.of(instruction))
      return Access(
        reads=inside.reads & visible, writes=inside.writes & visible
      )
    results = self._buffers(self._result_leaves(start))
    return Access(reads=operands, writes=results)

  def _access_inside(self, instruction: hlo.Instruction) -> Access:
    """What the computations that an instruction runs read and write."""
    reads: set[int] = set()
    writes: set[int] = set()
    for callee_id in instruction.called_computation_ids:
      if callee_id not in self._inside:
        callee = self._module.computations[callee_id]
        accesses = [self.access(callee, i) for i in callee.instructions]
        self._inside[callee_id] = Access(
          reads=frozenset().union(*(a.reads for a in accesses)),
          writes=frozenset().union(*(a.writes for a in accesses)),
        )
      reads |= self._inside[callee_id].reads
      writes |= self._inside[callee_id].writes
    return Access(reads=frozenset(reads), writes=frozenset(writes))

  def _buffers(self, leaves: Iterable[int]) -> frozenset[int]:
    # Tokens take no memory and are ordered by data dependence alone.
    return frozenset(self._find(i) for i in leaves if self._sizes_bytes[i])

  def _operand_leaves(
    self, computation: hlo.Computation, instruction: hlo.Instruction
  ) -> list[int]:
    return [
      leaf
      for operand in computation.operands(instruction)
      for leaf in self._leaves[operand.id]
    ]

  def _result_leaves(self, instruction: hlo.Instruction) -> Sequence[int]:
    """The leaves that are new, of an instruction that may repeat operands."""
    begin, end = _result_span(instruction)
    return self._leaves[instruction.id][begin:end]

  def _join_instruction(
    self, computation: hlo.Computation, instruction: hlo.Instruction
  ) -> None:
    leaves = self._leaves[instruction.id]
    operands = self._operand_leaves(computation, instruction)
    match instruction.opcode:
      case "get-tuple-element":
        (operand,) = computation.operands(instruction)
        begin = sum(
          _num_leaves(s)
          for s in operand.shape.tuple_shapes[: instruction.tuple_index]
        )
        self._join(leaves, operands[begin:])
      case "tuple" | "bitcast" | "opt-barrier" | "domain" | "async-update":
        self._join(leaves, operands)
      case "add-dependency":
        self._join(leaves, operands[:1])
      case "while" | "call" | "conditional" | "async-start":
        self._join_callees(computation, instruction)
      case opcode if opcode.endswith("-done"):
        (start,) = computation.operands(instruction)[:1]
        self._join(leaves, self._result_leaves(start))
    self._join_repeated(instruction, operands)
    if self._may_write_operands(instruction):
      self._join_equal_sizes(operands, self._result_leaves(instruction))

  def _join_repeated(
    self, instruction: hlo.Instruction, operands: Sequence[int]
  ) -> None:
    """Starts repeat their operands before or after their results."""
    if instruction.opcode == "copy-start":
      self._join(self._leaves[instruction.id][1:2], operands)
    elif _is_start(instruction):
      begin, _ = _result_span(instruction)
      self._join(self._leaves[instruction.id][:begin], operands)

  def _join_callees(
    self, computation: hlo.Computation, instruction: hlo.Instruction
  ) -> None:
    operands = [
      list(self._leaves[o.id]) for o in computation.operands(instruction)
    ]
    leaves = self._leaves[instruction.id]
    if instruction.opcode == "while":
      self._join(leaves, operands[0])
    results = self._result_leaves(instruction)
    for number, callee_id in enumerate(instruction.called_computation_ids):
      callee = self._module.computations[callee_id]
      arguments = operands
      if instruction.opcode == "conditional":
        arguments = [operands[1 + number]]
      for parameter in callee.instructions:
        if parameter.opcode == "parameter":
          self._join(
            self._leaves[parameter.id], arguments[parameter.parameter_number]
          )
      is_condition = instruction.opcode == "while" and number == 1
      if not is_condition:
        self._join(self._leaves[callee.root.id], results)

  def _join_donated(self) -> None:
    entry = self._module.entry
    parameters = {
      i.parameter_number: i
      for i in entry.instructions
      if i.opcode == "parameter"
    }
    for entry_ in self._module.proto.input_output_alias.entries:
      output = self._at(entry.root, entry_.output_shape_index)
      parameter = parameters[entry_.parameter_number]
      self._join(output, self._at(parameter, entry_.parameter_shape_index))

  def _at(
    self, instruction: hlo.Instruction, index: Sequence[int]
  ) -> Sequence[int]:
    """The leaves at a shape index."""
    leaves = self._leaves[instruction.id]
    shape = instruction.shape
    for i in index:
      begin = sum(map(_num_leaves, shape.tuple_shapes[:i]))
      shape = shape.tuple_shapes[i]
      leaves = leaves[begin : begin + _num_leaves(shape)]
    return leaves

  def _may_write_operands(self, instruction: hlo.Instruction) -> bool:
    return bool(
      instruction.opcode in _IN_PLACE
      or instruction.output_operand_aliasing
      or collectives.kind_of(instruction)
      or collectives.payloads(self._module, instruction)
      or self._updates_inside(instruction)
    )

  def _updates_inside(self, instruction: hlo.Instruction) -> bool:
    if instruction.opcode not in ("fusion", "async-start"):
      return False
    return any(
      inner.opcode in _IN_PLACE
      or inner.output_operand_aliasing
      or self._updates_inside(inner)
      for callee in instruction.called_computation_ids
      for inner in self._module.computations[callee].instructions
    )

  def _join_equal_sizes(
    self, operands: Iterable[int], results: Iterable[int]
  ) -> None:
    results = list(results)
    for operand in operands:
      for result in results:
        if self._sizes_bytes[operand] == self._sizes_bytes[result]:
          self._join([operand], [result])

  def _join(self, leaves: Iterable[int], others: Iterable[int]) -> None:
    """Puts leaves together, one by one; the longer list's rest is left."""
    for leaf, other in zip(leaves, others, strict=False):
      self._parent[self._find(leaf)] = self._find(other)

  def _find(self, leaf: int) -> int:
    parent = self._parent
    while parent[leaf] != leaf:
      parent[leaf] = parent[parent[leaf]]
      leaf = parent[leaf]
    return leaf


@functools.lru_cache(maxsize=1)  # One module is looked at again and again.
def of(module: hlo.Module) -> Buffers:
  """The buffers of a module."""
  return Buffers(module)


def _started(
  computation: hlo.Computation, instruction: hlo.Instruction
) -> hlo.Instruction:
  """What a done or update waits for; any other instruction itself."""
  while instruction.opcode.endswith(("-done", "-update")):
    instruction = computation.by_id[instruction.operand_ids[0]]
  return instruction


def _is_start(instruction: hlo.Instruction) -> bool:
  return instruction.opcode.endswith("-start") or instruction.opcode == "send"


def _result_span(instruction: hlo.Instruction) -> tuple[int, int | None]:
  """Where the results are among an instruction's leaves."""
  shapes = instruction.shape.tuple_shapes
  match instruction.opcode:
    case "copy-start" | "recv":
      return 0, 1
    case "all-gather-start" | "collective-permute-start" | "async-start":
      begin = _num_leaves(shapes[0])
      return begin, begin + _num_leaves(shapes[1])
    case "async-update":
      begin = _num_leaves(shapes[0])
      return begin, begin + _num_leaves(shapes[1])
    case "send":
      return 1, None
  return 0, None


def _num_leaves(shape: hlo.Shape) -> int:
  return sum(1 for _ in _leaf_bytes(shape))


def _leaf_bytes(shape: hlo.Shape) -> Iterable[int]:
  """The sizes on the device of the arrays in a shape."""
  if shape.element_type != _TUPLE:
    is_on_host = host_copies.is_on_host(shape)
    yield 0 if is_on_host else hlo.shape_bytes(shape)
    return
  for inner in shape.tuple_shapes:
    yield from _leaf_bytes(inner)
