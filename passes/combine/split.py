# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Rewrite pass that splits collectives of several arrays, one for each array.

    both = (f32[8], f32[4]) all-reduce(x, y)
    a = get-tuple-element(both), index=0
    b = get-tuple-element(both), index=1
 →  a = f32[8] all-reduce(x)
    b = f32[4] all-reduce(y)

A program can have such collectives from the start, XLA's CPU backend combines
all-reduces early, and XLA's combiners do not take them. The parts of a
collective called NAME are called NAME.0, NAME.1 and so on.
"""

from __future__ import annotations

from lagom_xla.passes import edit
from lagom_xla.passes import hlo
from lagom_xla.passes.combine import table


def apart(module: hlo.Module) -> hlo.Module:
  """A module in which every collective with a combiner has one array.

  That is the module itself where it is so already, else a copy.
  """
  if not any(
    _is_shared(i) for c in module.proto.computations for i in c.instructions
  ):
    return module
  copy = hlo.Module(type(module.proto)(), module.num_partitions)
  copy.proto.CopyFrom(module.proto)
  editor = edit.Editor(copy)
  for computation in copy.computations.values():
    if any(map(_is_shared, computation.instructions)):
      _take_apart(computation, editor)
  return hlo.Module(copy.proto, module.num_partitions)


def _is_shared(instruction: hlo.Instruction) -> bool:
  return (
    instruction.opcode in table.COMBINERS
    and len(instruction.operand_ids) > 1
    and not is_in_place(instruction)
  )


def is_in_place(instruction: hlo.Instruction) -> bool:
  """Whether a collective-permute writes into an operand, at offsets."""
  return bool(instruction.dynamic_slice_sizes)


def _take_apart(computation: hlo.Computation, editor: edit.Editor) -> None:
  instructions: list[hlo.Instruction] = []
  parts_of: dict[int, list[hlo.Instruction]] = {}
  for instruction in computation.instructions:
    if _is_shared(instruction):
      parts = _parts(computation, instruction, editor)
      parts_of[instruction.id] = parts
      instructions += parts
      # For those who take all of it.
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
  edit.forward(computation, instructions, element_of)


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
