# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""The search over XLA options, the most promising first.

Which collectives exist, and what runs beside them, is up to XLA. Compiling to
find out costs seconds to minutes per value of a knob, so each value is first
*predicted*: its changes are made to the dependency graph of the best schedule
so far, a list scheduler orders the result, and the step is replayed. A value's
marginal gain is what it takes off the replay of the same graph without it.

Each round ranks all values by that gain and compiles them in this order, until
one makes the step shorter, which starts the next round from its schedule; or
until the gains fall below `candidates.LEAST_GAIN`. What cannot be predicted is
compiled once, if collectives cost enough of the step for it to gain. Only a
compiled schedule with its NCCL settings searched anew is ever kept.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
import dataclasses

from lagom_xla.compile import config as config_lib
from lagom_xla.costs import step as step_lib
from lagom_xla.passes import hlo
from lagom_xla.search.xla import candidates
from lagom_xla.search.xla import knobs
from lagom_xla.xla_schedule import reschedule

# Candidates that are compiled at most, the default among them.
MAX_COMPILES = 16

Regardless = Callable[[step_lib.Step], Sequence[knobs.Value]]

# Instructions in all predictions of a round: a large module gets fewer.
_MAX_PREDICTED_INSTRUCTIONS = 1_000_000


def search(
  so_far: candidates.Search,
  evaluate: candidates.Evaluate,
  *,
  max_compiles: int = MAX_COMPILES,
  regardless: Regardless | None = None,
  progress: candidates.Progress = lambda _: None,
) -> candidates.Search:
  """Continues a search from its default.

  Args:
    so_far: what was tried so far.
    evaluate: schedules and searches a config.
    max_compiles: how many candidates may be compiled, the default among them.
    regardless: values for a step that are compiled whatever is predicted, in
      place of those of which nothing can be.
    progress: called with a few words after each candidate.
  """
  tried = [so_far.default.config]
  while len(tried) < max_compiles:
    ranked, num_predicted = _ranked(so_far.best, tried, regardless)
    so_far = dataclasses.replace(
      so_far, num_predicted=so_far.num_predicted + num_predicted
    )
    before = so_far.best
    for value in ranked[: max_compiles - len(tried)]:
      config = before.config.with_options(value.options)
      tried.append(config)
      so_far = so_far.with_candidate(evaluate(config))
      progress(value.label)
      if so_far.best is not before:
        break
    if so_far.best is before:
      break
  return so_far


def _ranked(
  incumbent: candidates.Candidate,
  tried: Collection[config_lib.XlaConfig],
  regardless: Regardless | None,
) -> tuple[list[knobs.Value], int]:
  """Values that may gain enough, the most promising first.

  Returns:
    The values, and the number of schedules that were predicted for them.
  """
  values = [
    value
    for value in knobs.worth_trying(incumbent.step)
    if incumbent.config.with_options(value.options) not in tried
  ]
  module = incumbent.step.analysis.module
  most = max_predictions(module, _MAX_PREDICTED_INSTRUCTIONS)
  predictable = [v for v in values if v.changes is not None][:most]
  unchanged_us = _predicted_us(incumbent.step, reschedule.Changes())
  gains = [_gain(incumbent, value, unchanged_us) for value in predictable]
  ranked = sorted(
    zip(gains, predictable, strict=True), key=lambda pair: -pair[0]
  )
  promising = [v for gain, v in ranked if gain >= candidates.LEAST_GAIN]
  # Loops in a form that the graph cannot be changed in are to be compiled.
  unknown = [v for v in values if v.changes is None] + [
    v for gain, v in ranked if gain == 0.0 and _changes_loops(v)
  ]
  if regardless is not None:
    unknown = list(regardless(incumbent.step))
  if _cost_of_collectives(incumbent) >= candidates.LEAST_GAIN:
    known = [v.options for v in promising] + [t.options for t in tried]
    promising += [
      v
      for v in unknown
      if not any(v.options.items() <= options.items() for options in known)
    ]
  return promising, len(predictable) + 1


def _changes_loops(value: knobs.Value) -> bool:
  changes = value.changes
  return changes is not None and bool(
    changes.pipelined or changes.double_buffered
  )


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
  if value.changes == reschedule.Changes():  # The scheduler is what changes.
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


def _cost_of_collectives(candidate: candidates.Candidate) -> float:
  """Waits and slowdowns, as a share of the step: what schedules can change."""
  tuned = candidate.tuned
  lost_us = tuned.total_exposed_us + tuned.total_slowdown_us
  return lost_us / tuned.step_time_us if tuned.step_time_us else 0.0


def max_predictions(module: hlo.Module, max_instructions: int) -> int:
  """Predictions that have this many instructions together, or a few."""
  return max(max_instructions // module.num_instructions, 4)
