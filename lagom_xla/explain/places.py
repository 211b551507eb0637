# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Places of collectives in a computation: what each needs, and what needs it.

An instruction that takes no time passes on what it gets, so a collective is
ready to start once the last instruction that takes time has made an operand of
it, and it is needed by the first one that takes its result. Kernels that it
depends on in no way, and that do not depend on it, are *independent* of it:
only they can ever run beside it, whatever the order.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
import dataclasses

import numpy as np

from lagom_xla.passes import collectives as collectives_lib
from lagom_xla.passes import dependencies
from lagom_xla.passes import hlo
from lagom_xla.passes import kernels as kernels_lib

# Collectives that are looked at together, a bit each.
_BITS = 62


@dataclasses.dataclass(frozen=True, slots=True)
class Span:
  """From when an array can be sent to when it is needed, as positions.

  Attributes:
    ready: of the instruction that makes it; -1 where the computation gets it.
    used: of the first instruction that needs it; the number of instructions
      where the computation only returns it.
  """

  ready: int
  used: int


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Place:
  """A collective in its computation, by positions in the schedule.

  Attributes:
    graph: the dependences of the computation.
    start: of its start.
    done: of the instruction that waits for it; the number of instructions where
      another computation does.
    span: from the last of its operands to the first use of its results.
    arrays: the same of each array that it moves; () where it moves one.
    bit: of the collective in `before` and `after`.
    before: which collectives need the instruction at each position, a bit each.
    after: which ones it needs.
  """

  graph: dependencies.Graph
  start: int
  done: int
  span: Span
  arrays: tuple[Span, ...]
  bit: int
  before: np.ndarray
  after: np.ndarray

  @property
  def computation(self) -> hlo.Computation:
    """The computation."""
    return self.graph.computation

  @property
  def independent(self) -> np.ndarray:
    """Whether neither depends on the other, at each position."""
    return ((self.before | self.after) & np.int64(self.bit)) == 0

  @property
  def needed(self) -> np.ndarray:
    """Whether it depends on the instruction at each position."""
    return (self.before & np.int64(self.bit)) != 0

  @property
  def needing(self) -> np.ndarray:
    """Whether the instruction at each position depends on it."""
    return (self.after & np.int64(self.bit)) != 0


def of_computation(
  graph: dependencies.Graph,
  collectives: Iterable[collectives_lib.Collective],
) -> Iterator[tuple[str, Place]]:
  """The places of collectives, by their names.

  Args:
    graph: the dependences of a scheduled computation.
    collectives: some that it starts.
  """
  paths = _Paths(graph)
  todo = list(collectives)
  for begin in range(0, len(todo), _BITS):
    some = todo[begin : begin + _BITS]
    starts = [graph.computation.position[c.start_id] for c in some]
    before, after = _reach(graph, starts)
    for index, collective in enumerate(some):
      start, done = starts[index], done_at(graph.computation, collective)
      yield (
        collective.name,
        Place(
          graph=graph,
          start=start,
          done=done,
          span=_span(paths, start, done),
          arrays=tuple(_arrays(paths, collective, done)),
          bit=1 << index,
          before=before,
          after=after,
        ),
      )


def _reach(
  graph: dependencies.Graph, starts: Sequence[int]
) -> tuple[np.ndarray, np.ndarray]:
  """What comes before and after each start of some, a bit each."""
  position = graph.computation.position
  before = [0] * len(position)
  after = [0] * len(position)
  for index, start in enumerate(starts):
    before[start] |= 1 << index
    after[start] |= 1 << index
  order = [
    [position[p] for p in graph.predecessors[i.id]]
    for i in graph.computation.instructions
  ]
  for at, predecessors in enumerate(order):
    for predecessor in predecessors:
      after[at] |= after[predecessor]
  for at in range(len(order) - 1, -1, -1):
    if before[at]:
      for predecessor in order[at]:
        before[predecessor] |= before[at]
  return np.array(before, np.int64), np.array(after, np.int64)


def done_at(
  computation: hlo.Computation, collective: collectives_lib.Collective
) -> int:
  """Position of the instruction that waits for a collective.

  The number of instructions where another computation does.
  """
  if collective.done_id is not None:
    return computation.position[collective.done_id]
  if collective.form == "sync":
    return computation.position[collective.start_id]
  return len(computation.instructions)


def _span(paths: _Paths, start: int, done: int) -> Span:
  instructions = paths.graph.computation.instructions
  return Span(
    ready=paths.ready(instructions[start].id),
    used=paths.used(instructions[done].id)
    if done < len(instructions)
    else done,
  )


def _arrays(
  paths: _Paths, collective: collectives_lib.Collective, done: int
) -> Iterator[Span]:
  """The span of each array of a combined collective."""
  computation = paths.graph.computation
  start = computation.by_id[collective.start_id]
  num = collective.num_operands
  if num < 2 or len(start.operand_ids) != num:
    return
  if done == len(computation.instructions):
    return
  parts = part_ids(paths.graph, computation.instructions[done].id, num)
  for operand_id, ids in zip(start.operand_ids, parts, strict=True):
    yield Span(
      ready=paths.made(operand_id),
      used=min(map(paths.used, ids), default=len(computation.instructions)),
    )


def part_ids(
  graph: dependencies.Graph, done_id: int, num: int
) -> list[list[int]]:
  """The instructions that take each result out of a tuple of `num`."""
  parts: list[list[int]] = [[] for _ in range(num)]
  for user_id in graph.users[done_id]:
    user = graph.computation.by_id[user_id]
    if user.opcode == "get-tuple-element" and user.tuple_index < num:
      parts[user.tuple_index].append(user_id)
  return parts


class _Paths:
  """Ways through instructions that take no time."""

  def __init__(self, graph: dependencies.Graph):
    self.graph = graph

  def ready(self, id_: int) -> int:
    """Position of the last that must end before an instruction can start."""
    before = self.graph.predecessors[id_]
    return max(map(self.made, before), default=-1)

  def made(self, id_: int) -> int:
    """Position of the instruction that makes a value; -1 for a parameter."""
    last, todo, seen = -1, [id_], {id_}
    while todo:
      here = todo.pop()
      if takes_time(self.graph.computation.by_id[here]):
        last = max(last, self.graph.computation.position[here])
        continue
      new = set(self.graph.predecessors[here]) - seen
      seen |= new
      todo.extend(new)
    return last

  def used(self, id_: int) -> int:
    """Position of the first that takes a value, or what is made of it."""
    position = self.graph.computation.position
    first, todo, seen = len(position), [id_], {id_}
    while todo:
      for user in self.graph.successors[todo.pop()]:
        if takes_time(self.graph.computation.by_id[user]):
          first = min(first, position[user])
        elif user not in seen:
          seen.add(user)
          todo.append(user)
    return first


def takes_time(instruction: hlo.Instruction) -> bool:
  """Whether it does anything on a stream, or calls what does."""
  return (
    instruction.opcode not in collectives_lib.NOPS
    and instruction.custom_call_target != kernels_lib.ALLOCATION
  )
