# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""The protocol of all searchers: ask for a trial, tell what it showed.

A searcher never runs anything. It asks for a configuration, somebody profiles
it (by prediction, or by a training step on a cluster), and tells the searcher:

    state = searcher.init(problem, cluster, start=default)
    while not searcher.done(state):
      configuration = searcher.ask(state)
      state = searcher.tell(state, profile(configuration))

State is a frozen record; the same problem and the same answers give the same
questions.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from lagom_xla import cluster as cluster_lib
from lagom_xla.search import problem as problem_lib


class Searcher(Protocol):
  """See the module's docstring. State belongs to the searcher."""

  def init(
    self,
    problem: problem_lib.Problem,
    cluster: cluster_lib.Cluster,
    *,
    start: problem_lib.Configuration,
  ) -> Any:
    """The state before any trial; `start` is what runs without tuning."""

  def ask(self, state: Any) -> problem_lib.Configuration:
    """The configuration to profile next."""

  def tell(self, state: Any, profile: problem_lib.Profile) -> Any:
    """The state after the trial that was asked for."""

  def done(self, state: Any) -> bool:
    """Whether there is nothing left to ask."""

  def best(self, state: Any) -> problem_lib.Configuration:
    """The configuration with the least total time among those profiled."""


def run(
  searcher: Searcher,
  problem: problem_lib.Problem,
  cluster: cluster_lib.Cluster,
  *,
  start: problem_lib.Configuration,
  profile: Callable[[problem_lib.Configuration], problem_lib.Profile],
) -> tuple[problem_lib.Configuration, int]:
  """Searches to the end.

  Returns:
    The best configuration, and the number of trials that it took.
  """
  state = searcher.init(problem, cluster, start=start)
  num_trials = 0
  while not searcher.done(state):
    state = searcher.tell(state, profile(searcher.ask(state)))
    num_trials += 1
  return searcher.best(state), num_trials
