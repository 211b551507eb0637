# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""What every searcher must do, whatever it is told."""

from __future__ import annotations

from collections.abc import Callable
import dataclasses
import itertools
import math
import random

import hypothesis
from hypothesis import strategies as st
import pytest

from benchmarks.searchers import autoccl
from benchmarks.searchers import exhaustive
from benchmarks.searchers import random_search
from benchmarks.searchers import tpe
from lagom_xla import cluster as cluster_lib
from lagom_xla.costs import collective as collective_lib
from lagom_xla.search import nccl as nccl_search
from lagom_xla.search.nccl import problem as problem_lib
from lagom_xla.search.nccl import searcher as searcher_lib
from lagom_xla.search.nccl import space
from lagom_xla.search.nccl import trial as trial_lib

H100 = cluster_lib.parse("1x8xh100")
_MIB = 2**20
_SEARCHERS: dict[str, searcher_lib.Searcher] = {
  **nccl_search.SEARCHERS,
  "autoccl": autoccl.AutoCCL(),
  "exhaustive": exhaustive.Exhaustive(),
  "random_search": random_search.RandomSearch(max_trials=200),
  "tpe": tpe.TPE(max_trials=15),
}
# Those that look for something, with the most trials that a key may take.
_TRIALS_PER_KEY = {"autoccl": 500, "balance": 50, "lagom": 32}
# Those whose questions depend on the seed.
_DRAWING = ("autoccl", "random_search", "tpe")
# Optuna's study changes in place; all other states are records.
_RECORDS = sorted(_SEARCHERS.keys() - {"tpe"})


def _gather(mib: int) -> collective_lib.TuningKey:
  return collective_lib.TuningKey("all-gather", 8, 1, mib * _MIB)


def _problem(*keys: collective_lib.TuningKey) -> problem_lib.Problem:
  """Keys that all share one overlap."""
  return problem_lib.Problem(
    keys=tuple(sorted(keys)), programs=(), program_keys=(frozenset(keys),)
  )


def _start(
  problem: problem_lib.Problem, cluster: cluster_lib.Cluster = H100
) -> problem_lib.Configuration:
  return {k: collective_lib.default_setting(k, cluster) for k in problem.keys}


def _overlap(
  problem: problem_lib.Problem,
  kernels_us: float,
  cluster: cluster_lib.Cluster = H100,
) -> searcher_lib.ProfileFn:
  """A hand-made overlap: max(X, Y), where Y grows with channels and time."""

  def profile(configuration: problem_lib.Configuration) -> trial_lib.Profile:
    costs = {
      key: collective_lib.predict(key, configuration[key], cluster)
      for key in problem.keys
    }
    key_us = {key: cost.time_us for key, cost in costs.items()}
    slowdown_us = {
      key: min(cost.time_us, kernels_us) * cost.num_channels / 132
      for key, cost in costs.items()
    }
    communication_us = sum(key_us.values())
    computation_us = kernels_us + sum(slowdown_us.values())
    total_us = max(communication_us, computation_us)
    share = (total_us - computation_us) / communication_us
    return trial_lib.Profile(
      key_us=key_us,
      exposed_us={key: us * share for key, us in key_us.items()},
      slowdown_us=slowdown_us,
      overlap_us=(total_us,),
      communication_us=communication_us,
      computation_us=computation_us,
      total_us=total_us,
    )

  return profile


@dataclasses.dataclass(frozen=True)
class _Trial:
  asked: problem_lib.Configuration
  profile: trial_lib.Profile


def _trials(
  searcher: searcher_lib.Searcher,
  problem: problem_lib.Problem,
  profile: searcher_lib.ProfileFn,
  seed: int = 0,
  cluster: cluster_lib.Cluster = H100,
) -> tuple[list[_Trial], problem_lib.Configuration]:
  start = _start(problem, cluster)
  state = searcher.init(problem, cluster, start=start, seed=seed)
  trials = []
  while not searcher.done(state):
    asked = searcher.ask(state)
    trials.append(_Trial(asked, profile(asked)))
    state = searcher.tell(state, trials[-1].profile)
    assert len(trials) < 10_000
  return trials, searcher.best(state)


_KERNELS_US = {
  "communication-bound": 0.0,
  "balanced": 400.0,
  "computation-bound": 1e6,
}
# Searchers and numbers of keys; the grid of two keys is too large for a test.
_CASES = [
  (name, num_keys)
  for name in _SEARCHERS
  for num_keys in ((1,) if name == "exhaustive" else (1, 3))
]


@pytest.fixture(params=_CASES, ids=lambda case: f"{case[0]}-{case[1]}")
def case(request: pytest.FixtureRequest) -> tuple[str, int]:
  return request.param


@pytest.fixture
def searcher(case: tuple[str, int]) -> searcher_lib.Searcher:
  return _SEARCHERS[case[0]]


@pytest.fixture
def problem(case: tuple[str, int]) -> problem_lib.Problem:
  return _problem(*(_gather(16 * (i + 1)) for i in range(case[1])))


@pytest.fixture(params=_KERNELS_US)
def kernels_us(request: pytest.FixtureRequest) -> float:
  return _KERNELS_US[request.param]


@pytest.fixture
def profile(
  problem: problem_lib.Problem, kernels_us: float
) -> searcher_lib.ProfileFn:
  return _overlap(problem, kernels_us)


def test_the_same_seed_asks_the_same_questions(searcher, problem, profile):
  assert _trials(searcher, problem, profile, seed=3) == (
    _trials(searcher, problem, profile, seed=3)
  )


def test_the_start_is_profiled_first(searcher, problem, profile):
  trials, _ = _trials(searcher, problem, profile)
  assert trials[0].asked == _start(problem)


def test_the_result_is_the_best_of_what_was_profiled(
  searcher, problem, profile
):
  trials, best = _trials(searcher, problem, profile)
  least_us = min(trial.profile.total_us for trial in trials)
  assert best in [trial.asked for trial in trials]
  assert profile(best).total_us == least_us


def test_a_search_that_is_done_asks_and_takes_nothing_more(
  searcher, problem, profile
):
  state = searcher_lib.run(
    searcher, problem, H100, start=_start(problem), profile=profile
  )
  assert searcher.done(state)
  with pytest.raises(ValueError, match="nothing left to ask"):
    searcher.ask(state)
  with pytest.raises(ValueError, match="nothing left to ask"):
    searcher.tell(state, profile(_start(problem)))


def _is_in_the_space(
  key: collective_lib.TuningKey, setting: collective_lib.Setting
) -> bool:
  return any(
    (subspace.algorithm, subspace.protocol)
    == (setting.algorithm, setting.protocol)
    and setting.num_channels in subspace.num_channels
    and setting.chunk_bytes in subspace.chunk_bytes
    for subspace in space.subspaces(key, H100)
  )


def test_every_question_is_in_the_space_or_the_start(
  searcher, problem, profile
):
  trials, _ = _trials(searcher, problem, profile)
  start = trials[0].asked
  for trial in trials:
    assert list(trial.asked) == list(problem.keys)
    for key, setting in trial.asked.items():
      assert setting == start[key] or _is_in_the_space(key, setting)


@pytest.mark.parametrize("name", _TRIALS_PER_KEY)
@pytest.mark.parametrize("num_keys", [1, 4, 16])
def test_trials_grow_with_the_number_of_keys(name, num_keys, kernels_us):
  problem = _problem(*(_gather(16 * (i + 1)) for i in range(num_keys)))
  profile = _overlap(problem, kernels_us)
  trials, _ = _trials(_SEARCHERS[name], problem, profile)
  assert len(trials) <= 2 + _TRIALS_PER_KEY[name] * num_keys


def test_a_run_ends_with_its_budget(searcher, problem, profile):
  state = searcher_lib.run(
    searcher,
    problem,
    H100,
    start=_start(problem),
    profile=profile,
    max_trials=5,
  )
  trials, _ = _trials(searcher, problem, profile)
  assert state.num_trials == min(5, len(trials))
  assert state.best_us == min(t.profile.total_us for t in trials[:5])
  assert profile(searcher.best(state)).total_us == state.best_us


@pytest.mark.parametrize("name", _SEARCHERS)
def test_sends_and_receives_keep_their_setting(name):
  permute = collective_lib.TuningKey("collective-permute", 8, 1, 64 * _MIB)
  problem = _problem(permute, _gather(64))
  profile = _overlap(problem, 300.0)
  trials, best = _trials(_SEARCHERS[name], problem, profile)
  assert {trial.asked[permute] for trial in trials} == {best[permute]}


@pytest.mark.parametrize("name", _SEARCHERS)
def test_a_start_with_more_keys_is_no_matter(name):
  searcher = _SEARCHERS[name]
  problem = _problem(_gather(64))
  start = {**_start(problem), **_start(_problem(_gather(8)))}
  state = searcher.init(problem, H100, start=start)
  assert list(searcher.ask(state)) == list(problem.keys)


@pytest.mark.parametrize("name", _SEARCHERS)
def test_only_searchers_that_draw_ask_by_the_seed(name):
  problem = _problem(_gather(64))
  profile = _overlap(problem, 300.0)
  first, second = (
    _trials(_SEARCHERS[name], problem, profile, seed=seed) for seed in (0, 1)
  )
  assert (first != second) == (name in _DRAWING)


@pytest.mark.parametrize("name", _RECORDS)
def test_a_state_can_be_told_twice(name):
  searcher = _SEARCHERS[name]
  problem = _problem(_gather(64))
  profile = _overlap(problem, 300.0)
  state = searcher.init(problem, H100, start=_start(problem))
  for _ in range(8):
    shown = profile(searcher.ask(state))
    once, again = searcher.tell(state, shown), searcher.tell(state, shown)
    assert once == again != state
    state = once


@pytest.mark.parametrize("name", ["autoccl", "balance", "lagom"])
@hypothesis.given(seed=st.integers(0, 2**32), num_keys=st.integers(1, 4))
@hypothesis.settings(max_examples=25)
def test_nonsense_does_not_lead_astray(name, seed, num_keys):
  problem = _problem(*(_gather(16 * (i + 1)) for i in range(num_keys)))
  rng = random.Random(seed)

  def nonsense(_: problem_lib.Configuration) -> trial_lib.Profile:
    def some_us() -> dict[problem_lib.Key, float]:
      return {
        key: rng.choice([0.0, 100.0 * rng.random()]) for key in problem.keys
      }

    key_us, exposed_us, slowdown_us = some_us(), some_us(), some_us()
    total_us = 1e3 * rng.random()
    return trial_lib.Profile(
      key_us=key_us,
      exposed_us=exposed_us,
      slowdown_us=slowdown_us,
      overlap_us=(total_us,),
      communication_us=sum(key_us.values()),
      computation_us=100.0 * rng.random(),
      total_us=total_us,
    )

  trials, best = _trials(_SEARCHERS[name], problem, nonsense)
  least = min(trials, key=lambda trial: trial.profile.total_us)
  assert best == least.asked
  for trial in trials[1:]:
    for key, setting in trial.asked.items():
      assert setting == trials[0].asked[key] or _is_in_the_space(key, setting)


# What single searchers do.


def test_exhaustive_search_finds_the_optimum():
  key = _gather(256)
  problem = _problem(key)
  profile = _overlap(problem, 1500.0)
  trials, best = _trials(exhaustive.Exhaustive(), problem, profile)
  optimum_us = math.inf
  num_settings = 0
  for subspace in space.subspaces(key, H100):
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
    collective_lib.TuningKey("all-gather", 4, 1, mib * _MIB) for mib in (32, 64)
  ]
  problem = _problem(*keys)
  profile = _overlap(problem, 300.0, a40s)
  trials, _ = _trials(exhaustive.Exhaustive(), problem, profile, cluster=a40s)
  grids = [
    [s for subspace in space.subspaces(key, a40s) for s in subspace.settings]
    for key in problem.keys
  ]
  assert {tuple(trial.asked.values()) for trial in trials[1:]} == set(
    itertools.product(*grids)
  )
  assert len(trials) == 1 + len(grids[0]) * len(grids[1])


def test_exhaustive_search_refuses_three_keys():
  problem = _problem(_gather(16), _gather(32), _gather(64))
  with pytest.raises(ValueError, match="of 3 tuning keys takes"):
    exhaustive.Exhaustive().init(problem, H100, start=_start(problem))


def _by_channels(
  problem: problem_lib.Problem, time_us: Callable[[int], float]
) -> searcher_lib.ProfileFn:
  """A time that channels alone decide, in an overlap that they slow."""

  def profile(configuration: problem_lib.Configuration) -> trial_lib.Profile:
    channels = {k: s.num_channels for k, s in configuration.items()}
    key_us = {key: time_us(count) for key, count in channels.items()}
    total_us = 1e3 * sum(channels.values())
    return trial_lib.Profile(
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
  problem = _problem(_gather(64), _gather(32))
  profile = _by_channels(problem, lambda n: 100.0 + (n - valley) ** 2)
  searcher = autoccl.AutoCCL()
  state = searcher.init(problem, H100, start=_start(problem))
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
  key = _gather(64)
  problem = _problem(key)
  trials, _ = _trials(autoccl.AutoCCL(), problem, _overlap(problem, 300.0))
  searched = {
    (t.asked[key].algorithm, t.asked[key].protocol) for t in trials[1:]
  }
  assert searched == {
    (s.algorithm, s.protocol) for s in space.subspaces(key, H100)
  }


def test_autoccl_gives_up_subspaces_that_are_far_slower():
  key = _gather(64)
  problem = _problem(key)
  profile = _overlap(problem, 0.0)
  times_us = {"ll": 300.0, "ll128": 100.0, "simple": 140.0}

  def by_protocol(
    configuration: problem_lib.Configuration,
  ) -> trial_lib.Profile:
    time_us = times_us[configuration[key].protocol]
    return dataclasses.replace(profile(configuration), key_us={key: time_us})

  trials, _ = _trials(autoccl.AutoCCL(), problem, by_protocol)
  counts = dict.fromkeys(times_us, 0)
  for trial in trials[1:]:
    counts[trial.asked[key].protocol] += 1
  assert 0 < counts["ll"] < counts["ll128"] / 2


def test_all_keys_of_autoccl_move_in_the_same_trials():
  one = _problem(_gather(64))
  eight = _problem(*(_gather(16 * (i + 1)) for i in range(8)))
  alone, _ = _trials(autoccl.AutoCCL(), one, _overlap(one, 300.0))
  together, _ = _trials(autoccl.AutoCCL(), eight, _overlap(eight, 300.0))
  assert len(together) < 2 * len(alone)


def test_fewer_starts_of_autoccl_take_fewer_trials():
  problem = _problem(_gather(64))
  profile = _overlap(problem, 300.0)
  once, _ = _trials(autoccl.AutoCCL(num_starts=1), problem, profile)
  usual, _ = _trials(autoccl.AutoCCL(), problem, profile)
  assert usual[: len(once)] == once
  assert len(once) < len(usual)
