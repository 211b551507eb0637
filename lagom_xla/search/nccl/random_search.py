# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Settings drawn at random: what any searcher has to be better than.

Each trial draws, for every key, a subspace, then channels and a chunk size in
it, all with equal chances.
"""

from __future__ import annotations

import dataclasses
import random

from lagom_xla import cluster as cluster_lib
from lagom_xla.costs import nccl
from lagom_xla.search.nccl import problem as problem_lib
from lagom_xla.search.nccl import searcher
from lagom_xla.search.nccl import space

# Trials until it is done, where nobody ends it before.
NUM_TRIALS = 1000


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class State:
  """Between two trials.

  Attributes:
    keys: the problem's.
    subspaces: of each key.
    seed: of this search.
    num_trials: trials made.
    asked: the configuration of the pending trial.
    best: the best so far.
  """

  keys: tuple[problem_lib.Key, ...]
  subspaces: tuple[tuple[space.Subspace, ...], ...]
  seed: int
  num_trials: int
  asked: problem_lib.Configuration
  best: searcher.Best


def init(
  problem: problem_lib.Problem,
  cluster: cluster_lib.Cluster,
  *,
  start: problem_lib.Configuration,
  seed: int = 0,
) -> State:
  """See `searcher.Searcher`."""
  start = searcher.start_of(problem, start)
  return State(
    keys=problem.keys,
    subspaces=tuple(space.subspaces(key, cluster) for key in problem.keys),
    seed=seed,
    num_trials=0,
    asked=start,
    best=searcher.Best(configuration=start),
  )


def ask(state: State) -> problem_lib.Configuration:
  """See `searcher.Searcher`."""
  if done(state):
    raise searcher.nothing_left()
  return state.asked


def tell(state: State, profile: problem_lib.Profile) -> State:
  """See `searcher.Searcher`."""
  num_trials = state.num_trials + 1
  # A generator per trial keeps the state a record.
  rng = random.Random(f"{state.seed} {num_trials}")
  return dataclasses.replace(
    state,
    num_trials=num_trials,
    asked={
      key: drawn(subspaces, rng)
      for key, subspaces in zip(state.keys, state.subspaces, strict=True)
    },
    best=state.best.after(ask(state), profile),
  )


def done(state: State) -> bool:
  """See `searcher.Searcher`."""
  return state.num_trials == NUM_TRIALS


def best(state: State) -> problem_lib.Configuration:
  """See `searcher.Searcher`."""
  return state.best.configuration


def drawn(
  subspaces: tuple[space.Subspace, ...], rng: random.Random
) -> nccl.Setting:
  """A setting at random."""
  subspace = rng.choice(subspaces)
  return subspace.setting(
    rng.randrange(len(subspace.num_channels)),
    rng.randrange(len(subspace.chunk_bytes)),
  )
