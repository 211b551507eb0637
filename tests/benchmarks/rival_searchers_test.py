# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Searchers that are only raced: exhaustive search and AutoCCL's."""

from __future__ import annotations

from collections.abc import Callable
import dataclasses
import itertools
import math

import pytest

from benchmarks.searchers import autoccl
from benchmarks.searchers import exhaustive
from lagom_xla import cluster as cluster_lib
from lagom_xla.costs import collective as collective_lib
from lagom_xla.search.nccl import problem as problem_lib
from lagom_xla.search.nccl import searcher as searcher_lib
from searcher_trials import H100
from searcher_trials import MIB
from searcher_trials import gather
from searcher_trials import overlap_of
from searcher_trials import problem_of
from searcher_trials import start_of
from searcher_trials import trials_of


def test_exhaustive_search_finds_the_optimum():
  key = gather(256)
  problem = problem_of(key)
  profile = overlap_of(problem, 1500.0)
  trials, best = trials_of(exhaustive.Exhaustive(), problem, profile)
  optimum_us = math.inf
  num_settings = 0
  for subspace in problem_lib.subspaces(key, H100):
    for i in range(len(subspace.num_channels)):
      for j in range(len(subspace.chunk_bytes)):
        trial = profile({key: subspace.setting(i, j)})
        optimum_us = min(optimum_us, trial.total_us)
        num_settings += 1
  assert profile(best).total_us == optimum_us
  assert len(trials) == 1 + num_settings


def test_exhaustive_search_combines_the_settings_of_two_keys():
  # The space is small where there are few channels.
  a40s = cluster_lib.parse("1x4xa40")
  keys = [
    collective_lib.TuningKey("all-gather", 4, 1, mib * MIB) for mib in (32, 64)
  ]
  problem = problem_of(*keys)
  profile = overlap_of(problem, 300.0, a40s)
  trials, _ = trials_of(exhaustive.Exhaustive(), problem, profile, cluster=a40s)
  grids = [
    [
      s
      for subspace in problem_lib.subspaces(key, a40s)
      for s in subspace.settings
    ]
    for key in problem.keys
  ]
  assert {tuple(trial.asked.values()) for trial in trials[1:]} == set(
    itertools.product(*grids)
  )
  assert len(trials) == 1 + len(grids[0]) * len(grids[1])


def test_exhaustive_search_refuses_three_keys():
  problem = problem_of(gather(16), gather(32), gather(64))
  with pytest.raises(ValueError, match="of 3 tuning keys takes"):
    exhaustive.Exhaustive().init(problem, H100, start=start_of(problem))


def _by_channels(
  problem: problem_lib.Problem, time_us: Callable[[int], float]
) -> searcher_lib.ProfileFn:
  """A time that channels alone decide, in an overlap that they slow."""

  def profile(configuration: problem_lib.Configuration) -> problem_lib.Profile:
    channels = {k: s.num_channels for k, s in configuration.items()}
    key_us = {key: time_us(count) for key, count in channels.items()}
    total_us = 1e3 * sum(channels.values())
    return problem_lib.Profile(
      key_us=key_us,
      exposed_us=dict.fromkeys(problem.keys, 0.0),
      slowdown_us={key: 1e3 * count for key, count in channels.items()},
      overlap_us=(total_us,),
      communication_us=sum(key_us.values()),
      computation_us=total_us,
      total_us=total_us,
    )

  return profile


@pytest.mark.parametrize("valley", [1, 7, 15])
def test_autoccl_descends_to_the_fastest_and_not_to_the_best(valley):
  problem = problem_of(gather(64), gather(32))
  profile = _by_channels(problem, lambda n: 100.0 + (n - valley) ** 2)
  searcher = autoccl.AutoCCL()
  state = searcher.init(problem, H100, start=start_of(problem))
  least = 10**6
  while not searcher.done(state):
    asked = searcher.ask(state)
    least = min(least, sum(s.num_channels for s in asked.values()))
    state = searcher.tell(state, profile(asked))
  fastest = searcher.fastest(state)
  assert {s.num_channels for s in fastest.values()} == {valley}
  best = searcher.best(state)
  assert sum(s.num_channels for s in best.values()) == least


def test_autoccl_searches_every_subspace():
  key = gather(64)
  problem = problem_of(key)
  trials, _ = trials_of(autoccl.AutoCCL(), problem, overlap_of(problem, 300.0))
  searched = {
    (t.asked[key].algorithm, t.asked[key].protocol) for t in trials[1:]
  }
  assert searched == {
    (s.algorithm, s.protocol) for s in problem_lib.subspaces(key, H100)
  }


def test_autoccl_gives_up_subspaces_that_are_far_slower():
  key = gather(64)
  problem = problem_of(key)
  profile = overlap_of(problem, 0.0)
  times_us = {"ll": 300.0, "ll128": 100.0, "simple": 140.0}

  def by_protocol(
    configuration: problem_lib.Configuration,
  ) -> problem_lib.Profile:
    time_us = times_us[configuration[key].protocol]
    return dataclasses.replace(profile(configuration), key_us={key: time_us})

  trials, _ = trials_of(autoccl.AutoCCL(), problem, by_protocol)
  counts = dict.fromkeys(times_us, 0)
  for trial in trials[1:]:
    counts[trial.asked[key].protocol] += 1
  assert 0 < counts["ll"] < counts["ll128"] / 2


def test_all_keys_of_autoccl_move_in_the_same_trials():
  one = problem_of(gather(64))
  eight = problem_of(*(gather(16 * (i + 1)) for i in range(8)))
  alone, _ = trials_of(autoccl.AutoCCL(), one, overlap_of(one, 300.0))
  together, _ = trials_of(autoccl.AutoCCL(), eight, overlap_of(eight, 300.0))
  assert len(together) < 2 * len(alone)
