# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Random search: what any searcher has to be better than.

Each trial draws, for every key, a subspace, then channels and a chunk size in
it, all with equal chances.
"""

from __future__ import annotations

from collections.abc import Mapping
import dataclasses
import random

from lagom_xla import cluster as cluster_lib
from lagom_xla.costs import nccl
from lagom_xla.search.nccl import problem as problem_lib
from lagom_xla.search.nccl import searcher


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Progress:
  """What stays the same in all trials.

  Attributes:
    subspaces: of each key.
    seed: of this search.
  """

  subspaces: Mapping[problem_lib.Key, tuple[problem_lib.Subspace, ...]]
  seed: int


@dataclasses.dataclass(frozen=True, kw_only=True)
class RandomSearch(searcher.Searcher[Progress]):
  """Random search.

  Attributes:
    max_trials: trials after which it is done, unless it is ended before.
  """

  max_trials: int = 1000

  def _begin(
    self,
    problem: problem_lib.Problem,
    cluster: cluster_lib.Cluster,
    start: problem_lib.Configuration,
    seed: int,
  ) -> Progress:
    del start
    return Progress(
      subspaces={
        key: problem_lib.subspaces(key, cluster) for key in problem.keys
      },
      seed=seed,
    )

  def _next(
    self, state: searcher.State[Progress], profile: problem_lib.Profile
  ) -> tuple[Progress, problem_lib.Configuration | None]:
    del profile
    progress = state.progress
    if state.num_trials >= self.max_trials:
      return progress, None
    # A generator per trial keeps the state a record.
    rng = random.Random(f"{progress.seed} {state.num_trials}")
    return progress, {
      key: _drawn(subspaces, rng)
      for key, subspaces in progress.subspaces.items()
    }


def _drawn(
  subspaces: tuple[problem_lib.Subspace, ...], rng: random.Random
) -> nccl.Setting:
  """A setting at random."""
  subspace = rng.choice(subspaces)
  return subspace.setting(
    rng.randrange(len(subspace.num_channels)),
    rng.randrange(len(subspace.chunk_bytes)),
  )
