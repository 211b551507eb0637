# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Dependences between iterations of a loop: what could run in another one.

Early, if it follows from what the loop does not change and from its counter
alone; late, if its result is only handed on.
"""

from __future__ import annotations

from collections.abc import Sequence

from lagom_xla.passes import collectives as collectives_lib
from lagom_xla.passes import dependencies
from lagom_xla.xla_schedule import loop_editing


def steady(loop: loop_editing.Loop, graph: dependencies.Graph) -> set[int]:
  """What each iteration could compute before the previous one ends.

  That is what follows from elements of the state that the loop does not change,
  or that follow from such elements alone, such as its counter.
  """
  pairs = {id_ for c in loop.collectives() for id_ in (c.start_id, c.done_id)}
  returned = list(loop.root.operand_ids)
  moving: set[int] = set()
  while True:
    unsteady: set[int] = set()
    for instruction in graph.computation.instructions:
      element = loop.element_of(instruction)
      if (
        instruction.id in pairs
        or instruction.opcode in ("while", "conditional", "call")
        or (element is not None and element in moving)
        or not unsteady.isdisjoint(graph.predecessors[instruction.id])
      ):
        unsteady.add(instruction.id)
    now = {at for at, id_ in enumerate(returned) if id_ in unsteady}
    if now == moving:
      return {i.id for i in graph.computation.instructions} - unsteady
    moving = now


def handed_on(
  loop: loop_editing.Loop,
  graph: dependencies.Graph,
  found: Sequence[collectives_lib.Collective],
) -> dict[int, set[int]]:
  """Starts of reductions whose results the loop only hands on, unread.

  Returns:
    id of each start -> ids of it and of all that depends on it in the body.
  """
  known = steady(loop, graph)
  after: dict[int, set[int]] = {}
  for collective in found:
    start_id = collective.start_id
    reached = graph.descendants(start_id) - {loop.root.id}
    if _is_only_handed_on(loop, graph, start_id, reached, known):
      after[start_id] = {start_id, *reached}
  return after


def _is_only_handed_on(
  loop: loop_editing.Loop,
  graph: dependencies.Graph,
  start_id: int,
  after: set[int],
  steady: set[int],
) -> bool:
  """Whether a reduction's result only goes to the next iteration, unread."""
  by_id = graph.computation.by_id
  written = {at for at, id_ in enumerate(loop.root.operand_ids) if id_ in after}
  for instruction in graph.computation.instructions:
    reads = loop.element_of(instruction)
    if reads in written and not after.issuperset(graph.users[instruction.id]):
      return False
  for id_ in after:
    for before in graph.predecessors[id_]:
      is_known = before in after or before == start_id or before in steady
      if not is_known and loop.element_of(by_id[before]) not in written:
        return False
  return bool(written)
