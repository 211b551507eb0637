# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Lagom: which collective it raises, how far, and where it ends."""

from __future__ import annotations

from collections.abc import Mapping
import itertools

import pytest

from benchmarks.searchers import space as space_lib
from benchmarks.searchers.lagom import Lagom
from lagom_xla.costs import collective as collective_lib
from searcher_trials import H100
from searcher_trials import OfSetting
from searcher_trials import Trial
from searcher_trials import gather
from searcher_trials import overlap_of
from searcher_trials import problem_of
from searcher_trials import start_of
from searcher_trials import trials_of

_KEY = gather(64)
_MOST_CHANNELS = max(
  subspace.num_channels[-1] for subspace in space_lib.subspaces(_KEY, H100)
)


def _by_channels(times_us: Mapping[int, float]) -> OfSetting:
  """Times by number of channels; the last one also applies to more channels."""
  return lambda key, setting: times_us.get(
    setting.num_channels, times_us[max(times_us)]
  )


def _per_channel(us: float) -> OfSetting:
  return lambda key, setting: us * setting.num_channels


def _shared(us: float, power: int = 1) -> OfSetting:
  return lambda key, setting: us / setting.num_channels**power


def _raises(
  *keys: space_lib.Key,
  kernels_us: float = 0.0,
  time_us: OfSetting | None = None,
  lost_us: OfSetting | None = None,
  first_lr: float = 0.01,
) -> tuple[list[Trial], space_lib.Configuration]:
  """The trials after the one with all keys at their minimum, and the best."""
  problem = problem_of(*keys)
  profile = overlap_of(problem, kernels_us, time_us=time_us, lost_us=lost_us)
  trials, best = trials_of(Lagom(first_lr=first_lr), problem, profile)
  at_minimum = next(
    i
    for i, trial in enumerate(trials)
    if all(s.num_channels == 1 for s in trial.asked.values())
  )
  return trials[at_minimum:], best


def _channels(trials: list[Trial], key: space_lib.Key = _KEY) -> list[int]:
  return [trial.asked[key].num_channels for trial in trials]


# Comparing subspaces.


def test_the_subspace_that_is_fastest_with_most_resources_is_chosen():
  problem = problem_of(_KEY)
  times_us = {"ll": 50.0, "ll128": 20.0, "simple": 70.0}
  profile = overlap_of(
    problem, 0.0, time_us=lambda key, setting: times_us[setting.protocol]
  )
  trials, _ = trials_of(Lagom(), problem, profile)
  subspaces = space_lib.subspaces(_KEY, H100)
  compared = trials[1 : 1 + len(subspaces)]
  assert [trial.asked[_KEY] for trial in compared] == [
    subspace.most for subspace in subspaces
  ]
  minimum = trials[1 + len(subspaces)].asked[_KEY]
  assert (minimum.protocol, minimum.num_channels) == ("ll128", 1)
  assert minimum.chunk_bytes == min(
    subspace.chunk_bytes[0]
    for subspace in subspaces
    if subspace.protocol == "ll128"
  )


def test_other_keys_are_fixed_while_subspaces_of_one_are_compared():
  problem = problem_of(gather(64), gather(32))
  trials, _ = trials_of(Lagom(), problem, overlap_of(problem, 300.0))
  start = trials[0].asked
  num_compared = sum(len(space_lib.subspaces(k, H100)) for k in problem.keys)
  for trial in trials[1 : 1 + num_compared]:
    changed = [k for k in problem.keys if trial.asked[k] != start[k]]
    assert len(changed) <= 1


# How far a setting moves.


@pytest.mark.parametrize(
  ("time_us", "first_lr", "channels"),
  [
    # From 1 to 2 channels the time falls by half; 2 (1 + 1/2) = 3. Then it
    # falls by a fifth; 3 (1 + 1/5) is below 4, the next value.
    (_by_channels({1: 100.0, 2: 50.0, 3: 40.0, 4: 40.0}), 0.01, [1, 2, 3, 4]),
    (_shared(100.0, 3), 0.01, [1, 2, 4, 8, 15]),  # Gains of 7/8 and 19/27.
    (_shared(1e3), 5.0, [1, 6]),
  ],
)
def test_knobs_grow_by_the_first_lr_and_then_by_the_last_relative_gain(
  time_us: OfSetting, first_lr: float, channels: list[int]
):
  raises, _ = _raises(_KEY, time_us=time_us, first_lr=first_lr)
  assert _channels(raises)[: len(channels)] == channels
  first, second = (trial.asked[_KEY].chunk_bytes for trial in raises[:2])
  assert second > first


def test_a_collective_that_gains_nothing_keeps_its_previous_setting():
  raises, best = _raises(
    _KEY,
    kernels_us=10.0,
    time_us=_by_channels({1: 100.0, 2: 60.0, 3: 60.0, 4: 70.0}),
    lost_us=_per_channel(1.0),
  )
  assert _channels(raises) == [1, 2, 3]
  assert best[_KEY].num_channels == 2


def test_other_keys_are_raised_while_a_stuck_key_keeps_its_setting():
  stuck = gather(32)

  def time_us(key: space_lib.Key, setting: collective_lib.Setting) -> float:
    return 100.0 if key == stuck else 1e3 / setting.num_channels

  raises, _ = _raises(stuck, _KEY, time_us=time_us)
  kept, tried, *others = _channels(raises, stuck)
  assert (kept, tried) == (1, 2)
  assert set(others) == {kept}


# The order of raises.


def _order_of_raises(trials: list[Trial]) -> list[int]:
  """The position of the key of each raise."""
  order = []
  for before, after in itertools.pairwise(trials):
    (grown,) = (
      i
      for i, key in enumerate(before.asked)
      if after.asked[key].num_channels > before.asked[key].num_channels
    )
    order.append(grown)
  return order


def test_the_collective_with_the_best_gain_per_cost_is_raised_first():
  small = gather(32)
  raises, _ = _raises(
    small,
    _KEY,
    time_us=lambda key, setting: 1000.0 - 10.0 * setting.num_channels,
    lost_us=lambda key, setting: (
      setting.num_channels * (20.0 if key == small else 1.0)
    ),
  )
  # H is 0.01 until a collective was raised once, then 2 and 0.1: the second
  # goes on until it is at its limit.
  most = _MOST_CHANNELS
  order = _order_of_raises(raises)
  assert order[0] == 0
  assert order[1:most] == [1] * (most - 1)
  assert set(order[most:]) == {0}


def test_keys_of_equal_priority_are_raised_in_their_order():
  raises, _ = _raises(
    *(gather(mib) for mib in (32, 64, 128)),
    time_us=lambda key, setting: 1000.0 - 10.0 * setting.num_channels,
    lost_us=_per_channel(1.0),
  )
  assert _order_of_raises(raises)[:3] == [0, 1, 2]


# The end of a search.


def test_raises_stop_when_communication_is_shorter_than_computation():
  raises, best = _raises(
    gather(256), kernels_us=1500.0, lost_us=_per_channel(1.0)
  )
  *before, last = raises
  for trial in before:
    assert trial.profile.communication_us >= trial.profile.computation_us
  assert last.profile.communication_us < last.profile.computation_us
  # The raise that made X' < Y' is kept.
  assert best == last.asked


def test_a_collective_is_raised_up_to_its_channel_limit():
  raises, best = _raises(_KEY, time_us=_shared(1e3))
  assert _channels(raises)[-1] == best[_KEY].num_channels == _MOST_CHANNELS


def test_hidden_communication_ends_with_the_fewest_resources():
  raises, best = _raises(
    _KEY, gather(32), kernels_us=1e6, lost_us=_per_channel(1000.0)
  )
  assert [setting.num_channels for setting in best.values()] == [1, 1]
  # X < Y with all at their minimum: there is nothing to raise.
  assert len(raises) == 1


def test_the_start_is_kept_when_nothing_is_better():
  start = start_of(problem_of(_KEY))
  _, best = _raises(
    _KEY,
    time_us=lambda key, setting: 10.0 if setting == start[key] else 20.0,
  )
  assert best == start


@pytest.mark.parametrize(
  ("kernels_us", "lost_us", "at_most"),
  [
    (0.0, 0.0, 1.02),
    *itertools.product(
      (100.0, 300.0, 700.0, 1500.0, 5000.0), (0.5, 3.0, 20.0), (1.1,)
    ),
  ],
)
def test_search_over_one_key_ends_near_the_best_of_its_space(
  kernels_us: float, lost_us: float, at_most: float
):
  key = gather(256)
  problem = problem_of(key)
  profile = overlap_of(problem, kernels_us, lost_us=_per_channel(lost_us))
  _, best = trials_of(Lagom(), problem, profile)
  optimum_us = min(
    profile({key: setting}).total_us
    for subspace in space_lib.subspaces(key, H100)
    for setting in subspace.settings
  )
  assert profile(best).total_us <= at_most * optimum_us
