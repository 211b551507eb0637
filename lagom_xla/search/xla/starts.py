# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Starts: the search over options from the best arm, not from XLA's default.

A search by small steps ends where no step gains, and where that is depends on
where it began. So every arm is compiled, and the options are searched again
from the fastest of them that the default is not. Values whose gain nothing
foretells, and that gained nothing where they were compiled before, are not
compiled again.
"""

from __future__ import annotations

from collections.abc import Sequence
import dataclasses
import functools

from lagom_xla.compile import config as config_lib
from lagom_xla.search.xla import arms as arms_lib
from lagom_xla.search.xla import candidates
from lagom_xla.search.xla import options
from lagom_xla.search.xla import turns
from lagom_xla.search.xla import value as value_lib

# Sets of options that are compiled from the best arm, beside the arms.
MAX_COMPILES = 8


def search(
  so_far: candidates.Search,
  evaluate: candidates.Evaluate,
  arms: Sequence[arms_lib.Arm],
  *,
  max_compiles: int = MAX_COMPILES,
  in_turn: turns.InTurn = turns.one_by_one,
  progress: candidates.Progress = lambda _: None,
) -> candidates.Search:
  """Goes on from a search that began with the default.

  Args:
    so_far: what was tried so far.
    evaluate: schedules and searches a config.
    arms: what else to begin with.
    max_compiles: how many candidates may be compiled beside the arms.
    in_turn: begins arms, and the configs of a round, ahead.
    progress: called with a few words after each candidate.
  """
  so_far = dataclasses.replace(so_far, arms=tuple(arms))
  new = new_of(so_far, arms)
  configs = in_turn([arm.config for arm in new])
  for arm, config in zip(new, configs, strict=True):
    so_far = so_far.with_candidate(evaluate(config))
    progress(arm.name)
  found = [so_far.found(arm.config) for arm in arms]
  started = [c for c in found if isinstance(c, candidates.Candidate)]
  if not started:
    return so_far
  start = min(started, key=candidates.tuned_us)
  if start.tuned.kernel_us >= so_far.best.tuned.step_time_us:
    return so_far  # Its kernels alone take longer than the best step.
  if start.step is so_far.default.step:
    return so_far  # It is the schedule that options were searched from.
  more = options.search(
    candidates.Search(default=start),
    evaluate,
    max_compiles=1 + max_compiles,
    is_hopeless=functools.partial(_gained_nothing, so_far),
    in_turn=in_turn,
    progress=progress,
  )
  return so_far.with_search(more)


def _gained_nothing(so_far: candidates.Search, value: value_lib.Value) -> bool:
  """Whether a value was tried, and made no schedule shorter.

  One that is for schedules short of memory is only tried on those.
  """
  if value.is_first:
    return False
  gains = []
  for candidate in so_far.scheduled:
    options = candidate.config.options
    if value.options.items() <= options.items():
      others = {n: v for n, v in options.items() if n not in value.options}
      alone = dataclasses.replace(candidate.config, options=others)
      without = so_far.found(alone)
      if isinstance(without, candidates.Candidate):
        gains.append(_gain(without, candidate))
  return bool(gains) and max(gains) < candidates.LEAST_GAIN


def _gain(
  without: candidates.Candidate, with_it: candidates.Candidate
) -> float:
  """What a value takes off a step under searched settings, as a share of it."""
  return 1 - with_it.tuned.step_time_us / without.tuned.step_time_us


def new_of(
  so_far: candidates.Search, arms: Sequence[arms_lib.Arm]
) -> list[arms_lib.Arm]:
  """The arms that were not tried yet, each config once."""
  tried = (so_far.default, *so_far.others)
  return unlike(arms, [candidate.config for candidate in tried])


def unlike(
  arms: Sequence[arms_lib.Arm], configs: Sequence[config_lib.XlaConfig]
) -> list[arms_lib.Arm]:
  """The arms with other configs than these, each config once."""
  found: list[arms_lib.Arm] = []
  for arm in arms:
    if arm.config not in (*configs, *(other.config for other in found)):
      found.append(arm)
  return found
