# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""The raises of Lagom's search: how far a setting moves, and whose is next."""

from __future__ import annotations

import itertools
from typing import Any

from lagom_trials import LAGOM
from lagom_trials import loss_by_channels
from lagom_trials import overlap_of
from lagom_trials import raises_of
from lagom_trials import time_by_channels
from lagom_xla.costs import nccl
from lagom_xla.search.nccl import problem as problem_lib
from lagom_xla.search.nccl.lagom import Lagom
from searcher_trials import H100
from searcher_trials import Trial
from searcher_trials import gather
from searcher_trials import problem_of
from searcher_trials import trials_of


def test_raising_stops_where_communication_becomes_shorter():
  problem = problem_of(gather(256))
  profile = overlap_of(problem, 1500.0, lost_us=loss_by_channels(1.0))
  trials, best = trials_of(LAGOM, problem, profile)
  *before, last = raises_of(trials)
  for trial in before:
    assert trial.profile.communication_us >= trial.profile.computation_us
  assert last.profile.communication_us < last.profile.computation_us
  # What made X' < Y' is kept.
  assert best == last.asked


def test_others_are_raised_beside_the_setting_that_was_kept():
  stuck, growing = gather(32), gather(64)
  problem = problem_of(stuck, growing)

  def time_us(key: Any, setting: nccl.Setting) -> float:
    return 100.0 if key == stuck else 1e3 / setting.num_channels

  trials, _ = trials_of(
    LAGOM, problem, overlap_of(problem, 0.0, time_us=time_us)
  )
  first, second, *others = raises_of(trials)
  assert first.asked[stuck].num_channels == 1
  assert second.asked[stuck].num_channels == 2
  assert others
  assert {trial.asked[stuck] for trial in others} == {first.asked[stuck]}


def test_all_knobs_grow_by_the_last_relative_gain():
  key = gather(64)
  problem = problem_of(key)
  # From 1 to 2 channels the time falls by half; 2 (1 + 1/2) = 3. Then it falls
  # by a fifth; 3 (1 + 1/5) is below 4, the next value.
  time_us = time_by_channels({1: 100.0, 2: 50.0, 3: 40.0, 4: 40.0})
  profile = overlap_of(problem, 0.0, time_us=time_us)
  trials, _ = trials_of(LAGOM, problem, profile)
  raised = [t.asked[key] for t in raises_of(trials)]
  assert [s.num_channels for s in raised] == [1, 2, 3, 4]
  chunks = [s.chunk_bytes for s in raised]
  assert chunks == sorted(set(chunks))


def test_the_first_raise_goes_by_the_first_lr():
  key = gather(64)
  problem = problem_of(key)
  profile = overlap_of(
    problem, 0.0, time_us=lambda key, setting: 1e3 / setting.num_channels
  )
  trials, _ = trials_of(Lagom(first_lr=5.0), problem, profile)
  first, second, *_ = raises_of(trials)
  assert first.asked[key].num_channels == 1
  assert second.asked[key].num_channels == 6


def test_a_large_gain_takes_a_large_step():
  key = gather(64)
  problem = problem_of(key)

  def time_us(key: Any, setting: nccl.Setting) -> float:
    return 100.0 / setting.num_channels**3

  trials, _ = trials_of(
    LAGOM, problem, overlap_of(problem, 0.0, time_us=time_us)
  )
  channels = [t.asked[key].num_channels for t in raises_of(trials)]
  # Gains of 7/8, 19/27 and so on.
  assert channels[:5] == [1, 2, 4, 8, 15]


def test_a_collective_at_its_limit_is_finished():
  key = gather(64)
  problem = problem_of(key)
  profile = overlap_of(
    problem, 0.0, time_us=lambda key, setting: 1e3 / setting.num_channels
  )
  trials, best = trials_of(LAGOM, problem, profile)
  most = max(s.num_channels[-1] for s in problem_lib.subspaces(key, H100))
  assert trials[-1].asked[key].num_channels == most
  assert best[key].num_channels == most


def _order_of_raises(
  trials: list[Trial], problem: problem_lib.Problem
) -> list[int]:
  """Which key each raise raised, by its position."""
  raises = raises_of(trials)
  order = []
  for before, after in itertools.pairwise(raises):
    grown = [
      i
      for i, key in enumerate(problem.keys)
      if after.asked[key].num_channels > before.asked[key].num_channels
    ]
    assert len(grown) == 1
    order += grown
  return order


def test_the_collective_that_gains_most_for_what_it_costs_is_raised_first():
  small, large = gather(32), gather(64)
  problem = problem_of(small, large)
  cost_us = {small: 20.0, large: 1.0}

  def lost_us(key: Any, setting: nccl.Setting) -> float:
    return cost_us[key] * setting.num_channels

  def time_us(key: Any, setting: nccl.Setting) -> float:
    return 1000.0 - 10.0 * setting.num_channels

  profile = overlap_of(problem, 0.0, time_us=time_us, lost_us=lost_us)
  trials, _ = trials_of(LAGOM, problem, profile)
  # H is 0.01 until a collective was raised once, then 2 and 0.1: the second
  # goes on until it is at its limit.
  most = max(s.num_channels[-1] for s in problem_lib.subspaces(large, H100))
  order = _order_of_raises(trials, problem)
  assert order[0] == 0
  assert order[1:most] == [1] * (most - 1)
  assert set(order[most:]) == {0}


def test_equal_priorities_go_in_the_order_of_the_keys():
  problem = problem_of(gather(32), gather(64), gather(128))
  profile = overlap_of(
    problem,
    0.0,
    time_us=lambda key, setting: 1000.0 - 10.0 * setting.num_channels,
    lost_us=loss_by_channels(1.0),
  )
  trials, _ = trials_of(LAGOM, problem, profile)
  assert _order_of_raises(trials, problem)[:3] == [0, 1, 2]
