# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""The search over XLA options, the most promising first.

Which collectives exist, and what runs beside them, is up to XLA. Compiling to
find out costs seconds to minutes per value of a knob, so what each value gains
is *predicted* first (`predictions.py`).

Each round ranks all values by that gain, and pairs of them (`pairs.py`) that
gain no less than either alone, and compiles them in this order, until one makes
the step shorter, which starts the next round from its schedule; or until the
gains fall below `candidates.LEAST_GAIN`. What cannot be predicted is
compiled once, if collectives cost enough of the step for it to gain. Where
nothing more gains, options get other values (`swaps.py`) and are taken back
(`drops.py`). Only a compiled schedule with its NCCL settings searched anew is
ever kept.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
import dataclasses

from lagom_xla.compile import config as config_lib
from lagom_xla.costs import step as step_lib
from lagom_xla.search.xla import candidates
from lagom_xla.search.xla import drops
from lagom_xla.search.xla import knobs
from lagom_xla.search.xla import predictions as predictions_lib
from lagom_xla.search.xla import swaps
from lagom_xla.search.xla import turns
from lagom_xla.search.xla.knobs import value as value_lib

# Candidates that are compiled at most, the default among them.
MAX_COMPILES = 16

Regardless = Callable[[step_lib.Step], Sequence[value_lib.Value]]
IsHopeless = Callable[[value_lib.Value], bool]


def search(
  so_far: candidates.Search,
  evaluate: candidates.Evaluate,
  *,
  max_compiles: int = MAX_COMPILES,
  regardless: Regardless | None = None,
  is_hopeless: IsHopeless = lambda _: False,
  in_turn: turns.InTurn = turns.one_by_one,
  predictions: predictions_lib.Predictions | None = None,
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
    predictions: that may have been made before; None for none.
    progress: called with a few words after each candidate.
  """
  predictions = predictions or predictions_lib.Predictions()
  tried = [so_far.default.config]
  while len(tried) < max_compiles:
    ranked, num_predicted = _ranked(
      so_far.best, tried, regardless, is_hopeless, predictions
    )
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


def first_round(
  start: candidates.Candidate, predictions: predictions_lib.Predictions
) -> list[config_lib.XlaConfig]:
  """What a search from a candidate begins with, unless it knows better."""
  ranked, _ = _ranked(start, [start.config], None, lambda _: False, predictions)
  return [start.config.with_options(value.options) for value in ranked]


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


def _ranked(
  incumbent: candidates.Candidate,
  tried: Sequence[config_lib.XlaConfig],
  regardless: Regardless | None,
  is_hopeless: IsHopeless,
  predictions: predictions_lib.Predictions,
) -> tuple[list[value_lib.Value], int]:
  """Values that may gain enough, the most promising first.

  Args:
    incumbent: the best so far.
    tried: configs that are not proposed again, the start first.
    regardless: as `search` takes it.
    is_hopeless: as `search` takes it.
    predictions: that may have been made before.

  Returns:
    The values, and the number of schedules that were predicted for them.
  """
  values = [
    value
    for value in knobs.worth_trying(incumbent.step)
    if incumbent.config.with_options(value.options) not in tried
  ]
  predicted = predictions.of(incumbent, values)
  untried = [
    p
    for p in predicted
    if incumbent.config.with_options(p.value.options) not in tried
  ]
  promising = [p.value for p in untried if p.is_promising]
  if regardless is not None:
    unknown = list(regardless(incumbent.step))
  else:
    unknown = [v for v in values if v.changes is None]
    unknown += predictions_lib.unpredictable(predicted)
    unknown = [v for v in unknown if not is_hopeless(v)]
  if _cost_of_collectives(incumbent) >= candidates.LEAST_GAIN:
    known = [v.options for v in promising] + [t.options for t in tried]
    promising += [
      v
      for v in unknown
      if not any(v.options.items() <= options.items() for options in known)
    ]
  promising.sort(key=lambda value: (not value.is_first, value.is_last))
  added = incumbent.config.options.items() - tried[0].options.items()
  alone = [p for p in untried if p.value in values]
  promising += swaps.of(alone, {name for name, _ in added})
  return promising, len(predicted) + 1


def _cost_of_collectives(candidate: candidates.Candidate) -> float:
  """Waits and slowdowns, as a share of the step: what schedules can change."""
  tuned = candidate.tuned
  lost_us = tuned.total_exposed_us + tuned.total_slowdown_us
  return lost_us / tuned.step_time_us if tuned.step_time_us else 0.0
