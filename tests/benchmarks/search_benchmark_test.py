# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""The searchers of the race, and the tables of benchmarks.search."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from benchmarks.search import equal_budget
from benchmarks.search import growth
from benchmarks.searchers import autoccl
from benchmarks.searchers import lockstep
from benchmarks.searchers import searcher as searcher_lib
from benchmarks.searchers import space as space_lib
from benchmarks.searchers import tpe
from benchmarks.searchers.balance import Balance
from benchmarks.searchers.lagom import Lagom
from lagom_xla.costs import step as step_lib
from lagom_xla.passes import hlo
from lagom_xla.search.nccl import problem as problem_lib
from searcher_trials import H100
from searcher_trials import gather
from searcher_trials import problem_of
from searcher_trials import start_of
from searcher_trials import trials_of


@pytest.fixture
def step(train_step_module: hlo.Module) -> step_lib.Step:
  return step_lib.of_module(train_step_module, H100)


def _by_channels(
  problem: problem_lib.Problem, time_us: Callable[[int], float]
) -> searcher_lib.ProfileFn:
  """A time that depends only on channels, in an overlap that they slow."""

  def profile(configuration: space_lib.Configuration) -> space_lib.Profile:
    channels = {k: s.num_channels for k, s in configuration.items()}
    key_us = {key: time_us(count) for key, count in channels.items()}
    total_us = 1e3 * sum(channels.values())
    return space_lib.Profile(
      key_us=key_us,
      exposed_us=dict.fromkeys(problem.keys, 0.0),
      slowdown_us={key: 1e3 * count for key, count in channels.items()},
      overlap_us=(total_us,),
      communication_us=sum(key_us.values()),
      computation_us=total_us,
      total_us=total_us,
    )

  return profile


@pytest.mark.parametrize("valley", [1, 7])
def test_autoccl_descends_to_the_fastest_collectives_not_the_best_step(valley):
  problem = problem_of(gather(64), gather(32))
  profile = _by_channels(problem, lambda n: 100.0 + (n - valley) ** 2)
  trials, best = trials_of(autoccl.AutoCCL(), problem, profile)
  fastest = autoccl.Fastest(start_of(problem))
  for trial in trials:
    fastest.add(trial.asked, trial.profile)
  kept = fastest.configuration
  assert {s.num_channels for s in kept.values()} == {valley}
  assert sum(s.num_channels for s in best.values()) == min(
    sum(s.num_channels for s in trial.asked.values()) for trial in trials
  )


@pytest.mark.parametrize("searcher", [Balance(), Lagom(), tpe.TPE()])
def test_history_starts_at_the_default_step_time_and_never_rises(
  step, searcher
):
  history = lockstep.run_step(searcher, step, max_trials=20)
  default_us = step.timeline(step.default).step_time_us
  assert history.best_us[0] == pytest.approx(default_us)
  assert list(history.best_us) == sorted(history.best_us, reverse=True)
  found_us = step.timeline(history.configuration).step_time_us
  assert history.best_us[-1] == pytest.approx(found_us)
  assert 1 <= history.num_trials <= 20


def test_growth_table_has_one_key_for_each_collective(h100s):
  del h100s  # Only says whether there is anything to compile with.
  table = growth.table((1, 2, 4))
  for row in table.rows:
    assert row["collectives"] == row["keys"]
    # XLA makes the first one synchronous: only others are in flight beside it.
    assert row["largest"] == max(row["keys"] - 1, 1)
    assert row["evaluations"] >= row["keys"] > 0
    assert row["gain"] >= -1e-9
  assert [row["collectives"] for row in table.rows[:3]] == [1, 2, 4]


def test_a_larger_budget_is_never_worse(step):
  race = equal_budget.race(step, max_trials=9, num_seeds=2)
  rows = equal_budget.table([race], budgets=(2, 5, 9)).rows
  for name in {row["searcher"] for row in rows}:
    medians = [row["median"] for row in rows if row["searcher"] == name]
    assert medians == sorted(medians, reverse=True)
  # One module: each of ours is ahead, equal or behind in it.
  for row in rows:
    for ours in equal_budget.OURS:
      if ours != row["searcher"]:
        counts = [row[f"{ours} {how}"] for how in ("ahead", "equal", "behind")]
        assert sum(counts) == 1
