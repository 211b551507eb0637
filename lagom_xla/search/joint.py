# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""XLA options outside, NCCL settings inside, the most promising first.

Which collectives exist, and what runs beside them, is up to XLA. Compiling to
find out costs seconds to minutes per value of a knob, so each value is first
*predicted*: its changes are made to the dependency graph of the best schedule
so far, a list scheduler orders the result, and the step is replayed. A value's
marginal gain is what it takes off the replay of the same graph without it.

Each round ranks all values by that gain and compiles them in this order, until
one makes the step shorter, which starts the next round from its schedule; or
until the gains fall below `candidates.LEAST_GAIN`. What cannot be predicted is
compiled once, if the time that collectives cost at all leaves it room. Only a
compiled schedule with its NCCL settings searched anew is ever kept.

Combine groups (`regrouping.py`) come last, from the options that were found,
and only when asked for: they take a pass in the process that compiles, which no
launcher can set.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
import dataclasses

from lagom_xla import compile as compile_lib
from lagom_xla import target as target_lib
from lagom_xla.costs import step as step_lib
from lagom_xla.passes import combine
from lagom_xla.passes import hlo
from lagom_xla.passes import overlap as overlap_lib
from lagom_xla.predict import prediction
from lagom_xla.search import candidates
from lagom_xla.search import knobs
from lagom_xla.search import regrouping

# Candidates that are compiled at most, the default among them.
MAX_COMPILES = 16

# Instructions in all predictions of a round of knobs, and of combine groups: a
# large module gets fewer predictions.
_MAX_PREDICTED_INSTRUCTIONS = 1_000_000
_MAX_REGROUPED_INSTRUCTIONS = 1_000_000

Progress = Callable[[str], None]


def search(
  target: target_lib.Target,
  *,
  max_compiles: int = MAX_COMPILES,
  with_groups: bool = False,
  progress: Progress = lambda _: None,
) -> candidates.Search:
  """Searches XLA options and NCCL settings together.

  Args:
    target: what to tune.
    max_compiles: how many candidates may be compiled.
    with_groups: whether to choose combine groups, too.
    progress: called with a few words after each candidate.

  Raises:
    compile_lib.CompileError: the target does not compile with the defaults.
  """
  found = candidates.Search(default=candidates.evaluate_default(target))
  progress("XLA's defaults")
  if target.is_read_only:
    return found
  tried = [found.default.options]
  while len(tried) < max_compiles:
    ranked, num_predicted = _ranked(found.best, tried)
    found = dataclasses.replace(
      found, num_predicted=found.num_predicted + num_predicted
    )
    before = found.best
    for value in ranked[: max_compiles - len(tried)]:
      options = {**before.options, **value.options}
      tried.append(options)
      found = found.with_(candidates.evaluate(target, options))
      progress(value.label)
      if found.best is not before:
        break
    if found.best is before:
      break
  return _with_groups(target, found, progress) if with_groups else found


def _with_groups(
  target: target_lib.Target, found: candidates.Search, progress: Progress
) -> candidates.Search:
  """Tries the best groups for the best options."""
  options = found.best.options
  try:
    apart = target.schedule({**options, **compile_lib.COST_ESTIMATES}, ())
  except compile_lib.CompileError as error:
    refused = candidates.Refused(options=options, groups=(), reason=str(error))
    return found.with_(refused)
  chosen = regrouping.search(
    apart,
    target.cluster,
    max_predictions=_max_predictions(apart, _MAX_REGROUPED_INSTRUCTIONS),
  )
  members = combine.labels(apart)
  groups = tuple(
    tuple(label for name in group for label in members[name])
    for group in chosen.groups
  )
  found = dataclasses.replace(
    found, num_predicted=found.num_predicted + chosen.num_predicted
  )
  found = found.with_(candidates.evaluate(target, options, groups))
  progress("combine groups")
  return found


def _max_predictions(module: hlo.Module, max_instructions: int) -> int:
  return max(max_instructions // module.num_instructions, 4)


def _ranked(
  incumbent: candidates.Candidate, tried: Collection[candidates.XlaOptions]
) -> tuple[list[knobs.Value], int]:
  """Values that may gain enough, the most promising first.

  Returns:
    The values, and the number of schedules that were predicted for them.
  """
  values = [
    value
    for value in knobs.worth_trying(incumbent.step)
    if {**incumbent.options, **value.options} not in tried
  ]
  predictable = [v for v in values if v.changes is not None]
  module = incumbent.step.analysis.module
  most = _max_predictions(module, _MAX_PREDICTED_INSTRUCTIONS)
  predictable = predictable[:most]
  unchanged_us = _predicted_us(incumbent.step, prediction.Changes())
  gains = {}
  for value in predictable:
    if (
      value.changes == prediction.Changes()
    ):  # It is the scheduler that changes.
      gains[value.label] = 1 - unchanged_us / incumbent.default.step_time_us
    else:
      predicted_us = _predicted_us(incumbent.step, value.changes)
      gains[value.label] = 1 - predicted_us / unchanged_us
  promising = [
    v for v in predictable if gains[v.label] >= candidates.LEAST_GAIN
  ]
  promising.sort(key=lambda value: -gains[value.label])
  if _cost_of_collectives(incumbent) >= candidates.LEAST_GAIN:
    promising += [
      v
      for v in values
      if v.changes is None
      and not any(v.options.items() <= t.items() for t in tried)
    ]
  return promising, len(predictable) + 1


def _predicted_us(step: step_lib.Step, changes: prediction.Changes) -> float:
  """Step time under NCCL's defaults as the list scheduler would have it."""
  module = prediction.schedule(step.analysis.module, changes, step.cluster)
  predicted = step_lib.Step(overlap_lib.analyze(module), step.cluster)
  return predicted.timeline(predicted.default).step_time_us


def _cost_of_collectives(candidate: candidates.Candidate) -> float:
  """Waits and slowdowns, as a share of the step: what schedules can change."""
  tuned = candidate.tuned
  lost_us = tuned.total_exposed_us + tuned.total_slowdown_us
  return lost_us / tuned.step_time_us if tuned.step_time_us else 0.0


def num_candidates(
  target: target_lib.Target, *, with_groups: bool = False
) -> int:
  """How many candidates a search looks at, at most."""
  return 1 if target.is_read_only else MAX_COMPILES + with_groups
