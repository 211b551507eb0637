# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Exhaustive search: the optimum, for problems of one or two keys.

The grid is all subspaces with all their channels and chunk sizes, for each key
a few hundred settings, and every combination of the keys' settings. It says
before the first trial how many that are, and refuses what would not end.
"""

from __future__ import annotations

from collections.abc import Mapping
import dataclasses
import math

from lagom_xla import cluster as cluster_lib
from lagom_xla.costs import nccl
from lagom_xla.search.nccl import problem as problem_lib
from lagom_xla.search.nccl import searcher

# The settings of each key.
_Grid = Mapping[problem_lib.Key, tuple[nccl.Setting, ...]]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Exhaustive(searcher.Searcher[_Grid]):
  """Exhaustive search.

  Attributes:
    max_trials: the largest grid that is searched; the default is two keys of a
      thousand settings each.
  """

  max_trials: int = 1_000_000

  def _begin(
    self,
    problem: problem_lib.Problem,
    cluster: cluster_lib.Cluster,
    start: problem_lib.Configuration,
    seed: int,
  ) -> _Grid:
    """See `searcher.Searcher`.

    Raises:
      ValueError: the grid is larger than `max_trials`.
    """
    del start, seed
    grid = _grid(problem, cluster)
    needed = _num_trials(grid)
    if needed > self.max_trials:
      raise ValueError(
        f"An exhaustive search of {len(problem.keys)} tuning keys takes"
        f" {needed:.3g} trials, and at most {self.max_trials:,} are made:"
        " search problems of one or two keys, or take another searcher."
      )
    return grid

  def _next(
    self, state: searcher.State[_Grid], profile: problem_lib.Profile
  ) -> tuple[_Grid, problem_lib.Configuration | None]:
    del profile
    grid = state.progress
    if state.num_trials == _num_trials(grid):
      return grid, None
    asked = {}
    rest = state.num_trials - 1
    for key, settings in grid.items():
      rest, position = divmod(rest, len(settings))
      asked[key] = settings[position]
    return grid, asked


def _num_trials(grid: _Grid) -> int:
  """How many trials the search of a grid takes, the start's included."""
  return 1 + math.prod(map(len, grid.values()))


def _grid(problem: problem_lib.Problem, cluster: cluster_lib.Cluster) -> _Grid:
  return {
    key: tuple(
      setting
      for subspace in problem_lib.subspaces(key, cluster)
      for setting in subspace.settings
    )
    for key in problem.keys
  }
