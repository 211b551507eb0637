# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""A step's problems are searched at once, within a budget of whole steps."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from benchmarks.searchers import lockstep
from benchmarks.searchers.random_search import RandomSearch
import hlo_text
from lagom_xla import cluster as cluster_lib
from lagom_xla.costs import step as step_lib
from lagom_xla.passes import hlo
from lagom_xla.search.nccl import problem as problem_lib
from lagom_xla.search.nccl import searcher as searcher_lib
from lagom_xla.search.nccl.balance import Balance
from lagom_xla.search.nccl.lagom import Lagom

H100 = cluster_lib.parse("1x8xh100")
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
