# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Searchers that are only raced, and the budget of whole steps they race in."""

from __future__ import annotations

from collections.abc import Callable
import dataclasses
import itertools
import math
from typing import Any

import pytest

from benchmarks.searchers import autoccl
from benchmarks.searchers import exhaustive
from benchmarks.searchers import lockstep
from benchmarks.searchers.random_search import RandomSearch
import hlo_text
from lagom_xla import cluster as cluster_lib
from lagom_xla.costs import collective as collective_lib
from lagom_xla.costs import step as step_lib
from lagom_xla.passes import hlo
from lagom_xla.search.nccl import problem as problem_lib
from lagom_xla.search.nccl import searcher as searcher_lib
from lagom_xla.search.nccl.balance import Balance
from lagom_xla.search.nccl.lagom import Lagom
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


_SEARCHERS = [Balance(), Lagom(), RandomSearch()]


@pytest.fixture
def step(train_step_module: hlo.Module) -> step_lib.Step:
  return step_lib.of_module(train_step_module, H100)


@pytest.mark.parametrize("searcher", _SEARCHERS)
def test_the_history_is_of_whole_steps_from_the_default_down(step, searcher):
  history = lockstep.run_step(searcher, step, max_trials=20)
  default_us = step.timeline(step.default).step_time_us
  assert history.best_us[0] == pytest.approx(default_us)
  assert list(history.best_us) == sorted(history.best_us, reverse=True)
  found_us = step.timeline(history.configuration).step_time_us
  assert history.best_us[-1] == pytest.approx(found_us)
  assert 1 <= history.num_trials <= 20


def test_a_step_takes_as_many_trials_as_its_longest_search(step):
  counts = [
    searcher_lib.run(
      Balance(),
      problem,
      H100,
      start=step.default,
      profile=problem_lib.Predictor(step, problem),
    ).num_trials
    for problem in problem_lib.problems(step)
  ]
  history = lockstep.run_step(Balance(), step)
  assert history.num_trials == max(counts)


def test_the_same_seed_finds_the_same(step):
  histories = [
    lockstep.run_step(RandomSearch(), step, max_trials=30, seed=seed)
    for seed in (0, 0, 1)
  ]
  assert histories[0] == histories[1]
  assert histories[0] != histories[2]


def test_it_starts_from_what_runs(step):
  fewest = {
    key: dataclasses.replace(setting, num_channels=1)
    for key, setting in step.default.items()
  }
  history = lockstep.run_step(Balance(), step, start=fewest, max_trials=1)
  assert history.configuration == fewest
  assert history.best_us == (pytest.approx(step.timeline(fewest).step_time_us),)


def test_a_trial_asks_each_unfinished_problem_once(step):
  asked: list[int] = []

  def predictor(step: step_lib.Step, problem: problem_lib.Problem) -> Any:
    profile = problem_lib.Predictor(step, problem)
    position = len(asked)
    asked.append(0)

    def count(configuration: problem_lib.Configuration) -> Any:
      asked[position] += 1
      return profile(configuration)

    return count

  history = lockstep.run_step(
    RandomSearch(), step, max_trials=7, predictor=predictor
  )
  assert history.num_trials == 7
  assert asked == [7] * len(problem_lib.problems(step))


def test_what_a_budget_had_found_can_be_asked():
  history = lockstep.History(configuration={}, best_us=(9.0, 7.0, 5.0))
  assert [history.best_us_after(n) for n in (1, 2, 3, 300)] == [9, 7, 5, 5]


def test_a_budget_of_nothing_is_refused(step):
  with pytest.raises(ValueError, match="max_trials is 0"):
    lockstep.run_step(Balance(), step, max_trials=0)


def test_a_step_without_collectives_needs_no_trial():
  module = hlo_text.load("ROOT p = f32[256,256] parameter(0)")
  step = step_lib.of_module(module, H100)
  history = lockstep.run_step(Balance(), step)
  assert history.configuration == {}
  assert history.best_us == (0.0,)
