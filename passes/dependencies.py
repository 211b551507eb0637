# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Dependences between the instructions of a computation.

An instruction runs after its operands and its control predecessors. A done has
its start as an operand.

    graph = dependencies.of(computation)
    graph.predecessors[instruction.id]
        graph.first_violation(order)      # None for a legal order

The graph does not say when two instructions share a buffer: an order that it
allows can still overwrite a value too soon.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
import dataclasses
import functools
from typing import Generic, TypeVar

from lagom_xla.passes import hlo

_T = TypeVar("_T", bound=Hashable)


class DisjointSets(Generic[_T]):
  """Disjoint sets of items; an item that was never joined is alone."""

  def __init__(self) -> None:
    self._parent: dict[_T, _T] = {}

  def find(self, item: _T) -> _T:
    """The representative of an item's set."""
    parents = self._parent
    while (parent := parents.get(item, item)) != item:
      parents[item] = item = parents.get(parent, parent)
    return item

  def join(self, item: _T, other: _T) -> None:
    """Joins two sets; keeps the second one's representative."""
    self._parent[self.find(item)] = self.find(other)


Edges = Mapping[int, tuple[int, ...]]


@dataclasses.dataclass(frozen=True, eq=False)
class Graph:
  """The dependences of one computation, by instruction id."""

  computation: hlo.Computation

  @functools.cached_property
  def operands(self) -> Edges:
    """Each instruction's operands, without repeats."""
    instructions = self.computation.instructions
    return {i.id: _unique(i.operand_ids) for i in instructions}

  @functools.cached_property
  def predecessors(self) -> Edges:
    """Operands, then control predecessors, without repeats."""
    operands = self.operands
    return {
      i.id: _unique((*operands[i.id], *i.control_predecessor_ids))
      if i.control_predecessor_ids
      else operands[i.id]
      for i in self.computation.instructions
    }

  @functools.cached_property
  def successors(self) -> Edges:
    """Users and control successors, in schedule order."""
    return _reversed(self.predecessors)

  @functools.cached_property
  def users(self) -> Edges:
    """The instructions that take each one's value, in schedule order."""
    return _reversed(self.operands)

  @functools.cached_property
  def done_of(self) -> Mapping[int, int]:
    """Start -> the instruction in this computation that waits for it.

    It may be several async-updates away. Starts that another computation waits
    for are missing.
    """
    by_id = self.computation.by_id
    return {
      start: awaiting.id
      for start, awaiting in awaiting_of(self.computation).items()
      if awaiting.opcode.endswith("-done") and is_start(by_id[start])
    }

  def depends(self, later: int, earlier: int) -> bool:
    """Whether one instruction must run after another."""
    # In a schedule nothing before `earlier` can depend on it.
    position = self.computation.position
    limit = position[earlier]
    stack = [later]
    seen = {later}
    while stack:
      for before in self.predecessors[stack.pop()]:
        if before == earlier:
          return True
        if before not in seen and position[before] > limit:
          seen.add(before)
          stack.append(before)
    return False

  def first_violation(self, order: Sequence[int]) -> tuple[int, int] | None:
    """The first edge that an order of all instructions breaks, if any.

    Returns an instruction, and a predecessor that comes after it.
    """
    position = {id_: at for at, id_ in enumerate(order)}
    for id_ in order:
      for before in self.predecessors[id_]:
        if position[before] > position[id_]:
          return id_, before
    return None


def of(computation: hlo.Computation) -> Graph:
  """The dependences of a computation whose operands precede their users.

  They do in any schedule and in the protos that XLA writes.
  """
  return Graph(computation)


def _unique(ids: Iterable[int]) -> tuple[int, ...]:
  return tuple(dict.fromkeys(ids))


def awaiting_of(
  computation: hlo.Computation,
) -> dict[int, hlo.Instruction]:
  """Id of each start -> the last instruction that waits for it here.

  This is its done, or the last of its async-updates if another computation has
  the done.
  """
  awaiting: dict[int, hlo.Instruction] = {}
  start_of: dict[int, int] = {}
  for instruction in computation.instructions:
    if instruction.opcode.endswith(("-done", "-update")):
      awaited = instruction.operand_ids[0]
      start = start_of.get(awaited, awaited)
      start_of[instruction.id] = start
      awaiting[start] = instruction
  return awaiting


def is_start(instruction: hlo.Instruction) -> bool:
  """Whether an instruction begins something that another waits for."""
  opcode = instruction.opcode
  return opcode.endswith("-start") or opcode in ("send", "recv")


def _reversed(edges: Edges) -> Edges:
  after: dict[int, list[int]] = {id_: [] for id_ in edges}
  for id_, before in edges.items():
    for other in before:
      after[other].append(id_)
  return {id_: tuple(others) for id_, others in after.items()}


def in_order(
  ids: Iterable[int], before: Callable[[int], Iterable[int]]
) -> list[int]:
  """Ids in their order, except that each follows those it must follow.

  Searches depth first, without recursion.
  """
  placed: dict[int, None] = {}
  for first in ids:
    stack = [first]
    while stack:
      waits_for = [id_ for id_ in before(stack[-1]) if id_ not in placed]
      if waits_for:
        stack += reversed(waits_for)
      else:
        placed[stack.pop()] = None
  return list(placed)
