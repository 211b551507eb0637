# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Collectives of a scheduled module, combined as given groups say.

What comes out has the right kernels, collectives and dependences; it is only
scheduled and replayed, and XLA would not accept it. A combined collective moves
several arrays; each of them is a part that could be alone. Each group of parts
gets a start and a done of its own, with the shapes of its parts; what used the
arrays uses them still. Groups that are a collective already stay untouched.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
import dataclasses
import json

from lagom_xla.passes import collectives as collectives_lib
from lagom_xla.passes import combine
from lagom_xla.passes import dependencies
from lagom_xla.passes import hlo
from lagom_xla.passes.combine import table


class _Editor:
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
    """A copy under a name and an id of its own; it refers to what replaced."""
    new = hlo.Instruction()
    new.CopyFrom(instruction)
    new.id = self.new_id()
    new.name = instruction.name + suffix
    for ids in (new.operand_ids, new.control_predecessor_ids):
      ids[:] = [(replaced or {}).get(id_, id_) for id_ in ids]
    return new

  def new_id(self) -> int:
    """An id that nothing in the module has."""
    self._next_id += 1
    return self._next_id - 1

  def add_computation(self, proto: hlo.hlo_pb2.HloComputationProto) -> None:
    """Adds a computation that is not scheduled on its own."""
    self._proto.computations.append(proto)
    sequence = self._proto.schedule.sequences[proto.id]
    sequence.instruction_ids[:] = [i.id for i in proto.instructions]

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


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True, slots=True)
class Part:
  """One array of a collective.

  Attributes:
    collective: that it is a part of so far.
    index: which of its arrays.
    operand_id: the instruction whose value it sends.
    traits: what it must have in common with what it is combined with.
    shape: of what arrives.
  """

  collective: collectives_lib.Collective
  index: int
  operand_id: int
  traits: table.Traits
  shape: hlo.Shape

  @property
  def kind(self) -> str:
    """HLO opcode of the collective."""
    return self.collective.kind

  @property
  def num_bytes(self) -> int:
    """Bytes that arrive, which is what XLA's combiners count."""
    return hlo.shape_bytes(self.shape)


def of_collective(
  module: hlo.Module,
  graph: dependencies.Graph,
  collective: collectives_lib.Collective,
) -> tuple[Part, ...]:
  """The parts of a collective; () where it cannot be divided.

  That is where another computation waits for it, or where its arrays are used
  as a whole.
  """
  by_id = graph.computation.by_id
  if collective.done_id is None:
    return ()
  done = by_id[collective.done_id].shape
  arrays = list(done.tuple_shapes) or [done]
  users = [by_id[id_] for id_ in graph.users[collective.done_id]]
  is_taken_apart = all(u.opcode == "get-tuple-element" for u in users)
  if len(arrays) > 1 and not is_taken_apart:
    return ()
  start = by_id[collective.start_id]
  operation = start
  for _, inside in collectives_lib.payloads(module, start):
    operation = inside
  reduction = table.reduction(module, operation)
  return tuple(
    Part(
      collective=collective,
      index=index,
      operand_id=start.operand_ids[index],
      traits=table.traits_of_collective(
        collective,
        element_type=hlo.element_type(shape),
        reduction=reduction,
        key=combine.program_key(operation) or combine.program_key(start),
      ),
      shape=shape,
    )
    for index, shape in enumerate(arrays)
  )


Group = tuple[Part, ...]


def regroup(
  editor: _Editor,
  computation: hlo.Computation,
  groups: Sequence[Group],
) -> None:
  """Makes a start and a done for each group that is not a collective yet.

  Args:
    editor: of the computation's module.
    computation: as it was before any edit.
    groups: every part of each collective that has a part in a new group.

  Raises:
    ValueError: a group depends on itself.
  """
  new = [group for group in groups if not _exists(group)]
  if not new:
    return
  instructions = editor.instructions(computation.id)
  by_id = {i.id: i for i in instructions}
  pairs = [
    _pair(editor, by_id, group, f".group{at}") for at, group in enumerate(new)
  ]
  _rewire(instructions, new, pairs)
  instructions[:] = _in_order(computation, instructions)


def _exists(group: Group) -> bool:
  """Whether a group is a collective as it is."""
  collective = group[0].collective
  return len(group) == collective.num_operands and all(
    p.collective is collective and p.index == at for at, p in enumerate(group)
  )


def _pair(
  editor: _Editor,
  by_id: Mapping[int, hlo.Instruction],
  group: Group,
  suffix: str,
) -> tuple[hlo.Instruction, hlo.Instruction]:
  """A start and a done that move the parts of a group."""
  collective = group[0].collective
  assert collective.done_id is not None
  start = editor.copy(by_id[collective.start_id], suffix)
  done = editor.copy(
    by_id[collective.done_id], suffix, replaced={collective.start_id: start.id}
  )
  start.operand_ids[:] = [part.operand_id for part in group]
  controls = {
    id_
    for part in group
    for id_ in by_id[part.collective.start_id].control_predecessor_ids
  }
  start.control_predecessor_ids[:] = sorted(controls)
  operands = [by_id[part.operand_id].shape for part in group]
  results = [part.shape for part in group]
  done.shape.CopyFrom(_joined(results))
  match start.opcode:
    case "all-gather-start":
      shape = _tuple([_joined(operands), _joined(results)])
    case "async-start":
      rest = by_id[collective.start_id].shape.tuple_shapes[2:]
      shape = _tuple([_tuple(operands), _joined(results), *rest])
      _wrap(editor, start, operands, results)
    case _:
      shape = _joined(results)
  start.shape.CopyFrom(shape)
  config = editor.module.backend_config(start)
  editor.set_config(start, {**config, "reification_cost": []})
  return start, done


def _wrap(
  editor: _Editor,
  start: hlo.Instruction,
  operands: Sequence[hlo.Shape],
  results: Sequence[hlo.Shape],
) -> None:
  """Gives an async-start a computation of its own."""
  wrapped = editor.module.computations[start.called_computation_ids[0]]
  computation = hlo.hlo_pb2.HloComputationProto()
  computation.id = editor.new_id()
  computation.name = f"{wrapped.name}.{computation.id}"
  computation.execution_thread = wrapped.proto.execution_thread
  parameter = next(i for i in wrapped.instructions if i.opcode == "parameter")
  operation = editor.copy(wrapped.root, f".{computation.id}")
  operation.shape.CopyFrom(_joined(results))
  operation.operand_ids[:] = []
  for index, shape in enumerate(operands):
    copy = editor.copy(parameter, f".{computation.id}.{index}")
    copy.parameter_number = index
    copy.shape.CopyFrom(shape)
    operation.operand_ids.append(copy.id)
    computation.instructions.append(copy)
  computation.instructions.append(operation)
  computation.root_id = operation.id
  editor.add_computation(computation)
  start.called_computation_ids[:] = [computation.id]


def _rewire(
  instructions: list[hlo.Instruction],
  groups: Sequence[Group],
  pairs: Sequence[tuple[hlo.Instruction, hlo.Instruction]],
) -> None:
  """Puts the new pairs in place of the old ones.

  A start goes right after what it sends; a done, and what takes an array out
  of it, to the end, from where `_in_order` fetches them for their first user.
  That is where XLA has them before it schedules for latency.
  """
  position = {i.id: at for at, i in enumerate(instructions)}
  # What stands for an array: (id of its done, index) -> new done, index there.
  arrays: dict[tuple[int, int], tuple[hlo.Instruction, int]] = {}
  stands_for: dict[int, int] = {}
  gone: set[int] = set()
  sent_by: dict[int, list[hlo.Instruction]] = {}
  for group, (start, done) in zip(groups, pairs, strict=True):
    for index, part in enumerate(group):
      old = part.collective
      assert old.done_id is not None
      arrays[old.done_id, part.index] = done, index if len(group) > 1 else -1
      stands_for.setdefault(old.start_id, start.id)
      gone.add(old.start_id)
      if old.num_operands > 1:
        stands_for.setdefault(old.done_id, done.id)
        gone.add(old.done_id)
    last = max(start.operand_ids, key=lambda id_: position[id_])
    sent_by.setdefault(last, []).append(start)
  kept: list[hlo.Instruction] = []
  fetched = [done for _, done in pairs]
  for instruction in instructions:
    if instruction.opcode == "get-tuple-element":
      place = instruction.operand_ids[0], instruction.tuple_index
    else:
      place = instruction.id, 0
    if instruction.id in gone:
      pass
    elif place in arrays:
      _become_element(instruction, *arrays[place])
      fetched.append(instruction)
    else:
      kept.append(instruction)
    kept += sent_by.get(instruction.id, ())
  instructions[:] = [*kept, *fetched]
  for instruction in instructions:
    controls = instruction.control_predecessor_ids
    if controls:
      controls[:] = [stands_for.get(id_, id_) for id_ in controls]


def _become_element(
  instruction: hlo.Instruction, done: hlo.Instruction, index: int
) -> None:
  """Turns an instruction into one that takes an array out of a done."""
  instruction.opcode = "get-tuple-element" if index >= 0 else "bitcast"
  instruction.operand_ids[:] = [done.id]
  instruction.tuple_index = max(index, 0)
  if not instruction.name.startswith("get-tuple-element"):
    instruction.name += ".element"


def _in_order(
  computation: hlo.Computation,
  instructions: Sequence[hlo.Instruction],
) -> list[hlo.Instruction]:
  """The instructions after what they depend on, else in the order given.

  Of several that are fetched for one user, that of its last operand is first.
  """
  by_id = {i.id: i for i in instructions}
  placed: set[int] = set()
  entered: set[int] = set()
  ordered: list[hlo.Instruction] = []
  for root in instructions:
    stack = [root]
    while stack:
      instruction = stack[-1]
      id_ = instruction.id
      if id_ in placed:
        stack.pop()
        continue
      waiting = [
        before
        for before in (
          *instruction.operand_ids,
          *instruction.control_predecessor_ids,
        )
        if before not in placed
      ]
      if not waiting:
        placed.add(id_)
        ordered.append(instruction)
        stack.pop()
        continue
      if id_ in entered:
        raise ValueError(
          f"Collectives of {computation.name} cannot be combined: one"
          f" depends on another through {instruction.name}."
        )
      entered.add(id_)
      stack.extend(by_id[before] for before in waiting)
  return ordered


def _joined(shapes: Sequence[hlo.Shape]) -> hlo.Shape:
  return shapes[0] if len(shapes) == 1 else _tuple(shapes)


def _tuple(shapes: Sequence[hlo.Shape]) -> hlo.Shape:
  return hlo.Shape(element_type=hlo.TUPLE, tuple_shapes=shapes)


# Kinds whose pairs are taken apart and combined here: of those that XLA has
# combiners for, all that go among groups of devices.
KINDS = tuple(k for k in table.COMBINERS if k != "collective-permute")


def combine_collectives(
  module: hlo.Module, groups: Sequence[Sequence[str]]
) -> hlo.Module:
  """A scheduled module with groups of its collectives combined.

  Args:
    module: scheduled.
    groups: names of the instructions that start what is to be combined; the
      rest stays as it is.

  Raises:
    ValueError: a group cannot be combined.
  """
  if not groups:
    return module
  found: dict[str, list[collectives_lib.Collective]] = {}
  for collective in collectives_lib.find(module):
    if collective.kind in KINDS and collective.done_id is not None:
      found.setdefault(collective.computation, []).append(collective)
  given = _by_computation(found, groups)
  editor = _Editor(module)
  for computation in module.computations.values():
    if computation.name in found:
      grouping = _Grouping(module, computation, found[computation.name])
      grouping.take(given.get(computation.name, ()))
      grouping.keep_rest()
      regroup(editor, computation, grouping.groups)
  return editor.finish()


def _by_computation(
  found: Mapping[str, Sequence[collectives_lib.Collective]],
  groups: Sequence[Sequence[str]],
) -> dict[str, list[Sequence[str]]]:
  home = {c.name: name for name, inside in found.items() for c in inside}
  given: dict[str, list[Sequence[str]]] = {}
  for group in groups:
    for name in group:
      if name not in home:
        raise ValueError(
          f"No collective called {name} can be combined: a group names the"
          f" instructions that start {', '.join(KINDS)}."
        )
    homes = sorted({home[name] for name in group})
    if len(homes) > 1:
      raise ValueError(
        f"{', '.join(group)} cannot be combined: they are in different"
        f" computations, {', '.join(homes)}."
      )
    for name in homes:
      given.setdefault(name, []).append(group)
  return given


class _Grouping:
  """The parts of one computation, grouped one group after the other.

  Attributes:
    groups: of parts that are combined; those made so far.
  """

  def __init__(
    self,
    module: hlo.Module,
    computation: hlo.Computation,
    collectives: Sequence[collectives_lib.Collective],
  ):
    graph = dependencies.of(computation)
    # In the order of the proto, which is topological and closest to the one
    # that XLA's combiners went through.
    written = {i.id: at for at, i in enumerate(computation.proto.instructions)}
    self._parts = [
      part
      for collective in sorted(collectives, key=lambda c: written[c.start_id])
      for part in of_collective(module, graph, collective)
    ]
    self._bit = {part: 1 << at for at, part in enumerate(self._parts)}
    self._needed = self._needs(graph)
    self.groups: list[Group] = []

  def take(self, given: Iterable[Sequence[str]]) -> None:
    """Groups the collectives of these names."""
    for names in given:
      group = tuple(p for p in self._left() if p.collective.name in names)
      traits = {part.traits for part in group}
      if len({p.collective.name for p in group}) < len(set(names)):
        raise ValueError(
          f"{', '.join(names)} cannot be combined: one of them is in two"
          " groups, or is used as a whole."
        )
      if len(traits) > 1 or any(self._depends(p, group) for p in group):
        raise ValueError(
          f"{', '.join(names)} cannot be combined: they differ in kind,"
          " device groups or type, or one depends on another."
        )
      self._add(group)

  def keep_rest(self) -> None:
    """Leaves the other collectives as they are."""
    kept: dict[str, list[Part]] = {}
    for part in self._left():
      kept.setdefault(part.collective.name, []).append(part)
    self.groups += map(tuple, kept.values())

  def _left(self) -> list[Part]:
    taken = {part for group in self.groups for part in group}
    return [part for part in self._parts if part not in taken]

  def _depends(self, part: Part, on: Iterable[Part]) -> bool:
    needed = self._needed[part]
    return any(needed & self._bit[other] for other in on)

  def _add(self, group: Group) -> None:
    """Adds a group; what depends on one part now depends on all."""
    self.groups.append(group)
    if len(group) == 1:
      return
    mask = needs = 0
    for part in group:
      mask |= self._bit[part]
      needs |= self._needed[part]
    for part, needed in self._needed.items():
      if needed & mask or part in group:
        self._needed[part] |= needs
      if needed & mask:
        self._needed[part] |= mask

  def _needs(self, graph: dependencies.Graph) -> dict[Part, int]:
    """The parts that each one depends on, as bits."""
    parts_of: dict[int, list[Part]] = {}
    for part in self._parts:
      assert part.collective.done_id is not None
      parts_of.setdefault(part.collective.start_id, []).append(part)
      parts_of.setdefault(part.collective.done_id, []).append(part)
    needed: dict[Part, int] = {}
    reached: dict[int, int] = {}
    for instruction in graph.computation.instructions:
      id_ = instruction.id
      inside = parts_of.get(id_)
      bits = 0
      if inside is None:
        for before in graph.predecessors[id_]:
          bits |= reached[before]
        if instruction.opcode == "get-tuple-element":
          for part in parts_of.get(instruction.operand_ids[0], ()):
            if part.index == instruction.tuple_index:
              bits = needed[part] | self._bit[part]
      elif id_ == inside[0].collective.start_id:
        for before in graph.control_predecessors[id_]:
          bits |= reached[before]
        for part in inside:
          needed[part] = bits | reached[part.operand_id]
      else:
        for part in inside:
          bits |= needed[part] | self._bit[part]
      reached[id_] = bits
    return needed
