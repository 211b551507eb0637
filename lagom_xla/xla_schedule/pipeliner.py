# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""XLA's collective pipeliner, on the loops of a scheduled module.

XLA pipelines before it fuses and schedules; here it is done to the dependences
of the scheduled loop.

An all-gather is run one iteration ahead where its operand depends on nothing
but what the loop does not change and its counter: the first one goes before
the loop, the body gathers for the next iteration, and the last iteration
follows the loop. An all-reduce or reduce-scatter is run one iteration behind
where what it returns is only written to what the loop hands on: the first
iteration goes before the loop without it, the body reduces what the one before
computed, and the last one's follows the loop
(xla/service/collective_pipeliner.cc).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from lagom_xla.passes import collectives as collectives_lib
from lagom_xla.passes import dependencies
from lagom_xla.passes import hlo
from lagom_xla.xla_schedule import around_loop
from lagom_xla.xla_schedule import editing
from lagom_xla.xla_schedule import loop_dependences
from lagom_xla.xla_schedule import loop_editing

# What XLA's option for a kind pipelines in a module compiled with the defaults.
# There the user's own reduce-scatters are pipelined already, and those that are
# left were still all-reduces when the pipeliner ran.
_BEHIND = {
  "all-reduce": ("all-reduce", "reduce-scatter"),
  "reduce-scatter": (),
}
_AHEAD = "all-gather"


def pipeline(module: hlo.Module, kinds: Collection[str]) -> hlo.Module:
  """Pipelines collectives of some kinds in the loops of a module.

  Args:
    module: scheduled.
    kinds: whose XLA option for pipelining is switched on.

  Raises:
    ValueError: a kind cannot be pipelined.
  """
  for kind in kinds:
    if kind != _AHEAD and kind not in _BEHIND:
      raise ValueError(
        f"XLA does not pipeline {kind}; it pipelines"
        f" {', '.join((_AHEAD, *_BEHIND))}."
      )
  if _AHEAD in kinds:
    module = _pipeline(module, [_AHEAD], _run_ahead)
  behind = {k for kind in kinds for k in _BEHIND.get(kind, ())}
  if behind:
    module = _pipeline(module, behind, _run_behind)
  return module


def _pipeline(
  module: hlo.Module,
  kinds: Collection[str],
  run: Callable[
    [loop_editing.Loop, Sequence[collectives_lib.Collective]], bool
  ],
) -> hlo.Module:
  for caller_id, loop_id in loop_editing.each_loop(module):
    editor = editing.Editor(module)
    loop = loop_editing.Loop(editor, module.computations[caller_id], loop_id)
    found = [c for c in loop.collectives() if c.kind in kinds]
    if loop.is_plain and found and run(loop, found):
      loop.set_trips(loop.num_trips - 1)
      module = editor.finish()
  return module


def _run_ahead(
  loop: loop_editing.Loop, found: Sequence[collectives_lib.Collective]
) -> bool:
  """Pipelines all-gathers; says whether there were any to pipeline."""
  body = loop.editor.module.computations[loop.body_id]
  graph = dependencies.of(body)
  steady = loop_dependences.steady(loop, graph)
  pairs = {id_ for c in found for id_ in (c.start_id, c.done_id)}
  arrays: list[int] = []
  ahead: set[int] = set()
  for collective in found:
    needed = graph.ancestors(collective.start_id)
    if not steady.issuperset(needed) or not needed.isdisjoint(pairs):
      continue
    assert collective.done_id is not None
    _mark(loop, collective)
    ahead |= needed | {collective.start_id, collective.done_id}
    arrays += _arrays(graph, collective.done_id)
  if not arrays:
    return False
  ahead.update(arrays)
  state = around_loop.state(loop)
  before = [i for i in loop.body if i.id in ahead]
  first = around_loop.put_before(
    loop, before, state, f".first{loop.instruction.id}"
  )
  num_elements = len(loop.root.operand_ids)
  originals = [i for i in loop.body if i.id not in ahead]
  read_by = {id_: loop.add_element(body.by_id[id_], ".ahead") for id_ in arrays}
  for instruction in originals:
    ids = [read_by.get(id_, id_) for id_ in instruction.operand_ids]
    instruction.operand_ids[:] = ids
  around_loop.start_with(loop, [*state, *(first[id_] for id_ in arrays)])
  results = around_loop.results(loop)
  wanted = list(loop.root.operand_ids)[:num_elements]
  last = around_loop.put_after(
    loop, loop.needed_for(wanted), results, f".last{loop.instruction.id}"
  )
  around_loop.end_with(loop, [last[id_] for id_ in wanted], results)
  return True


def _run_behind(
  loop: loop_editing.Loop, found: Sequence[collectives_lib.Collective]
) -> bool:
  """Pipelines reductions; says whether there were any to pipeline."""
  body = loop.editor.module.computations[loop.body_id]
  graph = dependencies.of(body)
  after = loop_dependences.handed_on(loop, graph, found)
  if not after:
    return False
  for collective in found:
    if collective.start_id in after:
      _mark(loop, collective)
  # One that feeds another stays where it is, and is run behind once more.
  twice = {id_ for id_, tail in after.items() if len(tail & after.keys()) > 1}
  once = after.keys() - twice
  behind = set().union(*(after[id_] for id_ in once))
  ends = list(loop.root.operand_ids)
  late = [id_ for id_ in ends if id_ in behind]
  computed = [id_ for id_ in ends if id_ not in behind]
  sent = list(
    dict.fromkeys(id_ for at in after for id_ in body.by_id[at].operand_ids)
  )
  state = around_loop.state(loop)
  suffix = f".first{loop.instruction.id}"
  first = around_loop.put_before(
    loop, loop.needed_for([*computed, *sent]), state, suffix
  )
  begun = [
    state[at] if id_ in behind else first[id_] for at, id_ in enumerate(ends)
  ]
  read_by = {id_: loop.add_element(body.by_id[id_], ".behind") for id_ in sent}
  starts = [i for i in loop.body if i.id in after]
  repeated = [i for i in loop.body if any(i.id in after[t] for t in twice)]
  again, _ = loop.copies(repeated, state, ".again")
  for start in [*(s for s in starts if s.id in once), *again]:
    ids = [read_by.get(id_, id_) for id_ in start.operand_ids]
    start.operand_ids[:] = ids
  loop.add(again)
  around_loop.start_with(loop, [*begun, *(first[id_] for id_ in sent)])
  results = around_loop.results(loop)
  last = around_loop.put_after(
    loop, loop.needed_for(late), results, f".last{loop.instruction.id}"
  )
  ended = [
    last[id_] if id_ in behind else results[at] for at, id_ in enumerate(ends)
  ]
  around_loop.end_with(loop, ended, results)
  return True


def _arrays(graph: dependencies.Graph, done_id: int) -> list[int]:
  """The instructions that give what a done returns, array by array."""
  done = graph.computation.by_id[done_id]
  return list(graph.users[done_id]) if done.shape.tuple_shapes else [done_id]


def _mark(
  loop: loop_editing.Loop, collective: collectives_lib.Collective
) -> None:
  """Says of a collective that it is pipelined, as XLA does."""
  start = next(i for i in loop.body if i.id == collective.start_id)
  config = loop.editor.module.backend_config(start)
  details = {
    **config.get("collective_backend_config", {}),
    "is_pipelined": True,
  }
  loop.editor.set_config(
    start, {**config, "collective_backend_config": details}
  )
