# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Searches of all problems of a step at once, one trial of each per step.

The problems of a step share no tuning key and no overlap, so what one of them
is set to does not change what another shows. Hence a trial of the step tries a
configuration in each problem whose search is not finished, and the best
configuration of the step is made of the best of each problem. A step of many
problems takes as many trials as the longest of its searches, not their sum.

    found = lockstep.run_step(Balance(), step, max_trials=100)
    found.configuration
    found.best_us_after(10)     # what ten trials had found, in microseconds
"""

from __future__ import annotations

from collections.abc import Callable
import dataclasses

from lagom_xla.costs import step as step_lib
from lagom_xla.search.nccl import problem as problem_lib
from lagom_xla.search.nccl import searcher as searcher_lib

MakePredictor = Callable[
  [step_lib.Step, problem_lib.Problem], searcher_lib.ProfileFn
]


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class History:
  """What a search of a step found, trial by trial.

  Attributes:
    configuration: the best, with a setting for each key of the step.
    best_us: the step time of the best configuration so far, after each trial;
      the first is what ran without tuning.
  """

  configuration: problem_lib.Configuration
  best_us: tuple[float, ...]

  @property
  def num_trials(self) -> int:
    """Trials that were made."""
    return len(self.best_us)

  def best_us_after(self, num_trials: int) -> float:
    """The step time of the best of this many trials, or of all if fewer."""
    return self.best_us[min(num_trials, len(self.best_us)) - 1]


def run_step(
  searcher: searcher_lib.Searcher,
  step: step_lib.Step,
  *,
  start: problem_lib.Configuration | None = None,
  max_trials: int | None = None,
  seed: int = 0,
  predictor: MakePredictor = problem_lib.Predictor,
) -> History:
  """Searches all problems of a step.

  Args:
    searcher: how.
    step: what.
    start: what runs without tuning; NCCL's own choices if not given.
    max_trials: ends the search after this many trials of the step; at least 1.
      Needed for searchers that are never done by themselves.
    seed: of what is drawn at random, if anything is.
    predictor: makes what profiles the trials of a problem of the step.

  Raises:
    ValueError: `max_trials` is not positive.
  """
  if max_trials is not None and max_trials < 1:
    raise ValueError(
      f"max_trials is {max_trials}: the first trial is the start itself, so a"
      " search makes at least 1."
    )
  start = step.default if start is None else start
  default_us = step.timeline(start).step_time_us
  searches = [
    _Search(
      searcher,
      searcher.init(problem, step.cluster, start=start, seed=seed + position),
      predictor(step, problem),
    )
    for position, problem in enumerate(problem_lib.problems(step))
  ]
  best_us: list[float] = []
  while len(best_us) != max_trials:
    unfinished = [search for search in searches if not search.is_done]
    if not unfinished:
      break
    for search in unfinished:
      search.make_trial()
    gained_us = sum(search.gained_us for search in searches)
    best_us.append(default_us - gained_us)
  configuration = dict(start)
  for search in searches:
    configuration.update(search.best)
  return History(
    configuration=configuration, best_us=tuple(best_us) or (default_us,)
  )


class _Search:
  """The search of one problem."""

  def __init__(
    self,
    searcher: searcher_lib.Searcher,
    state: searcher_lib.State,
    profile: searcher_lib.ProfileFn,
  ):
    self._searcher = searcher
    self._state = state
    self._profile = profile
    self._start_us = 0.0

  @property
  def is_done(self) -> bool:
    return self._searcher.done(self._state)

  @property
  def best(self) -> problem_lib.Configuration:
    return self._searcher.best(self._state)

  @property
  def gained_us(self) -> float:
    """Over the start, which is the first trial."""
    return self._start_us - self._state.best_us

  def make_trial(self) -> None:
    profile = self._profile(self._searcher.ask(self._state))
    if not self._state.num_trials:
      self._start_us = profile.total_us
    self._state = self._searcher.tell(self._state, profile)
