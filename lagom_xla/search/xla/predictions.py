# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Predictions of what values of XLA's options gain, before any is compiled.

A value's changes are made to the dependency graph of a schedule, a list
scheduler orders the result, and the step is replayed. What it gains is what it
takes off the replay of the same graph without it.

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
import dataclasses
import itertools

from lagom_xla.costs import step as step_lib
from lagom_xla.passes import hlo
from lagom_xla.search.xla import candidates
from lagom_xla.search.xla import knobs
from lagom_xla.xla_schedule import reschedule

# Values that are paired with each other, of those with the greatest gains.
MOST_PROMISING = 3


def pairs_of_loops(values: Iterable[knobs.Value]) -> list[knobs.Value]:
  """Every set of two or more values that change loops, the largest first."""
  found = [value for value in values if changes_loops(value)]
  return [
    together(chosen)
    for size in range(len(found), 1, -1)
    for chosen in itertools.combinations(found, size)
  ]


def pairs_of_best(ranked: Iterable[knobs.Value]) -> list[knobs.Value]:
  """Pairs of the first few values that set different options.

  Args:
    ranked: with changes, the most promising first.
  """
  best: list[knobs.Value] = []
  for value in ranked:
    if all(value.options.keys().isdisjoint(other.options) for other in best):
      best.append(value)
  return [
    together(pair) for pair in itertools.combinations(best[:MOST_PROMISING], 2)
  ]


def changes_loops(value: knobs.Value) -> bool:
  """Whether a value is known to change the loops of a schedule, and no more."""
  changes = value.changes
  if changes is None or not (changes.pipelined or changes.double_buffered):
    return False
  return not changes.thresholds_bytes and changes.overlap_limit == 1


def together(values: Sequence[knobs.Value]) -> knobs.Value:
  """All of these values, which set other options, and what they change."""
  return knobs.Value(
    label=" and ".join(value.label for value in values),
    options={n: o for value in values for n, o in value.options.items()},
    changes=_changes(values),
  )


def _changes(values: Sequence[knobs.Value]) -> reschedule.Changes | None:
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


# Instructions in all predictions of a round: a large module gets fewer.
_MAX_PREDICTED_INSTRUCTIONS = 1_000_000


@dataclasses.dataclass(frozen=True, kw_only=True)
class Predicted:
  """A value with what it is predicted to gain, as a share of the step.

  Attributes:
    value: with changes.
    gain: of all of it.
    of_parts: of the best of its parts, where it is several values together.
  """

  value: knobs.Value
  gain: float
  of_parts: float = 0.0

  @property
  def is_promising(self) -> bool:
    """Whether it is worth a compile beside its parts."""
    return self.gain - self.of_parts >= candidates.LEAST_GAIN


def of(
  incumbent: candidates.Candidate, values: Sequence[knobs.Value]
) -> list[Predicted]:
  """Values that say what they change, and pairs of them, by their gain."""
  module = incumbent.step.analysis.module
  most = max_predictions(module)
  unchanged_us = _predicted_us(incumbent.step, reschedule.Changes())
  known: list[Predicted] = []

  def add(added: Sequence[knobs.Value]) -> None:
    for value in added[: max(most - len(known), 0)]:
      parts = [
        p.gain for p in known if p.value.options.items() < value.options.items()
      ]
      if all(p.value.options != value.options for p in known):
        gain = _gain(incumbent, value, unchanged_us)
        of_parts = max([0.0, *parts])
        known.append(Predicted(value=value, gain=gain, of_parts=of_parts))
    known.sort(key=lambda p: -p.gain)

  add(_in_turns([value for value in values if value.changes is not None]))
  add(pairs_of_loops(p.value for p in reversed(known)))
  add(pairs_of_best([p.value for p in known if not _is_scheduler(p.value)]))
  return known


def _in_turns(values: Sequence[knobs.Value]) -> list[knobs.Value]:
  """A value of each knob, then another of each, and so on.

  Of a large module few are predicted, which all knobs share.
  """
  of_options: dict[frozenset[str], list[knobs.Value]] = {}
  for value in values:
    of_options.setdefault(frozenset(value.options), []).append(value)
  turns = itertools.zip_longest(*of_options.values())
  return [value for turn in turns for value in turn if value is not None]


def _is_scheduler(value: knobs.Value) -> bool:
  """Whether it changes what schedules, which the list scheduler stands for."""
  return value.changes == reschedule.Changes()


def _gain(
  incumbent: candidates.Candidate, value: knobs.Value, unchanged_us: float
) -> float:
  """What a value takes off the predicted step, as a share of it.

  Args:
    incumbent: the best candidate so far.
    value: with changes.
    unchanged_us: the step as the list scheduler has it with no change.
  """
  assert value.changes is not None
  if _is_scheduler(value):
    return 1 - unchanged_us / incumbent.under_nccl_defaults.step_time_us
  try:
    return 1 - _predicted_us(incumbent.step, value.changes) / unchanged_us
  except ValueError:  # The graph cannot be changed so.
    return 0.0


def _predicted_us(step: step_lib.Step, changes: reschedule.Changes) -> float:
  """Step time under NCCL's defaults as the list scheduler would have it."""
  module = reschedule.reschedule(step.analysis.module, changes, step.cluster)
  predicted = step.rescheduled(module)
  return predicted.timeline(predicted.default).step_time_us


def max_predictions(module: hlo.Module) -> int:
  """How many schedules of a module are predicted; of a large one, a few."""
  return max(_MAX_PREDICTED_INSTRUCTIONS // module.num_instructions, 4)
