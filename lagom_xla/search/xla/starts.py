# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Starts: the search over options from the best arms, then from the default.

A search by small steps ends where no step gains, and where that is depends on
where it began. So every arm is compiled first, which is also what is worth most
to a search that is stopped early; the options are searched from the fastest of
the arms and the default, then from arms that are as fast and have other
kernels, and last from the default. Values whose gain nothing foretells, that
make no other kernels and that did nothing where they were compiled before, are
not compiled again.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Sequence
import contextlib
import dataclasses
import functools

from lagom_xla.compile import config as config_lib
from lagom_xla.compile import fused
from lagom_xla.search.xla import arms as arms_lib
from lagom_xla.search.xla import candidates
from lagom_xla.search.xla import evaluation
from lagom_xla.search.xla import hindsight
from lagom_xla.search.xla import knobs
from lagom_xla.search.xla import options
from lagom_xla.search.xla import predictions as predictions_lib
from lagom_xla.search.xla import pruning

# Of the sets of options that may be compiled, so many are: by the median of 78
# searches in benchmarks/recipes/results/recipes.csv, 28 with three arms.
_USUAL_SHARE = 0.8
# Arms whose steps differ by no more of them are as fast: predictions of where
# they lead are off by as much (`moves.py`).
_TIE = 5e-3

Beside = Callable[[candidates.Candidate | None], candidates.Evaluate]
Expect = Callable[[float], None]


def search(
  so_far: candidates.Search,
  beside: Beside,
  arms: Sequence[arms_lib.Arm],
  *,
  turns: evaluation.Turns,
  max_compiles: int = options.MAX_COMPILES,
  ahead: contextlib.ExitStack | None = None,
  progress: candidates.Progress = lambda _: None,
  expect: Expect = lambda _: None,
) -> candidates.Search:
  """Goes on from a search that has its default alone.

  Args:
    so_far: the search.
    beside: given the fastest arm, or None while that is not known, what
      schedules and searches a config.
    arms: what else to begin with.
    turns: has the arms begun, and the configs of a round ahead.
    max_compiles: how many sets of options may be compiled from each start on,
      that start among them.
    ahead: lets go of what is begun for after the search; None for nothing.
    progress: called with a few words after each candidate.
    expect: called with how many candidates are to come, as often as more is
      known of that.
  """
  predictions = predictions_lib.Predictions()
  default = so_far.default
  so_far = dataclasses.replace(so_far, arms=tuple(arms))
  new = unlike(arms, default.config)
  expect(len(new) + 2 * _USUAL_SHARE * (max_compiles - 1))
  with contextlib.ExitStack() as begun:
    begun.enter_context(turns.of_arms.begun(arm.config for arm in new))
    if new and turns.num_workers:
      # Options are searched from the default whatever the arms are worth, so
      # workers that have no arm left begin with that.
      following = options.first_round(default, predictions)[: max_compiles - 1]
      # What goes on from the default's fused module takes a tenth of the time,
      # and must not hold up what the best of the arms is asked for after it.
      following.sort(key=lambda config: bool(_fused_before(config)))
      begun.enter_context(turns.begun(following))
    for arm in new:
      so_far = so_far.with_candidate(beside(None)(arm.config))
      progress(arm.name)
    if ahead is not None and turns.num_workers:
      start = min(so_far.scheduled, key=candidates.tuned_us)
      ahead.enter_context(turns.begun(_fused_otherwise(start, default)))
    return _from_starts(
      so_far,
      functools.partial(
        options.search,
        evaluate=beside(so_far.fastest_arm),
        predictions=predictions,
        progress=progress,
      ),
      functools.partial(_expecting, turns.ahead, expect),
      max_compiles,
    )


def _fused_otherwise(
  start: candidates.Candidate, default: candidates.Candidate
) -> list[config_lib.XlaConfig]:
  """A start without each option that XLA fuses other kernels for.

  Whatever is found from it on, what these options do will be asked for, and all
  that is compiled for that goes on from these. If it is kept, it is they that
  are asked for (`pruning.py`).
  """
  config = pruning.expected(start, default)
  if not fused.may_share(config.options):
    return []
  return [config.without_options([name]) for name in _fused_before(config)]


def _fused_before(config: config_lib.XlaConfig) -> Collection[str]:
  """The options of a config that XLA fuses other kernels for."""
  return fused.options_before_fusion(config.options)


def _from_starts(
  so_far: candidates.Search,
  search_options: Callable[..., candidates.Search],
  in_turn_before: Callable[[float], evaluation.InTurn],
  max_compiles: int,
) -> candidates.Search:
  """Goes on from the fastest arm, from those that tie, and from the default."""
  first, *others = _starts(so_far)
  usual = _USUAL_SHARE * (max_compiles - 1)
  so_far = so_far.with_search(
    search_options(
      candidates.Search(default=first),
      max_compiles=max_compiles,
      in_turn=in_turn_before(usual * len(others)),
    )
  )
  for position, start in enumerate(others, start=1):
    if not candidates.can_win(start, so_far):
      continue
    again = search_options(
      candidates.Search(default=start),
      max_compiles=max_compiles,
      is_hopeless=functools.partial(_did_nothing, so_far),
      in_turn=in_turn_before(usual * (len(others) - position)),
    )
    with_more = so_far.with_search(again)
    if start is so_far.default:
      # First what has fewer options: of what is as fast the first is kept.
      found = (*again.others, *so_far.others)
      with_more = dataclasses.replace(with_more, others=found)
    so_far = with_more
  return so_far


def _starts(so_far: candidates.Search) -> list[candidates.Candidate]:
  """What options are searched from, the fastest first, the default last."""
  default, *arms = so_far.scheduled
  fastest = min(so_far.scheduled, key=candidates.tuned_us)
  most_us = (1 + _TIE) * candidates.tuned_us(fastest)
  tied = [arm for arm in arms if candidates.tuned_us(arm) <= most_us]
  starts = [fastest]
  for arm in tied:
    if not any(_are_alike(arm, other) for other in (*starts, default)):
      starts.append(arm)
  if fastest.step is not default.step and candidates.can_win(default, so_far):
    starts.append(default)
  return starts


def _are_alike(one: candidates.Candidate, other: candidates.Candidate) -> bool:
  """Whether they have the same kernels, with which schedules are knobs' work.

  A search has values for what else an arm sets; for other kernels it has few.
  """
  least_us = candidates.LEAST_GAIN * one.tuned.kernel_us
  return abs(one.tuned.kernel_us - other.tuned.kernel_us) < least_us


def _expecting(
  in_turn: evaluation.InTurn, expect: Expect, num_later: float
) -> evaluation.InTurn:
  """Turns that say how many candidates are to come, with so many after them."""

  def begin(
    configs: Sequence[config_lib.XlaConfig],
  ) -> Generator[config_lib.XlaConfig, None, None]:
    expect(len(configs) + num_later)
    return in_turn(configs)

  return begin


def _did_nothing(so_far: candidates.Search, value: knobs.Value) -> bool:
  """Whether a value was tried, and no schedule took another time for it.

  One that made a schedule longer may make another one shorter.
  """
  if hindsight.tells_little(value):
    return False
  changes = []
  for candidate in so_far.scheduled:
    options = candidate.config.options
    if value.options.items() <= options.items():
      others = {n: v for n, v in options.items() if n not in value.options}
      alone = dataclasses.replace(candidate.config, options=others)
      without = so_far.found(alone)
      if isinstance(without, candidates.Candidate):
        changes.append(abs(_gain(without, candidate)))
  return bool(changes) and max(changes) < candidates.LEAST_GAIN


def _gain(
  without: candidates.Candidate, with_it: candidates.Candidate
) -> float:
  """What a value takes off a step under searched settings, as a share of it."""
  return 1 - with_it.tuned.step_time_us / without.tuned.step_time_us


def unlike(
  arms: Sequence[arms_lib.Arm], config: config_lib.XlaConfig
) -> list[arms_lib.Arm]:
  """The arms with other configs than this one, each config once."""
  found: list[arms_lib.Arm] = []
  for arm in arms:
    if arm.config not in (config, *(other.config for other in found)):
      found.append(arm)
  return found
