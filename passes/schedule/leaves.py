# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Leaves: the arrays of a module, each with a number.

An instruction's value is an array or a tuple of arrays and tuples; its leaves
are the arrays in it, in the order of its shape. Starts of asynchronous
operations hold their operands beside their results.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from lagom_xla.passes import copies
from lagom_xla.passes import hlo


class Leaves:
  """The leaves of a module.

  Attributes:
    sizes_bytes: of each leaf, on the device: 0 for tokens, and for arrays in
      the host's memory.
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

  def of_operands(
    self, computation: hlo.Computation, instruction: hlo.Instruction
  ) -> list[int]:
    """The leaves of all operands, one operand after the other."""
    return [
      leaf
      for operand in computation.operands(instruction)
      for leaf in self.of(operand)
    ]

  def of_results(self, instruction: hlo.Instruction) -> Sequence[int]:
    """The leaves that are new, of an instruction that may hold operands."""
    begin, end = result_span(instruction)
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


def num_leaves(shape: hlo.Shape) -> int:
  """How many arrays a shape has."""
  if shape.element_type != hlo.TUPLE:
    return 1
  return sum(map(num_leaves, shape.tuple_shapes))


def result_span(instruction: hlo.Instruction) -> tuple[int, int | None]:
  """Where the results are among an instruction's leaves: begin and end."""
  shapes = instruction.shape.tuple_shapes
  match instruction.opcode:
    case "copy-start" | "recv":
      return 0, 1
    case (
      "all-gather-start"
      | "collective-permute-start"
      | "async-start"
      | "async-update"
    ):
      begin = num_leaves(shapes[0])
      return begin, begin + num_leaves(shapes[1])
    case "send":
      return 1, None
  return 0, None


def _sizes_bytes(shape: hlo.Shape) -> Iterator[int]:
  if shape.element_type != hlo.TUPLE:
    is_on_host = copies.is_on_host(shape)
    yield 0 if is_on_host else hlo.shape_bytes(shape)
    return
  for inner in shape.tuple_shapes:
    yield from _sizes_bytes(inner)
