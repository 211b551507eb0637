# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Pairs of values: knobs that gain together what neither gains alone.

A pipelined collective needs a kernel of another iteration to hide behind, which
a double-buffered loop has; a loop that is double-buffered needs collectives
that may cross from one iteration to the other, which pipelining makes. Each
alone may look useless, so that a search by one knob at a time keeps neither.

Two sorts are looked at. What changes loops goes together in every way, as there
are few such values. Then the most promising of all values, and of those sets,
that set different options are paired, whether or not they gain alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
import itertools

from lagom_xla.search.xla.knobs import value as value_lib
from lagom_xla.xla_schedule import reschedule

# Values that are paired with each other, of those with the greatest gains.
MOST_PROMISING = 3


def of_loops(values: Iterable[value_lib.Value]) -> list[value_lib.Value]:
  """Every set of two or more values that change loops, the largest first."""
  found = [value for value in values if changes_loops(value)]
  return [
    together(chosen)
    for size in range(len(found), 1, -1)
    for chosen in itertools.combinations(found, size)
  ]


def of_best(ranked: Iterable[value_lib.Value]) -> list[value_lib.Value]:
  """Pairs of the first few values that set different options.

  Args:
    ranked: with changes, the most promising first.
  """
  best: list[value_lib.Value] = []
  for value in ranked:
    if all(value.options.keys().isdisjoint(other.options) for other in best):
      best.append(value)
  return [
    together(pair) for pair in itertools.combinations(best[:MOST_PROMISING], 2)
  ]


def changes_loops(value: value_lib.Value) -> bool:
  """Whether a value is known to change the loops of a schedule, and no more."""
  changes = value.changes
  if changes is None or not (changes.pipelined or changes.double_buffered):
    return False
  return not changes.thresholds_bytes and changes.overlap_limit == 1


def together(values: Sequence[value_lib.Value]) -> value_lib.Value:
  """All of these values, which set other options, and what they change."""
  return value_lib.Value(
    label=" and ".join(value.label for value in values),
    options={n: o for value in values for n, o in value.options.items()},
    changes=_changes(values),
  )


def _changes(values: Sequence[value_lib.Value]) -> reschedule.Changes | None:
  """What they change together; None where that is not known of one."""
  changes = [v.changes for v in values if v.changes is not None]
  if len(changes) < len(values):
    return None
  thresholds_bytes: dict[str, int] = {}
  for change in changes:
    thresholds_bytes.update(change.thresholds_bytes)
  return reschedule.Changes(
    thresholds_bytes=thresholds_bytes,
    overlap_limit=max(change.overlap_limit for change in changes),
    pipelined=frozenset(k for change in changes for k in change.pipelined),
    double_buffered=any(change.double_buffered for change in changes),
  )
