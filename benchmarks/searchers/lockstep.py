# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Searches all problems of a step at once, with one trial of each per step.

The problems of a step share no tuning key and no overlap, so the setting of one
does not affect the profile of another. So a trial of the step tries a
configuration in each problem with an unfinished search, and the best
configuration of the step combines the best of each problem. A step with many
problems takes as many trials as the longest of its searches, not their sum.

    found = lockstep.run_step(Balance(), step, max_trials=100)
    found.configuration
    found.best_us_after(10)     # the best of ten trials, in microseconds
"""

from __future__ import annotations

import dataclasses

from benchmarks.searchers import searcher as searcher_lib
from benchmarks.searchers import space as space_lib
from lagom_xla.costs import step as step_lib
from lagom_xla.search.nccl import problem as problem_lib


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class History:
  """The results of a step's search, trial by trial.

  Attributes:
    configuration: the best, with a setting for each key of the step.
    best_us: the step time of the best configuration so far, after each trial;
      the first is without tuning.
  """

  configuration: space_lib.Configuration
  best_us: tuple[float, ...]

  @property
  def num_trials(self) -> int:
    """The number of trials."""
    return len(self.best_us)

  def best_us_after(self, num_trials: int) -> float:
    """The step time of the best of this many trials, or of all."""
    return self.best_us[min(num_trials, len(self.best_us)) - 1]


def run_step(
  searcher: searcher_lib.Searcher,
  step: step_lib.Step,
  *,
  max_trials: int | None = None,
  seed: int = 0,
) -> History:
  """Searches all problems of a step, starting from NCCL's own choices.

  Args:
    searcher: the searcher.
    step: the step to search.
    max_trials: ends the search after this many trials of the step; needed for
      searchers that never end by themselves.
    seed: seed of random searchers.
  """
  problems = problem_lib.problems(step)
  profiles = [space_lib.Predictor(step, problem) for problem in problems]
  searches = [
    searcher_lib.Search(
      searcher, problem, step.cluster, start=step.default, seed=seed + index
    )
    for index, problem in enumerate(problems)
  ]
  default_us = step.timeline(step.default).step_time_us
  start_us = [0.0] * len(searches)
  best_us: list[float] = []
  while len(best_us) != max_trials:
    if all(search.asked is None for search in searches):
      break
    for index, search in enumerate(searches):
      if search.asked is not None:
        search.tell(profiles[index](search.asked))
        if search.num_trials == 1:
          start_us[index] = search.best_us
    gained_us = sum(
      us - search.best_us for us, search in zip(start_us, searches, strict=True)
    )
    best_us.append(default_us - gained_us)
  configuration = dict(step.default)
  for search in searches:
    configuration.update(search.best)
  return History(
    configuration=configuration, best_us=tuple(best_us) or (default_us,)
  )
