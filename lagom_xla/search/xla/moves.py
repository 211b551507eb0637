# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Moves: what a search may do next with its best config, in four stages.

First values of knobs, the most promising first, with other values of what was
set before (`swaps.py`). Where none of them gains, pairs of them that nothing is
foretold of (`companions.py`), values that did nothing beside other options, and
the config with less set (`drops.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
import dataclasses

from lagom_xla.compile import config as config_lib
from lagom_xla.costs import step as step_lib
from lagom_xla.search.xla import candidates
from lagom_xla.search.xla import companions
from lagom_xla.search.xla import drops
from lagom_xla.search.xla import hindsight as hindsight_lib
from lagom_xla.search.xla import knobs
from lagom_xla.search.xla import predictions as predictions_lib
from lagom_xla.search.xla import swaps

Regardless = Callable[[step_lib.Step], Sequence[knobs.Value]]
IsHopeless = Callable[[knobs.Value], bool]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Move:
  """A config to compile next.

  Attributes:
    label: in a few words.
    config: the config.
    value: what it sets beside the best one; None where it leaves out.
    predicted: what that is to gain, as a share of the step, without what
      hindsight makes of it; None where nothing is foretold.
  """

  label: str
  config: config_lib.XlaConfig
  value: knobs.Value | None = None
  predicted: float | None = None


def ranked(
  incumbent: candidates.Candidate,
  start: config_lib.XlaConfig,
  *,
  tried: Collection[config_lib.XlaConfig],
  predictions: predictions_lib.Predictions,
  hindsight: hindsight_lib.Hindsight,
  regardless: Regardless | None = None,
  is_hopeless: IsHopeless = lambda _: False,
) -> tuple[list[Move], int]:
  """Values that may gain enough, the most promising first.

  Args:
    incumbent: the best so far.
    start: what the search began with.
    tried: configs that are not proposed again.
    predictions: that may have been made before.
    hindsight: what the search saw so far.
    regardless: as `options.search` takes it.
    is_hopeless: as `options.search` takes it.

  Returns:
    The moves, and the number of schedules that were predicted for them.
  """

  def is_new(value: knobs.Value) -> bool:
    return incumbent.config.with_options(value.options) not in tried

  values = list(filter(is_new, knobs.worth_trying(incumbent.step)))
  predicted = predictions.of(incumbent, values)
  if regardless is not None:
    unknown = list(regardless(incumbent.step))
  else:
    unknown = [v for v in values if v.changes is None]
    unknown += predictions_lib.unpredictable(predicted)
    unknown = hindsight.not_dear(v for v in unknown if not is_hopeless(v))
  expected = [p for p in hindsight.corrected(predicted) if is_new(p.value)]
  promising = [p.value for p in expected if p.is_promising]
  if _cost_of_collectives(incumbent) >= candidates.LEAST_GAIN:
    known = [v.options for v in promising] + [c.options for c in tried]
    promising += [
      v
      for v in unknown
      if not any(v.options.items() <= options.items() for options in known)
    ]
  promising.sort(key=lambda value: (not value.is_first, value.is_last))
  # Of a knob's values on either side of what is set, errors differ.
  alone = [p for p in predicted if is_new(p.value) and p.value in values]
  added = incumbent.config.options.items() - start.options.items()
  promising += swaps.of(alone, {name for name, _ in added})
  foretold = {id(p.value): p.gain for p in predicted if p.value not in unknown}
  found = [_setting(incumbent, v, foretold.get(id(v))) for v in promising]
  return found, len(predicted) + 1


def together(
  incumbent: candidates.Candidate, hindsight: hindsight_lib.Hindsight
) -> list[Move]:
  """Pairs of values that were compiled alone, which may gain together."""
  options = incumbent.config.options.items()
  values = [
    v
    for v in knobs.worth_trying(incumbent.step)
    if not v.options.items() <= options
  ]
  to_gain = _cost_of_collectives(incumbent)
  found = companions.of(values, hindsight, to_gain)
  return [_setting(incumbent, value) for value in found]


def again(
  incumbent: candidates.Candidate, hindsight: hindsight_lib.Hindsight
) -> list[Move]:
  """Values that gained nothing beside other options, which tells little.

  What cost much is left.
  """
  options = incumbent.config.options.items()
  values = [
    v
    for v in knobs.worth_trying(incumbent.step)
    if hindsight_lib.tells_little(v) and not v.options.items() <= options
  ]
  return [_setting(incumbent, v) for v in hindsight.not_dear(values)]


def without(
  so_far: candidates.Search, hindsight: hindsight_lib.Hindsight
) -> list[Move]:
  """The best config with less set."""
  return [
    Move(label=label, config=config)
    for label, config in drops.of(so_far, hindsight)
  ]


def _setting(
  incumbent: candidates.Candidate,
  value: knobs.Value,
  predicted: float | None = None,
) -> Move:
  return Move(
    label=value.label,
    config=incumbent.config.with_options(value.options),
    value=value,
    predicted=predicted,
  )


def _cost_of_collectives(candidate: candidates.Candidate) -> float:
  """Waits and slowdowns, as a share of the step: what schedules can change."""
  tuned = candidate.tuned
  lost_us = tuned.total_exposed_us + tuned.total_slowdown_us
  return lost_us / tuned.step_time_us if tuned.step_time_us else 0.0
