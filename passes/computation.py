# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Computations of an HLO module: their instructions, in the order they run.

XLA writes how many trips a `while` makes into its backend_config
(known_trip_count), and updates it when it double-buffers, pipelines or peels
the loop. Modules from before that analysis carry only the loop itself, and
pipelining loses the count of a loop around pipelined ones; there, the plain
counting loop that `lax.scan` and `lax.fori_loop` lower to is recognised, in
fusions too.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping, Sequence
import dataclasses
import functools
import math
from typing import Any

from lagom_xla.passes import hlo_pb2


@dataclasses.dataclass(frozen=True, slots=True)
class Trips:
  """How often a loop runs, and whether it runs its condition.

  Attributes:
    num: iterations; None where they are not known.
    asks_condition: False where XLA wrote down how many they are: such a loop
      is run so often and never asks (XLA's WhileThunks, of GPUs and CPUs).
  """

  num: int | None
  asks_condition: bool


def trips_of_loop(
  loop: hlo_pb2.HloInstructionProto,
  siblings: Mapping[int, hlo_pb2.HloInstructionProto],
  *,
  body: hlo_pb2.HloComputationProto,
  condition: hlo_pb2.HloComputationProto,
  computations: Mapping[int, hlo_pb2.HloComputationProto],
  backend_config: Mapping[str, Any],
) -> Trips:
  """The trips of `loop`.

  Args:
    loop: a `while` instruction.
    siblings: the instructions of the loop's computation, by id.
    body: the computation that is repeated.
    condition: the computation that decides whether to go on.
    computations: those that the two call, by id.
    backend_config: the loop's backend_config.
  """
  known = backend_config.get("known_trip_count", {}).get("n")
  if known is not None:
    return Trips(int(known), asks_condition=False)
  counted = _counting_loop(loop, siblings, body, condition, computations)
  return Trips(counted, asks_condition=True)


def _counting_loop(
  loop: hlo_pb2.HloInstructionProto,
  siblings: Mapping[int, hlo_pb2.HloInstructionProto],
  body: hlo_pb2.HloComputationProto,
  condition: hlo_pb2.HloComputationProto,
  computations: Mapping[int, hlo_pb2.HloComputationProto],
) -> int | None:
  """Recognises `for (i = init; i < bound; i += step)` over constants."""
  of_condition = _Terms(_by_id(condition), computations)
  match of_condition.of(condition.root_id):
    case ("compare", ("element", int(counter)), ("constant", int(bound))):
      pass
    case _:
      return None
  of_body, of_loop_ = _Terms(_by_id(body), computations), _Terms(siblings, {})
  root, carried = of_body.by_id[body.root_id], siblings[loop.operand_ids[0]]
  if root.opcode != "tuple" or carried.opcode != "tuple":
    return None
  init = of_loop_.of(carried.operand_ids[counter])
  match init, of_body.of(root.operand_ids[counter]):
    case (
      ("constant", int(start)),
      ("add", ("element", added_to), ("constant", int(step)))
      | ("add", ("constant", int(step)), ("element", added_to)),
    ) if added_to == counter and step > 0:
      return max(math.ceil((bound - start) / step), 0)
    case _:
      return None


# What counting takes: ("constant", value), ("element", index of the loop's
# state), or an opcode with the terms of its operands.
_Term = tuple[Any, ...]
_UNKNOWN: _Term = ("unknown",)


class _Terms:
  """Values of a computation as terms; fusions and copies are looked through."""

  def __init__(
    self,
    by_id: Mapping[int, hlo_pb2.HloInstructionProto],
    computations: Mapping[int, hlo_pb2.HloComputationProto],
    parameters: Sequence[_Term] = (),
  ):
    self.by_id = by_id
    self._computations = computations
    self._parameters = parameters

  def of(self, instruction_id: int) -> _Term:
    """The term of an instruction's value."""
    instruction = self.by_id[instruction_id]
    match instruction.opcode:
      case "constant":
        value = _scalar(instruction)
        return _UNKNOWN if value is None else ("constant", value)
      case "get-tuple-element":
        return ("element", instruction.tuple_index)
      case "copy" | "bitcast":
        return self.of(instruction.operand_ids[0])
      case "parameter" if self._parameters:
        return self._parameters[instruction.parameter_number]
      case "compare" if instruction.comparison_direction != "LT":
        return _UNKNOWN
      case "add" | "compare":
        return (instruction.opcode, *map(self.of, instruction.operand_ids))
      case "fusion":
        return self._of_fusion(instruction)
    return _UNKNOWN

  def _of_fusion(self, fusion: hlo_pb2.HloInstructionProto) -> _Term:
    (callee_id,) = fusion.called_computation_ids
    callee = self._computations.get(callee_id)
    if callee is None:
      return _UNKNOWN
    parameters = tuple(map(self.of, fusion.operand_ids))
    inside = _Terms(_by_id(callee), self._computations, parameters)
    return inside.of(callee.root_id)


def _by_id(
  computation: hlo_pb2.HloComputationProto,
) -> Mapping[int, hlo_pb2.HloInstructionProto]:
  return {i.id: i for i in computation.instructions}


def _scalar(instruction: hlo_pb2.HloInstructionProto) -> int | None:
  """The value of an integer constant."""
  if instruction.opcode != "constant":
    return None
  literal = instruction.literal
  for values in (literal.s32s, literal.s64s, literal.u32s, literal.u64s):
    if len(values) == 1:
      return int(values[0])
  return None


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
