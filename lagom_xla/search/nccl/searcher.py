# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""The protocol of all searchers: ask for a trial, tell what it showed.

A searcher never runs anything. It asks for a configuration, somebody profiles
it (by prediction, or by a training step on a cluster), and tells the searcher:

    state = searcher.init(problem, cluster, start=default)
    while not searcher.done(state):
      configuration = searcher.ask(state)
      state = searcher.tell(state, profile(configuration))

The first question is always the start itself, so the result is never worse than
what ran before. State is a frozen record; the same problem, the same seed and
the same answers give the same questions. A searcher is a module with these
functions, or an object with these methods: a sampler of another library becomes
one by wrapping it.

`side_by_side.py` searches all problems of a step at once.
"""

from __future__ import annotations

from collections.abc import Callable
import dataclasses
import math
from typing import Any, Protocol

from lagom_xla import cluster as cluster_lib
from lagom_xla.search.nccl import problem as problem_lib

Profile = Callable[[problem_lib.Configuration], problem_lib.Profile]


class Searcher(Protocol):
  """See the module's docstring. State belongs to the searcher."""

  def init(
    self,
    problem: problem_lib.Problem,
    cluster: cluster_lib.Cluster,
    *,
    start: problem_lib.Configuration,
    seed: int = 0,
  ) -> Any:
    """The state before any trial.

    Args:
      problem: what is searched.
      cluster: where it runs.
      start: what runs without tuning; may have more keys than the problem.
      seed: of what is drawn at random, if anything is.
    """

  def ask(self, state: Any) -> problem_lib.Configuration:
    """The configuration to profile next: a setting for each of the keys.

    Raises:
      ValueError: the search is done.
    """

  def tell(self, state: Any, profile: problem_lib.Profile) -> Any:
    """The state after the trial that was asked for."""

  def done(self, state: Any) -> bool:
    """Whether there is nothing left to ask."""

  def best(self, state: Any) -> problem_lib.Configuration:
    """The configuration with the least total time among those profiled."""


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Best:
  """The best configuration among those profiled so far.

  Attributes:
    configuration: which.
    total_us: its Z; infinite before the first profile.
  """

  configuration: problem_lib.Configuration
  total_us: float = math.inf

  def after(
    self,
    configuration: problem_lib.Configuration,
    profile: problem_lib.Profile,
  ) -> Best:
    """The best once this one was profiled, too."""
    if profile.total_us >= self.total_us:
      return self
    return Best(configuration=configuration, total_us=profile.total_us)


def start_of(
  problem: problem_lib.Problem, start: problem_lib.Configuration
) -> problem_lib.Configuration:
  """The part of `start` that is about the problem, in the order of its keys."""
  return {key: start[key] for key in problem.keys}


def nothing_left() -> ValueError:
  """What `ask` raises when the search is done."""
  return ValueError("The search is done; there is nothing left to ask.")


def run(
  searcher: Searcher,
  problem: problem_lib.Problem,
  cluster: cluster_lib.Cluster,
  *,
  start: problem_lib.Configuration,
  profile: Profile,
  seed: int = 0,
  max_trials: int | None = None,
) -> tuple[problem_lib.Configuration, int]:
  """Searches to the end, or until `max_trials` trials were made.

  Returns:
    The best configuration, and the number of trials that it took.
  """
  state = searcher.init(problem, cluster, start=start, seed=seed)
  num_trials = 0
  while not searcher.done(state) and num_trials != max_trials:
    state = searcher.tell(state, profile(searcher.ask(state)))
    num_trials += 1
  return searcher.best(state), num_trials
