# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Lagom's resolutions do what they say; searchers_test.py has the protocol."""

from __future__ import annotations

from collections.abc import Callable, Mapping
import dataclasses
import functools
import itertools
from typing import Any

import pytest

from benchmarks.search import variations
from lagom_xla import cluster as cluster_lib
from lagom_xla.costs import collective as collective_lib
from lagom_xla.costs import nccl
from lagom_xla.search.nccl import problem as problem_lib
from lagom_xla.search.nccl import searcher as searcher_lib
from lagom_xla.search.nccl import space
from lagom_xla.search.nccl import trial as trial_lib
from lagom_xla.search.nccl.lagom import Lagom

H100 = cluster_lib.parse("1x8xh100")
_MIB = 2**20
_LAGOM = Lagom()


def _gather(mib: int) -> collective_lib.TuningKey:
  return collective_lib.TuningKey("all-gather", 8, 1, mib * _MIB)


def _problem(*keys: collective_lib.TuningKey) -> problem_lib.Problem:
  return problem_lib.Problem(
    keys=tuple(sorted(keys)), programs=(), program_keys=()
  )


def _start(problem: problem_lib.Problem) -> problem_lib.Configuration:
  return {k: collective_lib.default_setting(k, H100) for k in problem.keys}


def _overlap(
  problem: problem_lib.Problem,
  kernels_us: float,
  *,
  time_us: Callable[[Any, nccl.Setting], float] | None = None,
  lost_us: Callable[[Any, nccl.Setting], float] = lambda key, setting: 0.0,
) -> searcher_lib.ProfileFn:
  """A hand-made overlap: max(X, Y), where Y grows by what each key takes."""
  alone_us = time_us or (
    lambda key, setting: collective_lib.predict(key, setting, H100).time_us
  )

  def profile(configuration: problem_lib.Configuration) -> trial_lib.Profile:
    key_us = {key: alone_us(key, configuration[key]) for key in problem.keys}
    communication_us = sum(key_us.values())
    slowdown_us = {
      key: lost_us(key, configuration[key]) for key in problem.keys
    }
    computation_us = kernels_us + sum(slowdown_us.values())
    return trial_lib.Profile(
      key_us=key_us,
      exposed_us={},
      slowdown_us=slowdown_us,
      overlap_us=(),
      communication_us=communication_us,
      computation_us=computation_us,
      total_us=max(communication_us, computation_us),
    )

  return profile


def _by_channels(us_per_channel: float) -> Callable[[Any, nccl.Setting], float]:
  return lambda key, setting: us_per_channel * setting.num_channels


@dataclasses.dataclass(frozen=True)
class _Trial:
  asked: problem_lib.Configuration
  profile: trial_lib.Profile


def _trials(
  problem: problem_lib.Problem,
  profile: searcher_lib.ProfileFn,
  searcher: Lagom = _LAGOM,
) -> tuple[list[_Trial], problem_lib.Configuration]:
  state = searcher.init(problem, H100, start=_start(problem))
  trials = []
  while not searcher.done(state):
    asked = searcher.ask(state)
    trials.append(_Trial(asked, profile(asked)))
    state = searcher.tell(state, trials[-1].profile)
    assert len(trials) < 10_000
  return trials, searcher.best(state)


def _raises(trials: list[_Trial]) -> list[_Trial]:
  """The trials from that on which has all keys at their minimum."""
  at_minimum = next(
    i
    for i, trial in enumerate(trials)
    if all(s.num_channels == 1 for s in trial.asked.values())
  )
  return trials[at_minimum:]


def test_hidden_communication_ends_with_the_fewest_resources():
  problem = _problem(_gather(64), _gather(32))
  profile = _overlap(problem, 1e6, lost_us=_by_channels(1000.0))
  trials, best = _trials(problem, profile)
  assert [setting.num_channels for setting in best.values()] == [1, 1]
  # X < Y with all at their minimum: there is nothing to raise.
  assert len(_raises(trials)) == 1


def test_communication_alone_ends_as_fast_as_it_gets():
  key = _gather(256)
  problem = _problem(key)
  _, best = _trials(problem, _overlap(problem, 0.0))
  fastest_us = min(
    collective_lib.predict(key, subspace.setting(i, j), H100).time_us
    for subspace in space.subspaces(key, H100)
    for i in range(len(subspace.num_channels))
    for j in range(len(subspace.chunk_bytes))
  )
  found_us = collective_lib.predict(key, best[key], H100).time_us
  assert found_us <= 1.02 * fastest_us


def test_raising_stops_where_communication_becomes_shorter():
  problem = _problem(_gather(256))
  profile = _overlap(problem, 1500.0, lost_us=_by_channels(1.0))
  trials, best = _trials(problem, profile)
  *before, last = _raises(trials)
  for trial in before:
    assert trial.profile.communication_us >= trial.profile.computation_us
  assert last.profile.communication_us < last.profile.computation_us
  # What made X' < Y' is kept.
  assert best == last.asked


def test_the_fastest_subspace_is_chosen_with_all_resources():
  key = _gather(64)
  problem = _problem(key)
  times_us = {"ll": 50.0, "ll128": 20.0, "simple": 70.0}
  profile = _overlap(
    problem, 0.0, time_us=lambda key, setting: times_us[setting.protocol]
  )
  trials, _ = _trials(problem, profile)
  subspaces = space.subspaces(key, H100)
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
  problem = _problem(_gather(64), _gather(32))
  trials, _ = _trials(problem, _overlap(problem, 300.0))
  start = trials[0].asked
  num_compared = sum(len(space.subspaces(k, H100)) for k in problem.keys)
  for trial in trials[1 : 1 + num_compared]:
    changed = [k for k in problem.keys if trial.asked[k] != start[k]]
    assert len(changed) <= 1


def _table(
  times_us: Mapping[int, float],
) -> Callable[[Any, nccl.Setting], float]:
  """Times by number of channels; the last holds for all above."""
  return lambda key, setting: times_us.get(
    setting.num_channels, times_us[max(times_us)]
  )


def test_a_collective_that_gains_nothing_keeps_its_previous_setting():
  key = _gather(64)
  problem = _problem(key)
  time_us = _table({1: 100.0, 2: 60.0, 3: 60.0, 4: 70.0})
  profile = _overlap(problem, 10.0, time_us=time_us, lost_us=_by_channels(1.0))
  trials, best = _trials(problem, profile)
  raises = [t.asked[key].num_channels for t in _raises(trials)]
  assert raises == [1, 2, 3]
  assert best[key].num_channels == 2


def test_others_are_raised_beside_the_setting_that_was_kept():
  stuck, growing = _gather(32), _gather(64)
  problem = _problem(stuck, growing)

  def time_us(key: Any, setting: nccl.Setting) -> float:
    return 100.0 if key == stuck else 1e3 / setting.num_channels

  trials, _ = _trials(problem, _overlap(problem, 0.0, time_us=time_us))
  first, second, *others = _raises(trials)
  assert first.asked[stuck].num_channels == 1
  assert second.asked[stuck].num_channels == 2
  assert others
  assert {trial.asked[stuck] for trial in others} == {first.asked[stuck]}


def test_all_knobs_grow_by_the_last_relative_gain():
  key = _gather(64)
  problem = _problem(key)
  # From 1 to 2 channels the time falls by half; 2 (1 + 1/2) = 3. Then it falls
  # by a fifth; 3 (1 + 1/5) is below 4, the next value.
  time_us = _table({1: 100.0, 2: 50.0, 3: 40.0, 4: 40.0})
  profile = _overlap(problem, 0.0, time_us=time_us)
  trials, _ = _trials(problem, profile)
  raised = [t.asked[key] for t in _raises(trials)]
  assert [s.num_channels for s in raised] == [1, 2, 3, 4]
  chunks = [s.chunk_bytes for s in raised]
  assert chunks == sorted(set(chunks))


def test_the_first_raise_goes_by_the_first_lr():
  key = _gather(64)
  problem = _problem(key)
  profile = _overlap(
    problem, 0.0, time_us=lambda key, setting: 1e3 / setting.num_channels
  )
  trials, _ = _trials(problem, profile, Lagom(first_lr=5.0))
  first, second, *_ = _raises(trials)
  assert first.asked[key].num_channels == 1
  assert second.asked[key].num_channels == 6


def test_a_large_gain_takes_a_large_step():
  key = _gather(64)
  problem = _problem(key)

  def time_us(key: Any, setting: nccl.Setting) -> float:
    return 100.0 / setting.num_channels**3

  trials, _ = _trials(problem, _overlap(problem, 0.0, time_us=time_us))
  channels = [t.asked[key].num_channels for t in _raises(trials)]
  # Gains of 7/8, 19/27 and so on.
  assert channels[:5] == [1, 2, 4, 8, 15]


def test_a_collective_at_its_limit_is_finished():
  key = _gather(64)
  problem = _problem(key)
  profile = _overlap(
    problem, 0.0, time_us=lambda key, setting: 1e3 / setting.num_channels
  )
  trials, best = _trials(problem, profile)
  most = max(s.num_channels[-1] for s in space.subspaces(key, H100))
  assert trials[-1].asked[key].num_channels == most
  assert best[key].num_channels == most


def _order_of_raises(
  trials: list[_Trial], problem: problem_lib.Problem
) -> list[int]:
  """Which key each raise raised, by its position."""
  raises = _raises(trials)
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
  small, large = _gather(32), _gather(64)
  problem = _problem(small, large)
  cost_us = {small: 20.0, large: 1.0}

  def lost_us(key: Any, setting: nccl.Setting) -> float:
    return cost_us[key] * setting.num_channels

  def time_us(key: Any, setting: nccl.Setting) -> float:
    return 1000.0 - 10.0 * setting.num_channels

  profile = _overlap(problem, 0.0, time_us=time_us, lost_us=lost_us)
  trials, _ = _trials(problem, profile)
  # H is 0.01 until a collective was raised once, then 2 and 0.1: the second
  # goes on until it is at its limit.
  most = max(s.num_channels[-1] for s in space.subspaces(large, H100))
  order = _order_of_raises(trials, problem)
  assert order[0] == 0
  assert order[1:most] == [1] * (most - 1)
  assert set(order[most:]) == {0}


def test_equal_priorities_go_in_the_order_of_the_keys():
  problem = _problem(_gather(32), _gather(64), _gather(128))
  profile = _overlap(
    problem,
    0.0,
    time_us=lambda key, setting: 1000.0 - 10.0 * setting.num_channels,
    lost_us=_by_channels(1.0),
  )
  trials, _ = _trials(problem, profile)
  assert _order_of_raises(trials, problem)[:3] == [0, 1, 2]


def test_round_robin_raises_in_turn_whatever_that_costs():
  problem = _problem(_gather(32), _gather(64), _gather(128))
  cheapest = problem.keys[0]
  profile = _overlap(
    problem,
    0.0,
    time_us=lambda key, setting: 1000.0 - 10.0 * setting.num_channels,
    lost_us=lambda key, setting: (
      setting.num_channels * (1.0 if key == cheapest else 20.0)
    ),
  )
  in_turn, _ = _trials(problem, profile, variations.RoundRobin())
  by_cost, _ = _trials(problem, profile)
  assert _order_of_raises(in_turn, problem)[:6] == [0, 1, 2, 0, 1, 2]
  assert _order_of_raises(by_cost, problem)[:6] == [0, 1, 2, 0, 0, 0]


def test_the_start_is_kept_when_nothing_is_better():
  problem = _problem(_gather(64))
  start = _start(problem)
  profile = _overlap(
    problem,
    0.0,
    time_us=lambda key, setting: 10.0 if setting == start[key] else 20.0,
  )
  _, best = _trials(problem, profile)
  assert best == start


@functools.cache
def _grid(key: collective_lib.TuningKey) -> tuple[nccl.Setting, ...]:
  return tuple(
    subspace.setting(i, j)
    for subspace in space.subspaces(key, H100)
    for i in range(len(subspace.num_channels))
    for j in range(len(subspace.chunk_bytes))
  )


@pytest.mark.parametrize("kernels_us", [100.0, 300.0, 700.0, 1500.0, 5000.0])
@pytest.mark.parametrize("lost_us", [0.5, 3.0, 20.0])
def test_one_key_ends_near_the_best_of_its_whole_space(kernels_us, lost_us):
  key = _gather(256)
  problem = _problem(key)
  profile = _overlap(problem, kernels_us, lost_us=_by_channels(lost_us))
  _, best = _trials(problem, profile)
  optimum_us = min(profile({key: s}).total_us for s in _grid(key))
  assert profile(best).total_us <= 1.1 * optimum_us
