# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Buffers: which values may share one, and which instructions access it.

XLA may give several arrays one buffer. It checks, for its own order, that the
old contents are no longer needed when new ones are written. Another order needs
another check, of the accesses that this module gives:

    buffers = aliasing.of(module)
    access = buffers.access(computation, instruction)
    access.reads, access.writes         # buffers, as numbers

This module merges arrays whenever XLA might share a buffer between them, even
if XLA may use separate buffers. A collective, a fusion or a library call counts
as writing in place wherever it could. The rules are conservative forms of XLA's
HloDataflowAnalysis (forwarded values) and AliasInfo (updates in place).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
import dataclasses
import functools

from lagom_xla.passes import collectives
from lagom_xla.passes import copies
from lagom_xla.passes import dependencies
from lagom_xla.passes import hlo


class _Leaves:
  """The arrays in the values of a module's instructions, as numbers.

  An instruction's value is an array or a tuple of arrays and tuples; its leaves
  are the arrays in it, in the order of its shape. Starts of asynchronous
  operations hold their operands beside their results. `sizes_bytes` has each
  leaf's size on the device: 0 for tokens and for arrays in host memory.
  """

  def __init__(self, module: hlo.Module):
    self.sizes_bytes: list[int] = []
    self._of: dict[int, range] = {}
    self._at: dict[int, dict[tuple[int, ...], range]] = {}
    for computation in module.computations.values():
      for instruction in computation.instructions:
        begin = len(self.sizes_bytes)
        self.sizes_bytes += _sizes_bytes(instruction.shape)
        self._of[instruction.id] = range(begin, len(self.sizes_bytes))

  def of(self, instruction: hlo.Instruction) -> Sequence[int]:
    """The leaves of an instruction, in the order of its shape."""
    return self._of[instruction.id]

  def of_operands(self, instruction: hlo.Instruction) -> list[int]:
    """The leaves of all operands, one operand after the other."""
    return [leaf for id_ in instruction.operand_ids for leaf in self._of[id_]]

  def of_results(self, instruction: hlo.Instruction) -> Sequence[int]:
    """The leaves of the results, without those of repeated operands."""
    begin, end = _result_span(instruction)
    return self.of(instruction)[begin:end]

  def at(
    self, instruction: hlo.Instruction, index: Sequence[int]
  ) -> Sequence[int]:
    """The leaves of an instruction at a shape index."""
    if instruction.id not in self._at:
      found = self._at[instruction.id] = {}
      _find_spans(instruction.shape, (), self._of[instruction.id].start, found)
    return self._at[instruction.id][tuple(index)]


def _find_spans(
  shape: hlo.Shape,
  index: tuple[int, ...],
  begin: int,
  found: dict[tuple[int, ...], range],
) -> int:
  """Finds the leaves at each index of a shape; returns where they end."""
  end = begin + (shape.element_type != hlo.TUPLE)
  for at, inner in enumerate(shape.tuple_shapes):
    end = _find_spans(inner, (*index, at), end, found)
  found[index] = range(begin, end)
  return end


def _sizes_bytes(shape: hlo.Shape) -> list[int]:
  if shape.element_type == hlo.TUPLE:
    return [
      size for inner in shape.tuple_shapes for size in _sizes_bytes(inner)
    ]
  return [0 if copies.is_on_host(shape) else hlo.shape_bytes(shape)]


def _result_span(instruction: hlo.Instruction) -> tuple[int, int | None]:
  """Begin and end of the results among an instruction's leaves."""
  match instruction.opcode:
    case "copy-start" | "recv":
      return 0, 1
    case (
      "all-gather-start"
      | "collective-permute-start"
      | "async-start"
      | "async-update"
    ):
      operands, results, *_ = instruction.shape.tuple_shapes
      begin = len(_sizes_bytes(operands))
      return begin, begin + len(_sizes_bytes(results))
    case "send":
      return 1, None
  return 0, None


# These may write into an operand of the size of their result.
_IN_PLACE = frozenset(
  ["dynamic-update-slice", "scatter", "set-dimension-size", "sort"]
)

# These forward their operands, touch no memory and take no time.
FORWARDING = collectives.NOPS - {"partition-id", "replica-id"}

_CALLING = frozenset(["call", "conditional", "while"])


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Access:
  """The buffers that an instruction reads and writes."""

  reads: frozenset[int] = frozenset()
  writes: frozenset[int] = frozenset()

  @property
  def all(self) -> frozenset[int]:
    """All buffers that it touches."""
    return self.reads | self.writes


class Buffers:
  """The buffers of a scheduled module; see the module's docstring."""

  def __init__(self, module: hlo.Module):
    self._module = module
    self._leaves = _Leaves(module)
    self._together: dependencies.DisjointSets[int] = dependencies.DisjointSets()
    self._inside: dict[int, Access] = {}
    self._accesses: dict[int, Access] = {}
    for id_, computation in module.computations.items():
      if id_ in module.executions:  # Nothing is shared inside a kernel.
        for instruction in computation.instructions:
          self._join_instruction(computation, instruction)
    parameters = {i.parameter_number: i for i in module.entry.parameters}
    for alias in module.proto.input_output_alias.entries:
      parameter = parameters[alias.parameter_number]
      self._join(
        self._leaves.at(module.entry.root, alias.output_shape_index),
        self._leaves.at(parameter, alias.parameter_shape_index),
      )

  def of(self, instruction: hlo.Instruction) -> tuple[int, ...]:
    """The buffers of an instruction's arrays, in the order of its shape."""
    return tuple(map(self._together.find, self._leaves.of(instruction)))

  def sizes_bytes(self, instruction: hlo.Instruction) -> tuple[int, ...]:
    """The sizes of an instruction's arrays, in the order of its shape."""
    sizes_bytes = self._leaves.sizes_bytes
    return tuple(sizes_bytes[leaf] for leaf in self._leaves.of(instruction))

  @functools.cached_property
  def num_bytes(self) -> dict[int, int]:
    """The size of each buffer: that of the largest array in it."""
    sizes: dict[int, int] = {}
    for leaf, size in enumerate(self._leaves.sizes_bytes):
      buffer = self._together.find(leaf)
      sizes[buffer] = max(sizes.get(buffer, 0), size)
    return sizes

  def access(
    self, computation: hlo.Computation, instruction: hlo.Instruction
  ) -> Access:
    """The buffers that an instruction reads and writes.

    A collective in flight reads its operands and writes its results until its
    done, so the done counts as doing both again.
    """
    if instruction.id not in self._accesses:
      self._accesses[instruction.id] = self._access(computation, instruction)
    return self._accesses[instruction.id]

  def _access(
    self, computation: hlo.Computation, instruction: hlo.Instruction
  ) -> Access:
    if instruction.opcode in FORWARDING:
      return Access()
    start = instruction
    while start.opcode.endswith(("-done", "-update")):
      start = computation.by_id[start.operand_ids[0]]
    operands = self._touched(self._leaves.of_operands(start))
    if instruction.opcode not in _CALLING:
      results = self._touched(self._leaves.of_results(start))
      return Access(reads=operands, writes=results)
    visible = operands | frozenset(self.of(instruction))
    inside = [
      self._access_inside(i) for i in instruction.called_computation_ids
    ]
    return Access(
      reads=frozenset().union(*(a.reads for a in inside)) & visible,
      writes=frozenset().union(*(a.writes for a in inside)) & visible,
    )

  def _access_inside(self, callee_id: int) -> Access:
    if callee_id not in self._inside:
      callee = self._module.computations[callee_id]
      accesses = [self.access(callee, i) for i in callee.instructions]
      self._inside[callee_id] = Access(
        reads=frozenset().union(*(a.reads for a in accesses)),
        writes=frozenset().union(*(a.writes for a in accesses)),
      )
    return self._inside[callee_id]

  def _touched(self, leaves: Iterable[int]) -> frozenset[int]:
    # Tokens take no memory; data dependence alone orders them.
    sizes_bytes = self._leaves.sizes_bytes
    return frozenset(
      self._together.find(leaf) for leaf in leaves if sizes_bytes[leaf]
    )

  def _join_instruction(
    self, computation: hlo.Computation, instruction: hlo.Instruction
  ) -> None:
    leaves = self._leaves.of(instruction)
    operands = self._leaves.of_operands(instruction)
    match instruction.opcode:
      case "get-tuple-element":
        (operand,) = computation.operands(instruction)
        self._join(leaves, self._leaves.at(operand, [instruction.tuple_index]))
      case "tuple" | "bitcast" | "opt-barrier" | "domain" | "async-update":
        self._join(leaves, operands)
      case "add-dependency":
        self._join(leaves, operands[:1])
      case "while" | "call" | "conditional" | "async-start":
        self._join_callees(computation, instruction)
      case opcode if opcode.endswith("-done"):
        (start,) = computation.operands(instruction)[:1]
        self._join(leaves, self._leaves.of_results(start))
    # Starts repeat their operands before or after their results.
    if instruction.opcode == "copy-start":
      self._join(leaves[1:2], operands)
    elif instruction.opcode.endswith("-start") or instruction.opcode == "send":
      begin, _ = _result_span(instruction)
      self._join(leaves[:begin], operands)
    if self.may_write_operands(instruction):
      sizes_bytes = self._leaves.sizes_bytes
      results = self._leaves.of_results(instruction)
      for operand in operands:
        for result in results:
          if sizes_bytes[operand] == sizes_bytes[result]:
            self._together.join(operand, result)

  def _join_callees(
    self, computation: hlo.Computation, instruction: hlo.Instruction
  ) -> None:
    operands = [self._leaves.of(o) for o in computation.operands(instruction)]
    if instruction.opcode == "while":
      self._join(self._leaves.of(instruction), operands[0])
    results = self._leaves.of_results(instruction)
    for number, callee_id in enumerate(instruction.called_computation_ids):
      callee = self._module.computations[callee_id]
      arguments = operands
      if instruction.opcode == "conditional":
        arguments = [operands[1 + number]]
      for parameter in callee.parameters:
        self._join(
          self._leaves.of(parameter), arguments[parameter.parameter_number]
        )
      is_condition = instruction.opcode == "while" and number == 1
      if not is_condition:
        self._join(self._leaves.of(callee.root), results)

  def may_write_operands(self, instruction: hlo.Instruction) -> bool:
    """Whether it may write into an operand of the size of a result."""
    # A collective may write into its operand's buffer. One in a fusion may not,
    # because the fusion is XLA's own kernel, which may only write into an
    # operand that leads to the result elementwise, or that is updated
    # (GpuAliasInfo in xla/service/gpu/alias_info.cc). Computations that an
    # async-start or a call runs are examined separately.
    return self._updates(instruction) or bool(collectives.kind_of(instruction))

  def _updates(self, instruction: hlo.Instruction) -> bool:
    if instruction.opcode in _IN_PLACE or instruction.output_operand_aliasing:
      return True
    return instruction.opcode in ("fusion", "async-start") and any(
      self._updates(inner)
      for callee in instruction.called_computation_ids
      for inner in self._module.computations[callee].instructions
    )

  def _join(self, leaves: Iterable[int], others: Iterable[int]) -> None:
    """Joins leaves pairwise, up to the end of the shorter list."""
    for leaf, other in zip(leaves, others, strict=False):
      self._together.join(leaf, other)


@functools.lru_cache(maxsize=1)  # Callers ask for the same module repeatedly.
def of(module: hlo.Module) -> Buffers:
  """The buffers of a module."""
  return Buffers(module)
