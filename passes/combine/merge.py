# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Rewrite pass that combines collectives itself, without XLA's combiners.

XLA's CPU backend looks at no combiner keys, and combines all-reduces before any
pass can see them. Here collectives of several arrays are first taken apart, and
then those of each group become one:

    a = f32[8] all-reduce(x)
    b = f32[4] all-reduce(y)
 →  both = (f32[8], f32[4]) all-reduce(x, y)
    a = get-tuple-element(both), index=0
    b = get-tuple-element(both), index=1

So the effect of combining can be tested by running it, on any machine. Arrays
that are gathered or scattered along different dimensions stay apart; XLA's
combiners for GPUs would transpose them first.
"""

from __future__ import annotations

from lagom_xla.passes import edit
from lagom_xla.passes import hlo
from lagom_xla.passes.combine import combinable


def rewrite(module: hlo.Module, groups: combinable.Groups) -> bytes:
  """The module with the collectives of each group merged, and no others.

  Args:
    module: as PRE_SCHEDULER shows it; it stays as it is.
    groups: labels to combine; () takes all of them apart.

  Returns:
    A serialized HloModuleProto.

  Raises:
    CombineError: the module cannot have these groups.
  """
  copy, members_of = apart(module, groups)
  editor = edit.Editor(copy)
  for computation_id, together in members_of.items():
    computation = copy.computations[computation_id]
    instructions = {i.id: i for i in computation.instructions}
    for members in together:
      shapes = [member.shape for member in members]
      merged = hlo.Instruction()
      merged.CopyFrom(members[0])
      merged.id = editor.new_id(computation)
      merged.name = editor.new_name(members[0].opcode)
      merged.shape.CopyFrom(
        hlo.Shape(element_type=hlo.TUPLE, tuple_shapes=shapes)
      )
      merged.operand_ids[:] = [m.operand_ids[0] for m in members]
      merged.control_predecessor_ids[:] = dict.fromkeys(
        before for m in members for before in m.control_predecessor_ids
      )
      instructions[merged.id] = merged
      for index, member in enumerate(members):
        # In its place, so that those who take its value need no change.
        instructions[member.id] = hlo.Instruction(
          name=editor.new_name("get-tuple-element"),
          opcode="get-tuple-element",
          shape=member.shape,
          metadata=member.metadata,
          id=member.id,
          operand_ids=[merged.id],
          tuple_index=index,
        )
    edit.replace_instructions(computation, instructions.values())
  return copy.proto.SerializeToString()


def apart(
  module: hlo.Module, groups: combinable.Groups
) -> tuple[hlo.Module, dict[int, list[list[hlo.Instruction]]]]:
  """A copy with collectives of one array each, and what is to be one again.

  That is by computation the members of each group of two or more.

  Raises:
    CombineError: the module cannot have these groups.
  """
  copy, candidates = combinable.copy_with(module, groups, as_written=True)
  merged: dict[int, list[list[hlo.Instruction]]] = {}
  for group in groups:
    members = [candidates[label] for label in group]
    if len(members) > 1:
      merged.setdefault(members[0].computation_id, []).append(
        [member.instruction for member in members]
      )
  return copy, merged
