# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""The search over XLA options, the most promising first.

Which collectives exist, and what runs beside them, is up to XLA. Compiling to
find out costs seconds to minutes per value of a knob, so each value is first
*predicted*: its changes are made to the dependency graph of the best schedule
so far, a list scheduler orders the result, and the step is replayed. A value's
marginal gain is what it takes off the replay of the same graph without it.

Each round ranks all values by that gain, and pairs of them (`pairs.py`) that
gain no less than either alone, and compiles them in this order, until one makes
the step shorter, which starts the next round from its schedule; or until the
gains fall below `candidates.LEAST_GAIN`. What cannot be predicted is
compiled once, if collectives cost enough of the step for it to gain. Where
nothing more gains, options are taken back (`drops.py`). Only a compiled
schedule with its NCCL settings searched anew is ever kept.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
import dataclasses

from lagom_xla.compile import config as config_lib
from lagom_xla.costs import step as step_lib
from lagom_xla.passes import hlo
from lagom_xla.search.xla import candidates
from lagom_xla.search.xla import drops
from lagom_xla.search.xla import knobs
from lagom_xla.search.xla import pairs
from lagom_xla.search.xla import turns
from lagom_xla.search.xla import value as value_lib
from lagom_xla.xla_schedule import reschedule

# Candidates that are compiled at most, the default among them.
MAX_COMPILES = 16

Regardless = Callable[[step_lib.Step], Sequence[value_lib.Value]]
IsHopeless = Callable[[value_lib.Value], bool]

# Instructions in all predictions of a round: a large module gets fewer.
_MAX_PREDICTED_INSTRUCTIONS = 1_000_000


def search(
  so_far: candidates.Search,
  evaluate: candidates.Evaluate,
  *,
  max_compiles: int = MAX_COMPILES,
  regardless: Regardless | None = None,
  is_hopeless: IsHopeless = lambda _: False,
  in_turn: turns.InTurn = turns.one_by_one,
  progress: candidates.Progress = lambda _: None,
) -> candidates.Search:
  """Continues a search from its default.

  Args:
    so_far: what was tried so far.
    evaluate: schedules and searches a config.
    max_compiles: how many candidates may be compiled, the default among them.
    regardless: values for a step that are compiled whatever is predicted, in
      place of those of which nothing can be.
    is_hopeless: of which nothing can be predicted is not compiled if this says
      that it would not gain.
    in_turn: begins the configs of a round ahead.
    progress: called with a few words after each candidate.
  """
  tried = [so_far.default.config]
  while len(tried) < max_compiles:
    ranked, num_predicted = _ranked(so_far.best, tried, regardless, is_hopeless)
    so_far = dataclasses.replace(
      so_far, num_predicted=so_far.num_predicted + num_predicted
    )
    before = so_far.best
    moves = [
      (value.label, before.config.with_options(value.options))
      for value in ranked
    ]
    moves += [move for move in drops.of(so_far) if move[1] not in tried]
    moves = [move for move in moves if not _is_too_large(so_far, move[1])]
    moves = moves[: max_compiles - len(tried)]
    configs = in_turn([config for _, config in moves])
    for (label, _), config in zip(moves, configs, strict=True):
      tried.append(config)
      so_far = so_far.with_candidate(evaluate(config))
      progress(label)
      if so_far.best is not before:
        break
    if so_far.best is before:
      break
  return so_far


def _is_too_large(
  so_far: candidates.Search, config: config_lib.XlaConfig
) -> bool:
  """Whether no GPU could hold the step with a part of these options."""
  return any(
    isinstance(other, candidates.Refused)
    and other.is_too_large
    and other.config.options.items() <= config.options.items()
    for other in so_far.others
  )


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Predicted:
  """A value with what it is predicted to gain, as a share of the step.

  Attributes:
    value: with changes.
    gain: of all of it.
    of_parts: of the best of its parts, where it is several values together.
  """

  value: value_lib.Value
  gain: float
  of_parts: float = 0.0

  @property
  def is_promising(self) -> bool:
    """Whether it is worth a compile, and no part of it gains more."""
    return self.gain >= max(candidates.LEAST_GAIN, self.of_parts)


def _ranked(
  incumbent: candidates.Candidate,
  tried: Collection[config_lib.XlaConfig],
  regardless: Regardless | None,
  is_hopeless: IsHopeless,
) -> tuple[list[value_lib.Value], int]:
  """Values that may gain enough, the most promising first.

  Returns:
    The values, and the number of schedules that were predicted for them.
  """
  values = [
    value
    for value in knobs.worth_trying(incumbent.step)
    if incumbent.config.with_options(value.options) not in tried
  ]
  predicted = _predicted(incumbent, values)
  promising = [p.value for p in predicted if p.is_promising]
  promising = [
    value
    for value in promising
    if incumbent.config.with_options(value.options) not in tried
  ]
  if regardless is not None:
    unknown = list(regardless(incumbent.step))
  else:
    unknown = [v for v in values if v.changes is None]
    unknown += _unpredictable(predicted)
    unknown = [v for v in unknown if not is_hopeless(v)]
  if _cost_of_collectives(incumbent) >= candidates.LEAST_GAIN:
    known = [v.options for v in promising] + [t.options for t in tried]
    promising += [
      v
      for v in unknown
      if not any(v.options.items() <= options.items() for options in known)
    ]
  promising.sort(key=lambda value: not value.is_first)
  return promising, len(predicted) + 1


def _predicted(
  incumbent: candidates.Candidate, values: Sequence[value_lib.Value]
) -> list[_Predicted]:
  """Values that say what they change, and pairs of them, by their gain."""
  module = incumbent.step.analysis.module
  most = max_predictions(module, _MAX_PREDICTED_INSTRUCTIONS)
  unchanged_us = _predicted_us(incumbent.step, reschedule.Changes())
  known: list[_Predicted] = []

  def add(added: Sequence[value_lib.Value]) -> None:
    for value in added[: max(most - len(known), 0)]:
      parts = [
        p.gain for p in known if p.value.options.items() < value.options.items()
      ]
      if all(p.value.options != value.options for p in known):
        gain = _gain(incumbent, value, unchanged_us)
        of_parts = max([0.0, *parts])
        known.append(_Predicted(value=value, gain=gain, of_parts=of_parts))
    known.sort(key=lambda p: -p.gain)

  add([value for value in values if value.changes is not None])
  add(pairs.of_loops(p.value for p in reversed(known)))
  add(pairs.of_best([p.value for p in known if not _is_scheduler(p.value)]))
  return known


def _unpredictable(predicted: Sequence[_Predicted]) -> list[value_lib.Value]:
  """Values that are compiled though their prediction shows nothing.

  A scheduler that XLA left off; and where loops have a form that the graph
  cannot be changed in, each way to change them, and all ways together.
  """
  schedulers = [p.value for p in predicted if _is_scheduler(p.value)]
  loops = [
    p.value for p in predicted if p.gain == 0.0 and pairs.changes_loops(p.value)
  ]
  loops.sort(key=lambda value: -len(value.options))
  alone = [value for value in loops[1:] if len(value.options) == 1]
  return [*schedulers, *loops[:1], *alone]


def _is_scheduler(value: value_lib.Value) -> bool:
  """Whether it changes what schedules, which the list scheduler stands for."""
  return value.changes == reschedule.Changes()


def _gain(
  incumbent: candidates.Candidate, value: value_lib.Value, unchanged_us: float
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


def _cost_of_collectives(candidate: candidates.Candidate) -> float:
  """Waits and slowdowns, as a share of the step: what schedules can change."""
  tuned = candidate.tuned
  lost_us = tuned.total_exposed_us + tuned.total_slowdown_us
  return lost_us / tuned.step_time_us if tuned.step_time_us else 0.0


def max_predictions(module: hlo.Module, max_instructions: int) -> int:
  """Predictions that have this many instructions together, or a few."""
  return max(max_instructions // module.num_instructions, 4)
