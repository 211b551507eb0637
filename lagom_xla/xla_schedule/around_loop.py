# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Surroundings of a loop: what its caller has before and after it.

There the loop gets the state that it starts with, there its results are used,
and there go iterations that are copied out of it, whole or in part.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from lagom_xla.passes import hlo
from lagom_xla.xla_schedule import loop_editing


def state(loop: loop_editing.Loop) -> list[int]:
  """The values in the caller that the loop starts with, by element."""
  operand_id = loop.instruction.operand_ids[0]
  operand = next(i for i in loop.caller if i.id == operand_id)
  if operand.opcode == "tuple":
    return list(operand.operand_ids)
  return _elements(loop, operand_id, at=_place(loop))


def start_with(loop: loop_editing.Loop, values: Sequence[int]) -> None:
  """Gives the loop other values to start with."""
  operand = loop.editor.make(
    "tuple", f"{loop.instruction.name}.state{len(loop.caller)}", values
  )
  loop.caller.insert(_place(loop), operand)
  loop.instruction.operand_ids[:] = [operand.id]


def results(loop: loop_editing.Loop) -> list[int]:
  """Values in the caller that the loop ends with, by element."""
  return _elements(loop, loop.instruction.id, at=_place(loop) + 1)


def end_with(
  loop: loop_editing.Loop, values: Sequence[int], ended: Sequence[int]
) -> None:
  """Has the caller use these values in place of the loop's results.

  Args:
    loop: which.
    values: by element of the loop.
    ended: what `results` returned, which keeps reading the loop.
  """
  loop_id = loop.instruction.id
  whole = None
  for instruction in list(loop.caller):
    if instruction.id in ended or loop_id not in instruction.operand_ids:
      continue
    if instruction.opcode == loop_editing.GET:
      instruction.opcode = "bitcast"
      instruction.operand_ids[:] = [values[instruction.tuple_index]]
      continue
    if whole is None:
      whole = loop.editor.make(
        "tuple", f"{loop.instruction.name}.end{len(loop.caller)}", values
      )
      loop.caller.insert(loop_editing.position(loop.caller, instruction), whole)
    instruction.operand_ids[:] = [
      whole.id if id_ == loop_id else id_ for id_ in instruction.operand_ids
    ]


def put_before(
  loop: loop_editing.Loop,
  instructions: Iterable[hlo.Instruction],
  elements: Sequence[int],
  suffix: str,
) -> dict[int, int]:
  """Copies a part of an iteration to the caller, before the loop.

  Returns:
    ids in the body -> ids of what stands for them.
  """
  made, copies = loop.copies(instructions, elements, suffix)
  at = _place(loop)
  loop.caller[at:at] = made
  return copies


def put_after(
  loop: loop_editing.Loop,
  instructions: Iterable[hlo.Instruction],
  elements: Sequence[int],
  suffix: str,
) -> dict[int, int]:
  """Copies a part of an iteration to the caller, after what reads it."""
  made, copies = loop.copies(instructions, elements, suffix)
  at = _place(loop) + 1
  while loop.caller[at].id in elements:
    at += 1
  loop.caller[at:at] = made
  return copies


def _elements(loop: loop_editing.Loop, whole_id: int, *, at: int) -> list[int]:
  """Takes a loop's state apart, in the caller."""
  shapes = {i.id: i.shape for i in loop.body}
  made = [
    loop.editor.make(
      loop_editing.GET,
      f"{loop.instruction.name}.{whole_id}.{index}.{at}",
      [whole_id],
      tuple_index=index,
      shape=shapes[id_],
    )
    for index, id_ in enumerate(loop.root.operand_ids)
  ]
  loop.caller[at:at] = made
  return [i.id for i in made]


def _place(loop: loop_editing.Loop) -> int:
  return loop_editing.position(loop.caller, loop.instruction)
