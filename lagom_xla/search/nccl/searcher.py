# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""The searcher: it asks for trials, and is told what they showed.

A searcher never runs anything. It asks for a configuration; the caller profiles
it, by prediction or by a training step on a cluster, and tells the searcher:

    searcher = Balance()
    state = searcher.init(problem, cluster, start=default)
    while not searcher.done(state):
      configuration = searcher.ask(state)
      state = searcher.tell(state, profile(configuration))
    searcher.best(state)

A searcher is a frozen dataclass whose fields are its hyper-parameters, and its
state is a frozen record: the same problem, the same seed and the same answers
give the same questions. What all searchers share is in the base class: the
first question is always the start itself, so the result is never worse than
what ran before; and the best is the configuration with the least total time. A
subclass says how it begins (`_begin`) and what it asks next (`_next`).
"""

from __future__ import annotations

import abc
from collections.abc import Callable
import dataclasses
import math
from typing import Generic, TypeVar

from lagom_xla import cluster as cluster_lib
from lagom_xla.search.nccl import problem as problem_lib

ProfileFn = Callable[[problem_lib.Configuration], problem_lib.Profile]
ProgressT = TypeVar("ProgressT")


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class State(Generic[ProgressT]):
  """A search between two trials.

  Attributes:
    start: what runs without tuning, for the keys of the problem.
    asked: the configuration of the pending trial; None when the search is done.
    best: the best configuration among those profiled; the start before the
      first profile.
    best_profile: what that one showed; None before the first profile.
    num_trials: trials that were profiled.
    progress: what the searcher itself keeps between trials.
  """

  start: problem_lib.Configuration
  asked: problem_lib.Configuration | None
  best: problem_lib.Configuration
  best_profile: problem_lib.Profile | None = None
  num_trials: int = 0
  progress: ProgressT

  @property
  def best_us(self) -> float:
    """The total time of the best; infinite before the first profile."""
    return self.best_profile.total_us if self.best_profile else math.inf


@dataclasses.dataclass(frozen=True, kw_only=True)
class Searcher(abc.ABC, Generic[ProgressT]):
  """A way to search a problem; see the module's docstring."""

  def init(
    self,
    problem: problem_lib.Problem,
    cluster: cluster_lib.Cluster,
    *,
    start: problem_lib.Configuration,
    seed: int = 0,
  ) -> State[ProgressT]:
    """The state before any trial.

    Args:
      problem: what is searched.
      cluster: where it runs.
      start: what runs without tuning; may have more keys than the problem.
      seed: of what is drawn at random, if anything is.
    """
    start = {key: start[key] for key in problem.keys}
    return State(
      start=start,
      asked=start,
      best=start,
      progress=self._begin(problem, cluster, start, seed),
    )

  def ask(self, state: State[ProgressT]) -> problem_lib.Configuration:
    """The configuration to profile next: a setting for each of the keys.

    Raises:
      ValueError: the search is done.
    """
    if state.asked is None:
      raise ValueError("The search is done; there is nothing left to ask.")
    return state.asked

  def tell(
    self, state: State[ProgressT], profile: problem_lib.Profile
  ) -> State[ProgressT]:
    """The state after the trial that was asked for.

    Args:
      state: before it.
      profile: what it showed.

    Raises:
      ValueError: the search is done.
    """
    asked = self.ask(state)
    state = dataclasses.replace(state, num_trials=state.num_trials + 1)
    if profile.total_us < state.best_us:
      state = dataclasses.replace(state, best=asked, best_profile=profile)
    progress, asked = self._next(state, profile)
    return dataclasses.replace(state, progress=progress, asked=asked)

  def done(self, state: State[ProgressT]) -> bool:
    """Whether there is nothing left to ask."""
    return state.asked is None

  def best(self, state: State[ProgressT]) -> problem_lib.Configuration:
    """The configuration with the least total time among those profiled."""
    return state.best

  @abc.abstractmethod
  def _begin(
    self,
    problem: problem_lib.Problem,
    cluster: cluster_lib.Cluster,
    start: problem_lib.Configuration,
    seed: int,
  ) -> ProgressT:
    """What the searcher keeps before any trial; its first is the start."""

  @abc.abstractmethod
  def _next(
    self, state: State[ProgressT], profile: problem_lib.Profile
  ) -> tuple[ProgressT, problem_lib.Configuration | None]:
    """What the searcher keeps after a trial, and what it asks next.

    Args:
      state: `asked` is the configuration of this trial, which `best` and
        `num_trials` count already.
      profile: what the trial showed.

    Returns:
      None in place of a configuration when the search is done.
    """


def run(
  searcher: Searcher[ProgressT],
  problem: problem_lib.Problem,
  cluster: cluster_lib.Cluster,
  *,
  start: problem_lib.Configuration,
  profile: ProfileFn,
  seed: int = 0,
  max_trials: int | None = None,
) -> State[ProgressT]:
  """Searches to the end, or until `max_trials` trials were made.

  Returns:
    The state after the last trial.
  """
  state = searcher.init(problem, cluster, start=start, seed=seed)
  while not searcher.done(state) and state.num_trials != max_trials:
    state = searcher.tell(state, profile(searcher.ask(state)))
  return state
