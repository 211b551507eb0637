# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Where Lagom's search ends; searchers_test.py has the protocol."""

from __future__ import annotations

import functools

import pytest

from lagom_trials import LAGOM
from lagom_trials import loss_by_channels
from lagom_trials import overlap_of
from lagom_trials import raises_of
from lagom_trials import time_by_channels
from lagom_xla.costs import collective as collective_lib
from lagom_xla.costs import nccl
from lagom_xla.search.nccl import problem as problem_lib
from searcher_trials import H100
from searcher_trials import gather
from searcher_trials import problem_of
from searcher_trials import start_of
from searcher_trials import trials_of


def test_hidden_communication_ends_with_the_fewest_resources():
  problem = problem_of(gather(64), gather(32))
  profile = overlap_of(problem, 1e6, lost_us=loss_by_channels(1000.0))
  trials, best = trials_of(LAGOM, problem, profile)
  assert [setting.num_channels for setting in best.values()] == [1, 1]
  # X < Y with all at their minimum: there is nothing to raise.
  assert len(raises_of(trials)) == 1


def test_communication_alone_ends_as_fast_as_it_gets():
  key = gather(256)
  problem = problem_of(key)
  _, best = trials_of(LAGOM, problem, overlap_of(problem, 0.0))
  fastest_us = min(
    collective_lib.predict(key, subspace.setting(i, j), H100).time_us
    for subspace in problem_lib.subspaces(key, H100)
    for i in range(len(subspace.num_channels))
    for j in range(len(subspace.chunk_bytes))
  )
  found_us = collective_lib.predict(key, best[key], H100).time_us
  assert found_us <= 1.02 * fastest_us


def test_the_fastest_subspace_is_chosen_with_all_resources():
  key = gather(64)
  problem = problem_of(key)
  times_us = {"ll": 50.0, "ll128": 20.0, "simple": 70.0}
  profile = overlap_of(
    problem, 0.0, time_us=lambda key, setting: times_us[setting.protocol]
  )
  trials, _ = trials_of(LAGOM, problem, profile)
  subspaces = problem_lib.subspaces(key, H100)
  compared = trials[1 : 1 + len(subspaces)]
  assert [trial.asked[key] for trial in compared] == [
    subspace.most for subspace in subspaces
  ]
  minimum = trials[1 + len(subspaces)].asked[key]
  assert (minimum.protocol, minimum.num_channels) == ("ll128", 1)
  assert minimum.chunk_bytes == min(
    subspace.chunk_bytes[0]
    for subspace in subspaces
    if subspace.protocol == "ll128"
  )


def test_subspaces_of_a_key_are_compared_with_the_others_as_they_were():
  problem = problem_of(gather(64), gather(32))
  trials, _ = trials_of(LAGOM, problem, overlap_of(problem, 300.0))
  start = trials[0].asked
  num_compared = sum(len(problem_lib.subspaces(k, H100)) for k in problem.keys)
  for trial in trials[1 : 1 + num_compared]:
    changed = [k for k in problem.keys if trial.asked[k] != start[k]]
    assert len(changed) <= 1


def test_a_collective_that_gains_nothing_keeps_its_previous_setting():
  key = gather(64)
  problem = problem_of(key)
  time_us = time_by_channels({1: 100.0, 2: 60.0, 3: 60.0, 4: 70.0})
  profile = overlap_of(
    problem, 10.0, time_us=time_us, lost_us=loss_by_channels(1.0)
  )
  trials, best = trials_of(LAGOM, problem, profile)
  raises = [t.asked[key].num_channels for t in raises_of(trials)]
  assert raises == [1, 2, 3]
  assert best[key].num_channels == 2


def test_the_start_is_kept_when_nothing_is_better():
  problem = problem_of(gather(64))
  start = start_of(problem)
  profile = overlap_of(
    problem,
    0.0,
    time_us=lambda key, setting: 10.0 if setting == start[key] else 20.0,
  )
  _, best = trials_of(LAGOM, problem, profile)
  assert best == start


@functools.cache
def _grid(key: collective_lib.TuningKey) -> tuple[nccl.Setting, ...]:
  return tuple(
    subspace.setting(i, j)
    for subspace in problem_lib.subspaces(key, H100)
    for i in range(len(subspace.num_channels))
    for j in range(len(subspace.chunk_bytes))
  )


@pytest.mark.parametrize("kernels_us", [100.0, 300.0, 700.0, 1500.0, 5000.0])
@pytest.mark.parametrize("lost_us", [0.5, 3.0, 20.0])
def test_one_key_ends_near_the_best_of_its_whole_space(kernels_us, lost_us):
  key = gather(256)
  problem = problem_of(key)
  profile = overlap_of(problem, kernels_us, lost_us=loss_by_channels(lost_us))
  _, best = trials_of(LAGOM, problem, profile)
  optimum_us = min(profile({key: s}).total_us for s in _grid(key))
  assert profile(best).total_us <= 1.1 * optimum_us
