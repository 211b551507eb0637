# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Computations of an HLO module: their instructions, in the order they run."""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping, Sequence
import dataclasses
import functools

from lagom_xla.passes import hlo_pb2

Instruction = hlo_pb2.HloInstructionProto


@dataclasses.dataclass(frozen=True, eq=False)
class Computation:
  """One computation. Instructions are in schedule order when scheduled."""

  proto: hlo_pb2.HloComputationProto
  instructions: tuple[Instruction, ...]

  @property
  def id(self) -> int:
    """Unique among the computations of a module."""
    return self.proto.id

  @property
  def name(self) -> str:
    """As XLA prints it."""
    return self.proto.name

  @functools.cached_property
  def by_id(self) -> Mapping[int, Instruction]:
    """The instructions, by id."""
    return {i.id: i for i in self.instructions}

  @functools.cached_property
  def position(self) -> Mapping[int, int]:
    """Index in `instructions`, by instruction id."""
    return {i.id: index for index, i in enumerate(self.instructions)}

  @functools.cached_property
  def opcodes(self) -> frozenset[str]:
    """Opcodes of the instructions, to skip a computation quickly."""
    return frozenset(i.opcode for i in self.instructions)

  @functools.cached_property
  def last_id(self) -> int:
    """The largest of its own id and those of its instructions."""
    return max(self.id, *(i.id for i in self.proto.instructions))

  def reordered(self, order: Sequence[int]) -> Computation:
    """The computation with its instructions in another order, by their ids."""
    return Computation(self.proto, tuple(self.by_id[id_] for id_ in order))

  @property
  def root(self) -> Instruction:
    """The instruction whose value the computation returns."""
    return self.by_id[self.proto.root_id]

  @property
  def loops(self) -> Iterator[Instruction]:
    """The `while` instructions."""
    if "while" in self.opcodes:
      yield from (i for i in self.instructions if i.opcode == "while")

  def operands(self, instruction: Instruction) -> list[Instruction]:
    """The instructions whose values one of this computation takes."""
    return [self.by_id[i] for i in instruction.operand_ids]

  def behind(
    self, instruction: Instruction, opcodes: Container[str]
  ) -> Instruction:
    """What makes a value that instructions of these opcodes pass on.

    Those that put several values together end the way.
    """
    while instruction.opcode in opcodes and len(instruction.operand_ids) == 1:
      instruction = self.by_id[instruction.operand_ids[0]]
    return instruction
