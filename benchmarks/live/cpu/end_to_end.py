# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Rewrite pass that concatenates arrays and reduces them as one.

XLA:CPU passes the arrays of a combined all-reduce to gloo one by one, so each
pays a latency (xla/backends/cpu/runtime). One flat array pays it once:

    a = f32[2,4] all-reduce(x)
    b = f32[4] all-reduce(y)
 →  flat = f32[12] concatenate(bitcast(x), bitcast(y))
    both = f32[12] all-reduce(flat)
    a = f32[2,4] bitcast(slice(both, 0:8))
    b = f32[4] bitcast(slice(both, 8:12))

A bitcast keeps an array's memory, whatever its layout. Every element is still
the sum of the same numbers. Two devices give the same bits; more than two may
add in another order, because of gloo's ring.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from lagom_xla.passes import edit
from lagom_xla.passes import hlo
from lagom_xla.passes import hlo_pb2
from lagom_xla.passes.combine import combinable


def rewrite(module: hlo.Module, groups: combinable.Groups) -> bytes:
  """The module with one flat all-reduce for each group, and none of tuples.

  Raises:
    CombineError: the module cannot have these groups.
  """
  copy = split_apart(module)
  candidates = combinable.find(copy)
  combinable.check(candidates, groups)
  merged: dict[int, list[list[hlo.Instruction]]] = {}
  for group in groups:
    members = [candidates[label] for label in group]
    merged.setdefault(members[0].computation_id, []).append(
      [member.instruction for member in members]
    )
  editor = edit.Editor(copy)
  for computation_id, members_of in merged.items():
    computation = copy.computations[computation_id]
    instructions = {i.id: i for i in computation.instructions}
    for members in members_of:
      for instruction in _flat(computation, members, editor):
        instructions[instruction.id] = instruction
    edit.replace_instructions(computation, instructions.values())
  return copy.proto.SerializeToString()


def split_apart(module: hlo.Module) -> hlo.Module:
  """A copy of a module in which every all-reduce has one array."""
  copy = module.copy()
  editor = edit.Editor(copy)
  for computation in copy.computations.values():
    instructions: list[hlo.Instruction] = []
    parts_of: dict[int, list[hlo.Instruction]] = {}
    for instruction in computation.instructions:
      is_shared = len(instruction.operand_ids) > 1
      if instruction.opcode == "all-reduce" and is_shared:
        parts = _parts(computation, instruction, editor)
        parts_of[instruction.id] = parts
        instructions += parts
        # For users of the whole tuple.
        instruction = hlo.Instruction(
          name=editor.new_name("tuple"),
          opcode="tuple",
          shape=instruction.shape,
          id=instruction.id,
          operand_ids=[part.id for part in parts],
        )
      instructions.append(instruction)
    element_of = {
      i.id: parts_of[i.operand_ids[0]][i.tuple_index].id
      for i in instructions
      if i.opcode == "get-tuple-element" and i.operand_ids[0] in parts_of
    }
    if parts_of:
      edit.forward(computation, instructions, element_of)
  return hlo.Module(copy.proto, module.num_partitions)


def _parts(
  computation: hlo.Computation,
  instruction: hlo.Instruction,
  editor: edit.Editor,
) -> list[hlo.Instruction]:
  """A collective of several arrays as one collective for each."""
  parts = []
  for index, operand in enumerate(instruction.operand_ids):
    part = hlo.Instruction()
    part.CopyFrom(instruction)
    part.id = editor.new_id(computation)
    part.name = editor.new_name(f"{instruction.name}.{index}")
    part.shape.CopyFrom(instruction.shape.tuple_shapes[index])
    part.operand_ids[:] = [operand]
    if index and part.channel_id:
      part.channel_id = editor.new_channel()
    parts.append(part)
  return parts


def _flat(
  computation: hlo.Computation,
  members: Sequence[hlo.Instruction],
  editor: edit.Editor,
) -> list[hlo.Instruction]:
  """The replacements of the members, each with the member's id."""

  def new(
    opcode: str, num_elements: int, operand_ids: Iterable[int]
  ) -> hlo.Instruction:
    return hlo.Instruction(
      name=editor.new_name(opcode),
      opcode=opcode,
      shape=hlo.Shape(
        element_type=members[0].shape.element_type,
        dimensions=[num_elements],
        layout=hlo_pb2.LayoutProto(minor_to_major=[0]),
      ),
      id=editor.new_id(computation),
      operand_ids=operand_ids,
    )

  num_elements = [hlo.num_elements(member.shape) for member in members]
  ends = [sum(num_elements[: n + 1]) for n in range(len(members))]
  flats = [
    new("bitcast", number, member.operand_ids)
    for number, member in zip(num_elements, members, strict=True)
  ]
  joined = new("concatenate", ends[-1], [i.id for i in flats])
  joined.dimensions.append(0)
  reduced = hlo.Instruction()
  reduced.CopyFrom(members[0])
  reduced.id = editor.new_id(computation)
  reduced.name = editor.new_name("all-reduce")
  reduced.shape.CopyFrom(joined.shape)
  reduced.operand_ids[:] = [joined.id]
  reduced.control_predecessor_ids[:] = dict.fromkeys(
    before for m in members for before in m.control_predecessor_ids
  )
  made = [*flats, joined, reduced]
  for member, number, end in zip(members, num_elements, ends, strict=True):
    part = new("slice", number, [reduced.id])
    part.slice_dimensions.add(start=end - number, limit=end, stride=1)
    # With its id, so that users of its value need no change.
    whole = hlo.Instruction(
      name=editor.new_name("bitcast"),
      opcode="bitcast",
      shape=member.shape,
      metadata=member.metadata,
      id=member.id,
      operand_ids=[part.id],
    )
    made += [part, whole]
  return made
