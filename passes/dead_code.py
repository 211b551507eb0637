# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Code that a schedule has only because of optimization barriers.

jax.checkpoint puts the operands of a recomputation into one barrier. An operand
that nothing uses after the barrier stays alive with its kernels and
collectives, until XLA drops barriers after scheduling (cse_barrier_expander and
tuple-simplifier in its remat-pipeline). Pipelined loops have whole forward
passes of such code, which never run.
"""

from __future__ import annotations

from collections.abc import Iterator

from lagom_xla.passes import hlo
from lagom_xla.passes import hlo_pb2

_BARRIER = "opt-barrier"
# Opcodes that run no kernel.
_FREE = frozenset([
  "after-all", "bitcast", "constant", "get-tuple-element", _BARRIER, "tuple",
])  # fmt: skip
# XLA keeps these without users (HloInstruction::HasSideEffect).
_KEPT = frozenset([
  "infeed", "outfeed", "parameter", "recv", "recv-done", "rng",
  "rng-get-and-update-state", "send", "send-done",
])  # fmt: skip


def drop(module: hlo.Module) -> hlo.Module:
  """A scheduled module without code that only barriers keep alive.

  It is the module itself if such code runs no kernel. Otherwise orders of it
  are not for XLA's schedule, which still has the code.
  """
  if not module.is_scheduled:
    return module
  live_in = {
    computation.id: _Live(module, computation)
    for computation in module.sequences
    if _BARRIER in computation.opcodes
  }
  if not any(live.has_dead_kernels() for live in live_in.values()):
    return module
  changed = module.copy()
  for computation in changed.proto.computations:
    if live := live_in.get(computation.id):
      _shrink(computation, live)
      sequence = changed.proto.schedule.sequences[computation.id]
      ids = [i for i in sequence.instruction_ids if i in live.ids]
      sequence.instruction_ids[:] = ids
  return changed


class _Live:
  """What a computation needs, with each element of a barrier for itself.

  Attributes:
    ids: instructions that stay.
    elements: barrier, or tuple in one -> its elements that stay.
  """

  def __init__(self, module: hlo.Module, computation: hlo.Computation):
    self._module, self._computation = module, computation
    self.ids: set[int] = set()
    self.elements: dict[int, set[int]] = {}
    self._users: dict[int, list[hlo.Instruction]] = {}
    for instruction in computation.instructions:
      for operand in instruction.operand_ids:
        self._users.setdefault(operand, []).append(instruction)
    todo = [computation.root]
    todo += filter(self._has_side_effect, computation.instructions)
    while todo:
      todo += self._needed_by(todo.pop())

  def has_dead_kernels(self) -> bool:
    """Whether a kernel or collective is not needed."""
    return any(
      instruction.id not in self.ids and instruction.opcode not in _FREE
      for instruction in self._computation.instructions
    )

  def _has_side_effect(self, instruction: hlo.Instruction) -> bool:
    called = instruction.called_computation_ids
    return (
      instruction.opcode in _KEPT
      or instruction.custom_call_has_side_effect
      or any(
        inner.opcode != "parameter" and self._has_side_effect(inner)
        for id_ in called
        for inner in self._module.computations[id_].instructions
      )
    )

  def _needed_by(self, instruction: hlo.Instruction) -> list[hlo.Instruction]:
    """The operands that an instruction needs and that were not needed yet."""
    if instruction.id in self.ids:
      return []
    self.ids.add(instruction.id)
    if instruction.opcode == "get-tuple-element":
      (operand,) = instruction.operand_ids
      return list(self._element(operand, instruction.tuple_index))
    return [o for i in instruction.operand_ids for o in self._whole(i)]

  def _whole(self, id_: int) -> Iterator[hlo.Instruction]:
    """An operand of which every element is needed."""
    operand = self._computation.by_id[id_]
    if self._is_apart(operand):
      for index in range(len(operand.shape.tuple_shapes)):
        yield from self._element(id_, index)
    else:
      yield operand

  def _element(self, id_: int, index: int) -> Iterator[hlo.Instruction]:
    """What one element of an operand needs."""
    operand = self._computation.by_id[id_]
    if not self._is_apart(operand):
      yield operand
      return
    elements = self.elements.setdefault(id_, set())
    self.ids.add(id_)
    if index in elements:
      return
    elements.add(index)
    if operand.opcode == _BARRIER:
      yield from self._element(operand.operand_ids[0], index)
    else:
      yield from self._whole(operand.operand_ids[index])

  def _is_apart(self, instruction: hlo.Instruction) -> bool:
    """Whether each element of a tuple is needed for itself."""
    users = self._users.get(instruction.id, [])
    if instruction.opcode == _BARRIER:
      (operand,) = instruction.operand_ids
      is_tuple = self._is_apart(self._computation.by_id[operand])
      return is_tuple and all(u.opcode == "get-tuple-element" for u in users)
    return instruction.opcode == "tuple" and [u.opcode for u in users] == [
      _BARRIER
    ]


def _shrink(computation: hlo_pb2.HloComputationProto, live: _Live) -> None:
  """Removes what is not live, also from tuples and barriers."""
  places = {
    id_: {index: place for place, index in enumerate(sorted(elements))}
    for id_, elements in live.elements.items()
  }
  for instruction in computation.instructions:
    if instruction.id not in live.ids:
      continue
    if instruction.opcode == "get-tuple-element":
      place_of = places.get(instruction.operand_ids[0])
      if place_of is not None:
        instruction.tuple_index = place_of[instruction.tuple_index]
    elif instruction.id in places:
      indices = sorted(places[instruction.id])
      whole = hlo.Shape()
      whole.CopyFrom(instruction.shape)
      del instruction.shape.tuple_shapes[:]
      instruction.shape.tuple_shapes.extend(
        whole.tuple_shapes[i] for i in indices
      )
      if instruction.opcode == "tuple":
        operands = [instruction.operand_ids[i] for i in indices]
        instruction.operand_ids[:] = operands
    control = [i for i in instruction.control_predecessor_ids if i in live.ids]
    instruction.control_predecessor_ids[:] = control
  whole = hlo_pb2.HloComputationProto()
  whole.CopyFrom(computation)
  del computation.instructions[:]
  computation.instructions.extend(
    i for i in whole.instructions if i.id in live.ids
  )
