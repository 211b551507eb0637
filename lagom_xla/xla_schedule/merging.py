# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""New pairs for groups of parts: combined collectives made, others taken apart.

Each group of parts gets a start and a done of its own, with the shapes of its
parts; what used the arrays uses them still. Groups that are a collective
already stay untouched.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from lagom_xla.passes import hlo
from lagom_xla.xla_schedule import editing
from lagom_xla.xla_schedule import parts as parts_lib

Group = tuple[parts_lib.Part, ...]


def regroup(
  editor: editing.Editor,
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
  editor: editing.Editor,
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
  editor: editing.Editor,
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
