# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Strands of a scheduled loop's body: instructions that never meet.

What a trip changes and what depends on it is of one strand with all that it
meets. What depends on no such value, as weights and counters do not, is of the
strand that alone uses it; what several use is of none.
"""

from __future__ import annotations

from lagom_xla.passes import dependencies
from lagom_xla.passes import hlo


def in_body(body: hlo.Computation) -> dict[int, int]:
  """The strand of each instruction of a loop's body that has one, by id."""
  parameters = {i.id for i in body.instructions if i.opcode == "parameter"}
  if body.root.opcode != "tuple":
    return {}
  carried = {
    i.id: i.tuple_index
    for i in body.instructions
    if i.opcode == "get-tuple-element" and i.operand_ids[0] in parameters
  }
  changing = {
    id_: number
    for id_, number in carried.items()
    if body.by_id[id_].shape.dimensions
    and carried.get(body.root.operand_ids[number]) != number
  }
  carries: dependencies.DisjointSets[int] = dependencies.DisjointSets()
  strand_of = dict(changing)
  for instruction in body.instructions:
    if instruction.id == body.root.id or instruction.id in carried:
      continue
    met = [strand_of[o] for o in instruction.operand_ids if o in strand_of]
    for number in met:
      carries.join(number, met[0])
    if met:
      strand_of[instruction.id] = met[0]
  carried_on: dict[int, set[int]] = {}
  for number in changing.values():
    returned = body.root.operand_ids[number]
    if returned in strand_of:
      carries.join(number, strand_of[returned])
    else:
      carried_on.setdefault(returned, set()).add(number)
  # As what is gathered for the next trip, which no value of this one went into.
  for returned, numbers in carried_on.items():
    strands = set(map(carries.find, numbers))
    if len(strands) == 1:
      strand_of[returned] = strands.pop()
  found = {id_: carries.find(number) for id_, number in strand_of.items()}
  return _with_used_by_one(body, found)


def _with_used_by_one(
  body: hlo.Computation, strand_of: dict[int, int]
) -> dict[int, int]:
  users: dict[int, set[int]] = {}
  for instruction in reversed(body.instructions):
    if instruction.id == body.root.id:
      continue
    strands = users.get(instruction.id, set())
    if instruction.id in strand_of:
      strands = {strand_of[instruction.id]}
    elif len(strands) == 1:
      strand_of[instruction.id] = next(iter(strands))
    for operand in instruction.operand_ids:
      users.setdefault(operand, set()).update(strands)
  return strand_of
