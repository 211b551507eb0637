# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""The interface of searchers: they ask for trials and are told the results.

A searcher never runs anything. It asks for a configuration. The caller profiles
it, by prediction or by a training step on a cluster, and tells the profile:

    search = Search(Balance(), problem, cluster, start=default)
    while search.asked is not None:
      search.tell(profile(search.asked))
    search.best

A searcher is a frozen dataclass whose fields are its hyperparameters. The same
problem, seed and profiles give the same configurations. The first configuration
is always the start itself, so the result is never worse than it. The best is
the configuration with the least total time.
"""

from __future__ import annotations

import abc
from collections.abc import Callable, Generator
import dataclasses
import math

from benchmarks.searchers import space as space_lib
from lagom_xla import cluster as cluster_lib
from lagom_xla.search.nccl import problem as problem_lib

ProfileFn = Callable[[space_lib.Configuration], space_lib.Profile]
Trials = Generator[space_lib.Configuration, space_lib.Profile, None]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Searcher(abc.ABC):
  """A way to search a problem; see the module's docstring."""

  @abc.abstractmethod
  def trials(
    self,
    problem: problem_lib.Problem,
    cluster: cluster_lib.Cluster,
    start: space_lib.Configuration,
    first: space_lib.Profile,
    seed: int,
  ) -> Trials:
    """Yields configurations to try after the start, and receives profiles.

    Args:
      problem: the problem to search.
      cluster: the cluster on which it runs.
      start: the configuration without tuning, for the keys of the problem.
      first: the profile of the start.
      seed: seed of random searchers.
    """


class Search:
  """A search of a problem, trial by trial.

  Attributes:
    asked: the configuration to try next; None when the search is done.
    best: the best configuration among those tried; the start before that.
    best_us: its total time; infinite before the first trial.
    num_trials: the number of told profiles.
  """

  def __init__(
    self,
    searcher: Searcher,
    problem: problem_lib.Problem,
    cluster: cluster_lib.Cluster,
    *,
    start: space_lib.Configuration,
    seed: int = 0,
  ):
    """Begins before any trial.

    Args:
      searcher: the searcher.
      problem: the problem to search.
      cluster: the cluster on which it runs.
      start: the configuration without tuning; may have keys of other problems.
      seed: seed of random searchers.
    """
    self.best = {key: start[key] for key in problem.keys}
    self.asked: space_lib.Configuration | None = self.best
    self.best_us = math.inf
    self.num_trials = 0
    self._trials = self._of(searcher, problem, cluster, seed)
    next(self._trials)

  def _of(
    self,
    searcher: Searcher,
    problem: problem_lib.Problem,
    cluster: cluster_lib.Cluster,
    seed: int,
  ) -> Trials:
    first = yield (start := self.best)
    yield from searcher.trials(problem, cluster, start, first, seed)

  def tell(self, profile: space_lib.Profile) -> None:
    """Continues the search with the profile of `asked`.

    Raises:
      ValueError: the search is done.
    """
    if self.asked is None:
      raise ValueError("The search is done; there is nothing left to ask.")
    self.num_trials += 1
    if profile.total_us < self.best_us:
      self.best, self.best_us = dict(self.asked), profile.total_us
    try:
      self.asked = self._trials.send(profile)
    except StopIteration:
      self.asked = None


def run(
  searcher: Searcher,
  problem: problem_lib.Problem,
  cluster: cluster_lib.Cluster,
  *,
  start: space_lib.Configuration,
  profile: ProfileFn,
  seed: int = 0,
  max_trials: int | None = None,
) -> Search:
  """Searches to the end, or until `max_trials` trials were made."""
  search = Search(searcher, problem, cluster, start=start, seed=seed)
  while search.asked is not None and search.num_trials != max_trials:
    search.tell(profile(search.asked))
  return search
