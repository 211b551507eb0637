# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Every configuration there is: the optimum, for problems of one or two keys.

The grid is all subspaces with all their channels and chunk sizes, for each key
a few hundred settings, and every combination of the keys' settings. It says
before the first trial how many that are, and refuses what would not end.
"""

from __future__ import annotations

import dataclasses
import math

from lagom_xla import cluster as cluster_lib
from lagom_xla.costs import nccl
from lagom_xla.search.nccl import problem as problem_lib
from lagom_xla.search.nccl import searcher
from lagom_xla.search.nccl import space

# The largest grid that is searched: two keys of a thousand settings each.
MAX_TRIALS = 1_000_000


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class State:
  """Between two trials.

  Attributes:
    keys: the problem's.
    grid: the settings of each key.
    start: what runs without tuning.
    num_trials: trials made; the first is the start.
    best: the best so far.
  """

  keys: tuple[problem_lib.Key, ...]
  grid: tuple[tuple[nccl.Setting, ...], ...]
  start: problem_lib.Configuration
  num_trials: int
  best: searcher.Best


def num_trials(
  problem: problem_lib.Problem, cluster: cluster_lib.Cluster
) -> int:
  """How many trials the search of a problem takes, the start's included."""
  return 1 + math.prod(len(_settings(key, cluster)) for key in problem.keys)


def init(
  problem: problem_lib.Problem,
  cluster: cluster_lib.Cluster,
  *,
  start: problem_lib.Configuration,
  seed: int = 0,
) -> State:
  """See `searcher.Searcher`.

  Raises:
    ValueError: the grid is larger than MAX_TRIALS.
  """
  del seed
  needed = num_trials(problem, cluster)
  if needed > MAX_TRIALS:
    raise ValueError(
      f"An exhaustive search of {len(problem.keys)} tuning keys takes"
      f" {needed:.3g} trials, and at most {MAX_TRIALS:,} are made: search"
      " problems of one or two keys, or take another searcher."
    )
  start = searcher.start_of(problem, start)
  return State(
    keys=problem.keys,
    grid=tuple(_settings(key, cluster) for key in problem.keys),
    start=start,
    num_trials=0,
    best=searcher.Best(configuration=start),
  )


def ask(state: State) -> problem_lib.Configuration:
  """See `searcher.Searcher`."""
  if done(state):
    raise searcher.nothing_left()
  if not state.num_trials:
    return state.start
  asked = {}
  rest = state.num_trials - 1
  for key, settings in zip(state.keys, state.grid, strict=True):
    rest, position = divmod(rest, len(settings))
    asked[key] = settings[position]
  return asked


def tell(state: State, profile: problem_lib.Profile) -> State:
  """See `searcher.Searcher`."""
  return dataclasses.replace(
    state,
    num_trials=state.num_trials + 1,
    best=state.best.after(ask(state), profile),
  )


def done(state: State) -> bool:
  """See `searcher.Searcher`."""
  return state.num_trials > math.prod(map(len, state.grid))


def best(state: State) -> problem_lib.Configuration:
  """See `searcher.Searcher`."""
  return state.best.configuration


def _settings(
  key: problem_lib.Key, cluster: cluster_lib.Cluster
) -> tuple[nccl.Setting, ...]:
  return tuple(
    setting
    for subspace in space.subspaces(key, cluster)
    for setting in subspace.settings
  )
