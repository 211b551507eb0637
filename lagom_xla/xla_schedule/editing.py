# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Edits of a copy of a scheduled module, to predict another schedule.

What comes out has the right kernels, collectives and dependences; it need not
compute the right thing, and XLA would not accept it: shapes of loop state are
not kept up to date, and copies of a fusion share its computation. It is only
scheduled and replayed. Copies of a loop have bodies of their own: each may be
edited in its turn.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
import json

from lagom_xla.passes import collectives as collectives_lib
from lagom_xla.passes import hlo

# What runs computations that have schedules of their own.
_RUNS_SCHEDULES = frozenset({"while", "call", "conditional"})


class Editor:
  """An editor of a copy of a module; the module itself stays as it is.

  Attributes:
    module: the module that it started from.
  """

  def __init__(self, module: hlo.Module):
    self.module = module
    self._proto = hlo.hlo_pb2.HloModuleProto()
    self._proto.CopyFrom(module.proto)
    self._edited: dict[int, list[hlo.Instruction]] = {}
    self._next_id = 1 + max(c.last_id for c in module.computations.values())

  def instructions(self, computation_id: int) -> list[hlo.Instruction]:
    """The schedule of a computation, to be edited in place."""
    if computation_id not in self._edited:
      proto = self._computation(computation_id)
      by_id = {i.id: i for i in proto.instructions}
      known = self._proto.schedule.sequences
      ids = known[computation_id].instruction_ids
      self._edited[computation_id] = [by_id[id_] for id_ in ids]
    return self._edited[computation_id]

  def _computation(self, id_: int) -> hlo.hlo_pb2.HloComputationProto:
    return next(c for c in self._proto.computations if c.id == id_)

  def copy(
    self,
    instruction: hlo.Instruction,
    suffix: str,
    *,
    replaced: Mapping[int, int] | None = None,
  ) -> hlo.Instruction:
    """A copy under a name and an id of its own.

    Args:
      instruction: what to copy.
      suffix: what to append to its name; with it, the name must be new.
      replaced: ids that the copy refers to others instead of.
    """
    new = hlo.Instruction()
    new.CopyFrom(instruction)
    new.id = self.new_id()
    new.name = instruction.name + suffix
    for ids in (new.operand_ids, new.control_predecessor_ids):
      ids[:] = [(replaced or {}).get(id_, id_) for id_ in ids]
    self._give_own_computations(new, suffix)
    return new

  def _give_own_computations(
    self, instruction: hlo.Instruction, suffix: str
  ) -> None:
    """Copies what an instruction runs of which a loop can be a part."""
    if instruction.opcode in _RUNS_SCHEDULES:
      instruction.called_computation_ids[:] = [
        self._copied(id_, suffix) for id_ in instruction.called_computation_ids
      ]

  def _copied(self, computation_id: int, suffix: str) -> int:
    """Copies a computation that is not edited; returns the copy's id."""
    new = hlo.hlo_pb2.HloComputationProto()
    new.CopyFrom(self._computation(computation_id))
    new.id, new.name = self.new_id(), new.name + suffix
    ids = {i.id: self.new_id() for i in new.instructions}
    new.root_id = ids[new.root_id]
    for instruction in new.instructions:
      instruction.id = ids[instruction.id]
      instruction.name += suffix
      for refers in (
        instruction.operand_ids,
        instruction.control_predecessor_ids,
      ):
        refers[:] = [ids[id_] for id_ in refers]
      self._give_own_computations(instruction, suffix)
    sequences = self._proto.schedule.sequences
    order = sequences[computation_id].instruction_ids
    sequences[new.id].instruction_ids[:] = [ids[id_] for id_ in order]
    self._proto.computations.append(new)
    return new.id

  def new_id(self) -> int:
    """An id that nothing in the module has."""
    self._next_id += 1
    return self._next_id - 1

  def make(
    self,
    opcode: str,
    name: str,
    operand_ids: Iterable[int],
    *,
    shape: hlo.Shape | None = None,
    tuple_index: int = 0,
  ) -> hlo.Instruction:
    """A new instruction."""
    return hlo.Instruction(
      id=self.new_id(),
      name=name,
      opcode=opcode,
      operand_ids=operand_ids,
      shape=shape,
      tuple_index=tuple_index,
    )

  def set_root(self, computation_id: int, instruction_id: int) -> None:
    """Says what a computation returns."""
    self._computation(computation_id).root_id = instruction_id

  def add_computation(self, proto: hlo.hlo_pb2.HloComputationProto) -> None:
    """Adds a computation that is not scheduled on its own."""
    self._proto.computations.append(proto)
    sequence = self._proto.schedule.sequences[proto.id]
    sequence.instruction_ids[:] = [i.id for i in proto.instructions]

  def set_trip_count(self, loop: hlo.Instruction, num_trips: int) -> None:
    """Says how often a loop of this module runs."""
    config = self.module.backend_config(loop)
    config["known_trip_count"] = {"n": str(num_trips)}
    self.set_config(loop, config)

  def set_config(
    self, instruction: hlo.Instruction, config: Mapping[str, object]
  ) -> None:
    """Gives an instruction a backend_config."""
    instruction.backend_config_payload.value = json.dumps(config).encode()

  def finish(self) -> hlo.Module:
    """The edited module; the editor is not to be used any more."""
    for proto in self._proto.computations:
      edited = self._edited.get(proto.id)
      if edited is None:
        continue
      sequence = self._proto.schedule.sequences[proto.id]
      sequence.instruction_ids[:] = [i.id for i in edited]
      kept = [i.SerializeToString() for i in edited]
      del proto.instructions[:]
      for serialized in kept:
        proto.instructions.add().MergeFromString(serialized)
    shared = {
      id_: computation
      for id_, computation in self.module.computations.items()
      if id_ not in self._edited
    }
    num_devices = collectives_lib.num_devices(self.module)
    return hlo.Module(self._proto, num_devices, shared)
