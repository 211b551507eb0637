# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Edits of one `while` of a module: its body, its state, its iterations.

A loop hands a tuple from one iteration to the next; its elements are the loop's
state. Iterations can be copied, whole or in part: what a copy does not need is
left out. `around_loop.py` edits what the loop stands in.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from lagom_xla.passes import collectives as collectives_lib
from lagom_xla.passes import hlo
from lagom_xla.xla_schedule import editing

GET = "get-tuple-element"  # Reads an element of a loop's state.


def each_loop(module: hlo.Module) -> list[tuple[int, int]]:
  """(caller, loop) ids of loops with collectives, inner ones first."""
  loops: list[tuple[int, int]] = []

  def visit(computation: hlo.Computation) -> None:
    for loop in computation.loops:
      body = module.computations[loop.called_computation_ids[0]]
      visit(body)
      if module.trip_count(loop) > 1 and computation.id in module.executions:
        loops.append((computation.id, loop.id))

  visit(module.entry)
  return list(dict.fromkeys(loops))


class Loop:
  """A loop that is edited.

  Attributes:
    editor: of its module.
    caller: the instructions of the computation that the loop stands in.
    instruction: the `while`.
    body: the instructions of its body, in schedule order.
    parameter: of the body.
    root: of the body, a tuple.
    num_trips: how often the body runs, while it is not changed.
  """

  def __init__(
    self, editor: editing.Editor, caller: hlo.Computation, loop_id: int
  ):
    module = editor.module
    body = module.computations[caller.by_id[loop_id].called_computation_ids[0]]
    self.editor = editor
    self.caller = editor.instructions(caller.id)
    self.instruction = next(i for i in self.caller if i.id == loop_id)
    self.body_id = body.id
    self.body = editor.instructions(body.id)
    self.root = next(i for i in self.body if i.id == body.proto.root_id)
    self.parameter = next(i for i in self.body if i.opcode == "parameter")
    self.num_trips = module.trip_count(self.instruction)

  @property
  def is_plain(self) -> bool:
    """Whether the state is used by its elements only, as XLA writes it."""
    whole = self.parameter.id
    return self.root.opcode == "tuple" and all(
      i.opcode == GET for i in self.body if whole in i.operand_ids
    )

  def element_of(self, instruction: hlo.Instruction) -> int | None:
    """The element of the state that an instruction of the body reads."""
    if instruction.opcode == GET and self.parameter.id in (
      instruction.operand_ids
    ):
      return instruction.tuple_index
    return None

  def collectives(self) -> list[collectives_lib.Collective]:
    """The collectives that the body starts and waits for, before any edit."""
    module = self.editor.module
    name = module.computations[self.body_id].name
    return [
      c
      for c in collectives_lib.find(module)
      if c.computation == name and c.done_id is not None
    ]

  def readers(self) -> list[hlo.Instruction]:
    """The instructions of the body that take elements of the state."""
    reads = {i.id for i in self.body if self.element_of(i) is not None}
    return [i for i in self.body if not reads.isdisjoint(i.operand_ids)]

  def add_element(self, value: hlo.Instruction, suffix: str) -> int:
    """Hands a value of the body on to the next iteration.

    The old value is in use until the new one is complete, so XLA copies it.

    Returns:
      the id of the instruction that reads it there.
    """
    name = f"{value.name}{suffix}"
    copy = self.editor.make(
      "copy", f"{name}.copy", [value.id], shape=value.shape
    )
    self.body.insert(position(self.body, self.root), copy)
    read = self.editor.make(
      GET,
      name,
      [self.parameter.id],
      tuple_index=len(self.root.operand_ids),
      shape=value.shape,
    )
    self.body.insert(position(self.body, self.parameter) + 1, read)
    self.root.operand_ids.append(copy.id)
    return read.id

  def add(self, instructions: Iterable[hlo.Instruction]) -> None:
    """Puts instructions at the end of the body, and hands on what they give."""
    added = list(instructions)
    used = {id_ for i in added for id_ in i.operand_ids}
    at = position(self.body, self.root)
    self.body[at:at] = added
    self.root.operand_ids.extend(i.id for i in added if i.id not in used)

  def append(
    self, instructions: Iterable[hlo.Instruction], returned: Sequence[int]
  ) -> None:
    """Puts instructions after the root, and returns other values instead."""
    root = self.editor.make(
      "tuple", f"{self.root.name}.both", returned, shape=self.root.shape
    )
    self.body += [*instructions, root]
    self.editor.set_root(self.body_id, root.id)
    self.root = root

  def drop_copies(self) -> None:
    """Has elements of the state read, and handed on, without a copy."""
    handed_on = [i for i in self.body if i.id in self.root.operand_ids]
    for instruction in (*self.readers(), *handed_on):
      if instruction.opcode == "copy":
        instruction.opcode = "bitcast"

  def needed_for(self, ids: Iterable[int]) -> list[hlo.Instruction]:
    """The instructions that some values of the body need, in order."""
    by_id = {i.id: i for i in self.body}
    needed: set[int] = set()
    stack = list(ids)
    while stack:
      id_ = stack.pop()
      if id_ not in needed:
        needed.add(id_)
        stack.extend(by_id[id_].operand_ids)
        stack.extend(by_id[id_].control_predecessor_ids)
    return [i for i in self.body if i.id in needed]

  def copies(
    self,
    instructions: Iterable[hlo.Instruction],
    state: Sequence[int],
    suffix: str,
  ) -> tuple[list[hlo.Instruction], dict[int, int]]:
    """Copies a part of an iteration.

    Args:
      instructions: of the body, in order; the root is left out.
      state: the values that stand for the elements of the state.
      suffix: for the copies' names.

    Returns:
      the copies, and ids in the body -> ids of what stands for them.
    """
    made: list[hlo.Instruction] = []
    stands: dict[int, int] = {}
    for instruction in instructions:
      element = self.element_of(instruction)
      if element is not None:
        stands[instruction.id] = state[element]
      elif instruction.id not in (self.parameter.id, self.root.id):
        copy = self.editor.copy(instruction, suffix, replaced=stands)
        controls = instruction.control_predecessor_ids
        copy.control_predecessor_ids[:] = [
          stands[id_] for id_ in controls if id_ in stands
        ]
        stands[instruction.id] = copy.id
        made.append(copy)
    return made, stands

  def set_trips(self, num_trips: int) -> None:
    """Says how often the body runs."""
    self.editor.set_trip_count(self.instruction, num_trips)


def position(
  instructions: Sequence[hlo.Instruction], wanted: hlo.Instruction
) -> int:
  """Where an instruction stands."""
  return next(at for at, i in enumerate(instructions) if i.id == wanted.id)
