# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""No search at all: what NCCL chooses by itself, profiled once.

It is the arm that every other searcher starts from, and has to beat.
"""

from __future__ import annotations

import dataclasses

from lagom_xla import cluster as cluster_lib
from lagom_xla.search.nccl import problem as problem_lib
from lagom_xla.search.nccl import searcher


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class State:
  """Before or after the one trial."""

  start: problem_lib.Configuration
  is_done: bool = False


def init(
  problem: problem_lib.Problem,
  cluster: cluster_lib.Cluster,
  *,
  start: problem_lib.Configuration,
  seed: int = 0,
) -> State:
  """See `searcher.Searcher`."""
  del cluster, seed
  return State(start=searcher.start_of(problem, start))


def ask(state: State) -> problem_lib.Configuration:
  """See `searcher.Searcher`."""
  if state.is_done:
    raise searcher.nothing_left()
  return state.start


def tell(state: State, profile: problem_lib.Profile) -> State:
  """See `searcher.Searcher`."""
  del profile
  return dataclasses.replace(state, is_done=True)


def done(state: State) -> bool:
  """See `searcher.Searcher`."""
  return state.is_done


def best(state: State) -> problem_lib.Configuration:
  """See `searcher.Searcher`."""
  return state.start
