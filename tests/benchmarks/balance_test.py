# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Our search ends near the optimum of real overlaps."""

from __future__ import annotations

import itertools

import pytest

from benchmarks.searchers import searcher as searcher_lib
from benchmarks.searchers import space as space_lib
from benchmarks.searchers.balance import Balance
from lagom_xla import cluster as cluster_lib
from lagom_xla.costs import nccl
from lagom_xla.costs import step as step_lib
from lagom_xla.passes import hlo
from lagom_xla.search.nccl import problem as problem_lib
from searcher_trials import H100
from searcher_trials import gather
from searcher_trials import overlap_of
from searcher_trials import problem_of
from searcher_trials import trials_of

_MOST_TRIALS = 64


def _searched(
  step: step_lib.Step, problem: problem_lib.Problem
) -> searcher_lib.Search:
  profile = space_lib.Predictor(step, problem)
  return searcher_lib.run(
    Balance(), problem, step.cluster, start=step.default, profile=profile
  )


def _problems(step: step_lib.Step, num_keys: int) -> list[problem_lib.Problem]:
  """Problems with this many keys that a tuner can set."""
  found = [
    problem
    for problem in problem_lib.problems(step)
    if len(problem.keys) == num_keys
    and not any(key.kind in nccl.SEND_RECV for key in problem.keys)
  ]
  assert found
  return found


def _check_ends_near_the_optimum(step: step_lib.Step, num_keys: int) -> None:
  for problem in _problems(step, num_keys):
    found = _searched(step, problem)
    assert found.best_us <= 1.01 * _optimum_us(step, problem), problem.keys
    assert found.num_trials <= num_keys * _MOST_TRIALS


@pytest.mark.parametrize("cluster", ["1x8xh100", "1x8xa100_80", "1x8xb200"])
def test_search_over_one_key_ends_within_a_percent_of_the_optimum(
  train_step_module: hlo.Module, cluster: str
):
  step = step_lib.of_module(train_step_module, cluster_lib.parse(cluster))
  _check_ends_near_the_optimum(step, 1)


def test_search_over_two_concurrent_keys_ends_near_the_optimum(
  scheduled, fsdp_step
):
  module = scheduled(
    fsdp_step(), xla_gpu_experimental_parallel_collective_overlap_limit=2
  )
  _check_ends_near_the_optimum(step_lib.of_module(module, H100), 2)


def _optimum_us(step: step_lib.Step, problem: problem_lib.Problem) -> float:
  """The best of all combinations of Pareto-optimal settings."""
  profile = space_lib.Predictor(step, problem)
  settings = [_not_worse(step, key) for key in problem.keys]
  return min(
    profile(dict(zip(problem.keys, chosen, strict=True))).total_us
    for chosen in itertools.product(*settings)
  )


def _not_worse(step: step_lib.Step, key: space_lib.Key) -> list[nccl.Setting]:
  costs = {
    setting: step.predict(key, setting)
    for subspace in space_lib.subspaces(key, step.cluster)
    for setting in subspace.settings
  }
  kept: list[nccl.Setting] = []
  for setting, cost in sorted(
    costs.items(), key=lambda item: (item[1].num_channels, item[1].time_us)
  ):
    if not any(
      costs[other].time_us <= cost.time_us
      and costs[other].memory_gbps <= cost.memory_gbps
      for other in kept
    ):
      kept.append(setting)
  return kept


def test_search_tries_only_the_start_where_nothing_can_be_gained():
  problem = problem_of(gather(64))
  profile = overlap_of(
    problem, 100.0, time_us=lambda *_: 50.0, lost_us=lambda *_: 0.2
  )
  trials, _ = trials_of(Balance(), problem, profile)
  assert len(trials) == 1


def test_search_descends_to_the_bottom_of_a_valley():
  problem = problem_of(gather(64))
  (key,) = problem.keys
  subspace = space_lib.subspaces(key, H100)[-1]
  bottom = subspace.setting(9, 1)

  def lost_us(_: space_lib.Key, setting: nccl.Setting) -> float:
    if setting not in subspace.settings:
      return 1e3
    at, bottom_at = (
      subspace.chunk_bytes.index(s.chunk_bytes) for s in (setting, bottom)
    )
    return 10.0 * (
      abs(setting.num_channels - bottom.num_channels) + abs(at - bottom_at)
    )

  profile = overlap_of(problem, 100.0, time_us=lambda *_: 50.0, lost_us=lost_us)
  trials, best = trials_of(Balance(), problem, profile)
  assert best == {key: bottom}
  assert len(trials) <= _MOST_TRIALS
