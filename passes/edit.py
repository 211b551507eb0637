# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Edits of a module's proto: new ids and names, and a legal order.

In an edited module, XLA requires that ids and names are unique, that the upper
half of an instruction's id is its computation's id, and that operands precede
their users. Edits here replace an instruction under the same id if possible, so
that no other instruction changes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from lagom_xla.passes import dependencies
from lagom_xla.passes import hlo

_LOCAL_BITS = 32


class Editor:
  """Edits a module's proto, in place."""

  def __init__(self, module: hlo.Module):
    instructions = [*module.instructions]
    mask = (1 << _LOCAL_BITS) - 1
    self._last_id = max((i.id & mask for i in instructions), default=0)
    self._last_channel = max((i.channel_id for i in instructions), default=0)
    self._names = {i.name for i in instructions}

  def new_id(self, computation: hlo.Computation) -> int:
    """An id for a new instruction of a computation."""
    upper = computation.proto.root_id >> _LOCAL_BITS
    self._last_id += 1
    return upper << _LOCAL_BITS | self._last_id

  def new_name(self, name: str) -> str:
    """The name, with a number appended if it is taken."""
    unique, number = name, 0
    while unique in self._names:
      number += 1
      unique = f"{name}.{number}"
    self._names.add(unique)
    return unique

  def new_channel(self) -> int:
    """A channel that no collective uses."""
    self._last_channel += 1
    return self._last_channel


def forward(
  computation: hlo.Computation,
  instructions: Iterable[hlo.Instruction],
  source_of: Mapping[int, int],
) -> None:
  """Removes instructions and redirects their users.

  `source_of` maps the id of a removed instruction to the id of one with the
  same value.
  """
  kept = [i for i in instructions if i.id not in source_of]
  for instruction in kept:
    for ids in (instruction.operand_ids, instruction.control_predecessor_ids):
      if not source_of.keys().isdisjoint(ids):
        ids[:] = [source_of.get(i, i) for i in ids]
  root = computation.proto.root_id
  computation.proto.root_id = source_of.get(root, root)
  replace_instructions(computation, kept)


def replace_instructions(
  computation: hlo.Computation, instructions: Iterable[hlo.Instruction]
) -> None:
  """Replaces a computation's instructions, operands before their users.

  Keeps the order where possible. Control predecessors that are gone are
  dropped.
  """
  by_id = {i.id: i for i in instructions}
  for instruction in by_id.values():
    predecessors = instruction.control_predecessor_ids
    kept = [p for p in predecessors if p in by_id]
    if len(kept) != len(predecessors):
      predecessors[:] = kept

  def before(id_: int) -> tuple[int, ...]:
    return *by_id[id_].operand_ids, *by_id[id_].control_predecessor_ids

  ordered = [by_id[id_] for id_ in dependencies.in_order(by_id, before)]
  del computation.proto.instructions[:]
  computation.proto.instructions.extend(ordered)
