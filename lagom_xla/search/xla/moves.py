# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Moves: what a search may do next with its best config, in four stages.

First values of knobs, the most promising first. Where none of them gains, pairs
of them that nothing is foretold of, values that did nothing beside other
options, and the config with less set.

*Swaps.* A search keeps the first value of a knob that gains, which is the one
predicted to gain most. Another may gain more once other options are beside it,
and by less than predictions are off: collectives combined up to 1 GiB, say, in
place of 2 GiB. So after what is promising, those that are predicted to be as
good, by little more or less, are compiled, too.

*Companions* gain together, though nothing foretold it. Products that XLA leaves
apart cost a step nothing or little, and let a double-buffered loop hide more; a
schedule by fixed costs may need two collectives in flight. Of pairs with such
values nothing is predicted (`predictions.py` has the others), so where no value
gains any more alone, a few pairs are compiled: those whose values have cost
least.

*Drops.* What gained when it was added may cost once others are beside it: a
pipelined all-reduce in a loop that is double-buffered, for one. A search that
only ever adds options keeps them all, and all that the recipe sets that it
started from. So where nothing more gains by being added, the best config is
compiled without each of a few options, of a recipe those that the search could
add, too.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
import dataclasses
import itertools

from lagom_xla.compile import config as config_lib
from lagom_xla.costs import step as step_lib
from lagom_xla.search.xla import candidates
from lagom_xla.search.xla import hindsight as hindsight_lib
from lagom_xla.search.xla import knobs
from lagom_xla.search.xla import predictions as predictions_lib

# Companions that are compiled in a round.
_MOST_COMPANIONS = 2
# What a pair costs alone it has to win back from what collectives cost, of
# which options hide a part: a pair that gained cost an eighth of it.
_SHARE = 1 / 5
# A value that changes less of the step did nothing: it makes the same schedule.
_NOTHING = 1e-6
# Swaps that are compiled in a round.
_MOST_SWAPS = 3
# What predictions are off by, as shares of the step: a schedule with another
# threshold came out up to 0.8 % shorter than predicted (Llama 70B on A100s), so
# what is predicted to cost this much may gain. What is predicted to change less
# than the second makes the same schedule.
_CLOSE = 5e-3
_SAME = 1e-6
# Drops that are compiled in a round, of what the search added.
MOST_DROPS = 4

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
  promising += _swaps(alone, {name for name, _ in added})
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
  found = _companions(values, hindsight, to_gain)
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
  """The best config without each of its options.

  Args:
    so_far: the search. Of what its default sets only combine thresholds and
      what changes loops are dropped, after what was added.
    hindsight: what it saw. What gained least when it was added is dropped
      first.
  """
  config, start = so_far.best.config, so_far.default.config
  added = [n for n in config.options if n not in start.options]
  added.sort(key=lambda n: hindsight.gain_of_option(n, config.options[n]))
  acting = _acting(so_far.best.step)
  began_with = [n for n in start.options if n in config.options.keys() & acting]
  return [
    Move(
      label=f"without {name.removeprefix('xla_gpu_')}",
      config=config.without_options([name]),
    )
    for name in (*added[:MOST_DROPS], *began_with)
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


def _swaps(
  predicted: Iterable[predictions_lib.Predicted], added: AbstractSet[str]
) -> Iterator[knobs.Value]:
  """The most promising swaps of a config.

  Args:
    predicted: single values beside it, the most promising first.
    added: the options that the search added; what it began with stays.
  """
  swaps = (
    p.value
    for p in predicted
    if p.value.options.keys() <= added
    and not p.is_promising
    and p.gain >= -_CLOSE
    and abs(p.gain) >= _SAME
  )
  return itertools.islice(swaps, _MOST_SWAPS)


def _companions(
  values: Sequence[knobs.Value],
  hindsight: hindsight_lib.Hindsight,
  to_gain: float,
) -> list[knobs.Value]:
  """Pairs of values one of which nothing is predicted of.

  Args:
    values: of single knobs.
    hindsight: what they came to alone. What did nothing, cost much or was not
      compiled is in no pair.
    to_gain: what collectives cost the step, as a share of it.
  """
  known = [
    (value, gain)
    for value in values
    if (gain := hindsight.gain(value)) is not None
    and -hindsight_lib.DEAR < gain
    and abs(gain) >= _NOTHING
  ]
  found = [
    (one, other)
    for one, other in itertools.combinations(known, 2)
    if None in (one[0].changes, other[0].changes)
    and one[0].options.keys().isdisjoint(other[0].options)
    and one[1] + other[1] >= -_SHARE * to_gain
  ]
  found.sort(key=lambda pair: -pair[0][1] - pair[1][1])
  return [
    predictions_lib.together([one[0], other[0]])
    for one, other in found[:_MOST_COMPANIONS]
  ]


def _acting(step: step_lib.Step) -> AbstractSet[str]:
  """The options of combining and of loops that act on a step's collectives.

  Among them are suspects (`pruning.py`), which only a compile acquits: without
  a threshold that seems to combine nothing OLMoE on A100s is 0.5 % faster.
  """
  collectives = step.analysis.collectives
  kinds = {c.kind for c in collectives}
  combining = {o for kind, o in knobs.OPTIONS.items() if kind in kinds}
  has_loops = any(c.executions > 1 for c in collectives)
  return combining.union(knobs.OF_LOOPS if has_loops else ())
