# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""What every searcher must do, whatever it is told."""

from __future__ import annotations

import random

import hypothesis
from hypothesis import strategies as st
import pytest

from benchmarks.searchers import autoccl
from benchmarks.searchers import tpe
from lagom_xla.costs import collective as collective_lib
from lagom_xla.search import nccl as nccl_search
from lagom_xla.search.nccl import problem as problem_lib
from lagom_xla.search.nccl import searcher as searcher_lib
from searcher_trials import H100
from searcher_trials import MIB
from searcher_trials import gather
from searcher_trials import overlap_of
from searcher_trials import problem_of
from searcher_trials import start_of
from searcher_trials import trials_of

_SEARCHERS: dict[str, searcher_lib.Searcher] = {
  **nccl_search.SEARCHERS,
  "autoccl": autoccl.AutoCCL(),
  "tpe": tpe.TPE(max_trials=15),
}
# Those that look for something, with the most trials that a key may take.
_TRIALS_PER_KEY = {"autoccl": 500, "balance": 64, "lagom": 32}
# Those whose questions depend on the seed.
_DRAWING = ("autoccl", "tpe")


_KERNELS_US = {
  "communication-bound": 0.0,
  "balanced": 400.0,
  "computation-bound": 1e6,
}
# Searchers and numbers of keys.
_CASES = [(name, num_keys) for name in _SEARCHERS for num_keys in (1, 3)]


@pytest.fixture(params=_CASES, ids=lambda case: f"{case[0]}-{case[1]}")
def case(request: pytest.FixtureRequest) -> tuple[str, int]:
  return request.param


@pytest.fixture
def searcher(case: tuple[str, int]) -> searcher_lib.Searcher:
  return _SEARCHERS[case[0]]


@pytest.fixture
def problem(case: tuple[str, int]) -> problem_lib.Problem:
  return problem_of(*(gather(16 * (i + 1)) for i in range(case[1])))


@pytest.fixture(params=_KERNELS_US)
def kernels_us(request: pytest.FixtureRequest) -> float:
  return _KERNELS_US[request.param]


@pytest.fixture
def profile(
  problem: problem_lib.Problem, kernels_us: float
) -> searcher_lib.ProfileFn:
  return overlap_of(problem, kernels_us)


def test_the_same_seed_asks_the_same_questions(searcher, problem, profile):
  assert trials_of(searcher, problem, profile, seed=3) == (
    trials_of(searcher, problem, profile, seed=3)
  )


def test_the_start_is_profiled_first(searcher, problem, profile):
  trials, _ = trials_of(searcher, problem, profile)
  assert trials[0].asked == start_of(problem)


def test_the_result_is_the_best_of_what_was_profiled(
  searcher, problem, profile
):
  trials, best = trials_of(searcher, problem, profile)
  least_us = min(trial.profile.total_us for trial in trials)
  assert best in [trial.asked for trial in trials]
  assert profile(best).total_us == least_us


def test_a_search_that_is_done_asks_and_takes_nothing_more(
  searcher, problem, profile
):
  search = searcher_lib.run(
    searcher, problem, H100, start=start_of(problem), profile=profile
  )
  assert search.asked is None
  with pytest.raises(ValueError, match="nothing left to ask"):
    search.tell(profile(start_of(problem)))


def _is_in_the_space(
  key: collective_lib.TuningKey, setting: collective_lib.Setting
) -> bool:
  return any(
    (subspace.algorithm, subspace.protocol)
    == (setting.algorithm, setting.protocol)
    and setting.num_channels in subspace.num_channels
    and setting.chunk_bytes in subspace.chunk_bytes
    for subspace in problem_lib.subspaces(key, H100)
  )


def test_every_question_is_in_the_space_or_the_start(
  searcher, problem, profile
):
  trials, _ = trials_of(searcher, problem, profile)
  start = trials[0].asked
  for trial in trials:
    assert list(trial.asked) == list(problem.keys)
    for key, setting in trial.asked.items():
      assert setting == start[key] or _is_in_the_space(key, setting)


@pytest.mark.parametrize("name", _TRIALS_PER_KEY)
@pytest.mark.parametrize("num_keys", [1, 4, 16])
def test_trials_grow_with_the_number_of_keys(name, num_keys, kernels_us):
  problem = problem_of(*(gather(16 * (i + 1)) for i in range(num_keys)))
  profile = overlap_of(problem, kernels_us)
  trials, _ = trials_of(_SEARCHERS[name], problem, profile)
  assert len(trials) <= 2 + _TRIALS_PER_KEY[name] * num_keys


def test_a_run_ends_with_its_budget(searcher, problem, profile):
  state = searcher_lib.run(
    searcher,
    problem,
    H100,
    start=start_of(problem),
    profile=profile,
    max_trials=5,
  )
  trials, _ = trials_of(searcher, problem, profile)
  assert state.num_trials == min(5, len(trials))
  assert state.best_us == min(t.profile.total_us for t in trials[:5])
  assert profile(state.best).total_us == state.best_us


@pytest.mark.parametrize("name", _SEARCHERS)
def test_sends_and_receives_keep_their_setting(name):
  permute = collective_lib.TuningKey("collective-permute", 8, 1, 64 * MIB)
  problem = problem_of(permute, gather(64))
  profile = overlap_of(problem, 300.0)
  trials, best = trials_of(_SEARCHERS[name], problem, profile)
  assert {trial.asked[permute] for trial in trials} == {best[permute]}


@pytest.mark.parametrize("name", _SEARCHERS)
def test_a_start_with_more_keys_is_no_matter(name):
  problem = problem_of(gather(64))
  start = {**start_of(problem), **start_of(problem_of(gather(8)))}
  search = searcher_lib.Search(_SEARCHERS[name], problem, H100, start=start)
  assert search.asked == start_of(problem)


@pytest.mark.parametrize("name", _SEARCHERS)
def test_only_searchers_that_draw_ask_by_the_seed(name):
  problem = problem_of(gather(64))
  profile = overlap_of(problem, 300.0)
  first, second = (
    trials_of(_SEARCHERS[name], problem, profile, seed=seed) for seed in (0, 1)
  )
  assert (first != second) == (name in _DRAWING)


@pytest.mark.parametrize("name", ["autoccl", "balance", "lagom"])
@hypothesis.given(seed=st.integers(0, 2**32), num_keys=st.integers(1, 4))
@hypothesis.settings(max_examples=25)
def test_nonsense_does_not_lead_astray(name, seed, num_keys):
  problem = problem_of(*(gather(16 * (i + 1)) for i in range(num_keys)))
  rng = random.Random(seed)

  def nonsense(_: problem_lib.Configuration) -> problem_lib.Profile:
    def some_us() -> dict[problem_lib.Key, float]:
      return {
        key: rng.choice([0.0, 100.0 * rng.random()]) for key in problem.keys
      }

    key_us, exposed_us, slowdown_us = some_us(), some_us(), some_us()
    total_us = 1e3 * rng.random()
    return problem_lib.Profile(
      key_us=key_us,
      exposed_us=exposed_us,
      slowdown_us=slowdown_us,
      overlap_us=(total_us,),
      communication_us=sum(key_us.values()),
      computation_us=100.0 * rng.random(),
      total_us=total_us,
    )

  trials, best = trials_of(_SEARCHERS[name], problem, nonsense)
  least = min(trials, key=lambda trial: trial.profile.total_us)
  assert best == least.asked
  for trial in trials[1:]:
    for key, setting in trial.asked.items():
      assert setting == trials[0].asked[key] or _is_in_the_space(key, setting)
