# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Arrays of a combined collective: what each is, and would take alone."""

from __future__ import annotations

from collections.abc import Sequence
import dataclasses

from lagom_xla.costs import collective as collective_lib
from lagom_xla.costs import in_words
from lagom_xla.costs import step as step_lib
from lagom_xla.explain import places
from lagom_xla.explain import subject as subject_lib
from lagom_xla.explain import words
from lagom_xla.passes import collectives as collectives_lib
from lagom_xla.passes import dependencies
from lagom_xla.passes import source_lines

# Combined arrays that a sentence names.
_MOST_NAMED = 2


def lone_us(
  step: step_lib.Step, collective: collectives_lib.Collective
) -> Sequence[float]:
  """What each array would take as a collective of its own, as NCCL runs it."""
  key = step.key_of[collective.name]
  found = []
  for num_bytes in collective.array_bytes:
    own = dataclasses.replace(key, num_bytes=num_bytes)
    setting = collective_lib.default_setting(own, step.cluster)
    found.append(step.predict(own, setting).time_us)
  return found


def lines(
  module_lines: source_lines.SourceLines,
  graph: dependencies.Graph,
  collective: collectives_lib.Collective,
) -> Sequence[source_lines.SourceLine]:
  """The source line of each array.

  It is that of the first instruction that has one: what takes the array out of
  the collective's result, then what makes it, then what uses it.
  """
  computation = graph.computation
  start = computation.by_id[collective.start_id]
  num = collective.num_operands
  if num < 2 or len(start.operand_ids) != num:
    return [module_lines.of(computation, start)]
  done_id = collective.start_id
  if collective.done_id is not None:
    done_id = collective.done_id
  found = []
  for operand_id, ids in zip(
    start.operand_ids, places.part_ids(graph, done_id, num), strict=True
  ):
    users = [user for id_ in ids for user in graph.users[id_]]
    near = [*ids, operand_id, *users]
    own = (module_lines.of_own(computation.by_id[id_]) for id_ in near)
    found.append(next(filter(None, own), source_lines.SourceLine()))
  return found


def sentence(subject: subject_lib.Subject) -> str:
  """Which arrays XLA combined, and which is late and which needed early."""
  computation = subject.place.computation
  start = computation.by_id[subject.collective.start_id]
  spans = subject.place.arrays
  names = [
    computation.instructions[span.ready].name
    if span.ready >= 0
    else computation.by_id[operand_id].name
    for span, operand_id in zip(spans, start.operand_ids, strict=True)
  ]
  last = max(range(len(spans)), key=lambda i: spans[i].ready)
  first = min(range(len(spans)), key=lambda i: spans[i].used)
  found = lines(subject.lines, subject.place.graph, subject.collective)
  named = [
    f"{name} ({words.place(line)})" if line else name
    for name, line in zip(names, found, strict=True)
  ]
  waits = f"it waits for {names[last]}, the last to be there"
  needed = f"{names[first]} is needed first"
  return (
    f"XLA combined {in_words.count(names, 'array')}:"
    f" {words.some(named, _MOST_NAMED)}; {waits}, and {needed}"
  )
