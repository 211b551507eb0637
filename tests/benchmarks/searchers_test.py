# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Properties of every searcher, for any profiles."""

from __future__ import annotations

from collections.abc import Sequence
import dataclasses
import itertools
import random

import hypothesis
from hypothesis import strategies as st
import pytest

from benchmarks.searchers import autoccl
from benchmarks.searchers import searcher as searcher_lib
from benchmarks.searchers import space as space_lib
from benchmarks.searchers import tpe
from benchmarks.searchers.balance import Balance
from benchmarks.searchers.lagom import Lagom
from lagom_xla.costs import collective as collective_lib
from lagom_xla.costs import step as step_lib
from lagom_xla.search.nccl import problem as problem_lib
from searcher_trials import H100
from searcher_trials import MIB
from searcher_trials import Trial
from searcher_trials import gather
from searcher_trials import overlap_of
from searcher_trials import problem_of
from searcher_trials import start_of
from searcher_trials import trials_of

_SEARCHERS: dict[str, searcher_lib.Searcher] = {
  "lagom": Lagom(),
  "balance": Balance(),
  "autoccl": autoccl.AutoCCL(),
  "tpe": tpe.TPE(max_trials=15),
}
# The most trials for each key, for searchers that end by themselves.
_TRIALS_PER_KEY = {"autoccl": 500, "balance": 64, "lagom": 32}
# Searchers whose trials depend on the seed.
_DRAWING = ("autoccl", "tpe")

# Computation beside communication: none, about as much, and far more.
_KERNELS_US = (0.0, 400.0, 1e6)


def _overlap(
  num_keys: int, kernels_us: float
) -> tuple[problem_lib.Problem, searcher_lib.ProfileFn]:
  problem = problem_of(*(gather(16 * (i + 1)) for i in range(num_keys)))
  return problem, overlap_of(problem, kernels_us)


@pytest.fixture(
  params=itertools.product(_SEARCHERS, (1, 3), _KERNELS_US), ids=str
)
def case(
  request: pytest.FixtureRequest,
) -> tuple[searcher_lib.Searcher, problem_lib.Problem, searcher_lib.ProfileFn]:
  """A searcher, its problem, and its profiles."""
  name, num_keys, kernels_us = request.param
  return _SEARCHERS[name], *_overlap(num_keys, kernels_us)


def test_trials_with_the_same_seed_are_the_same(case):
  assert trials_of(*case, seed=3) == trials_of(*case, seed=3)


@pytest.mark.parametrize("max_trials", [5, None])
def test_a_run_ends_at_its_budget_with_its_best_trial(case, max_trials):
  searcher, problem, profile = case
  trials, _ = trials_of(*case)
  search = searcher_lib.run(
    searcher,
    problem,
    H100,
    start=start_of(problem),
    profile=profile,
    max_trials=max_trials,
  )
  made = trials[:max_trials]
  assert search.num_trials == len(made)
  assert search.best in [trial.asked for trial in made]
  assert search.best_us == min(t.profile.total_us for t in made)
  assert profile(search.best).total_us == search.best_us
  if max_trials is None:
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
    for subspace in space_lib.subspaces(key, H100)
  )


def _check_trials(
  problem: problem_lib.Problem, trials: Sequence[Trial]
) -> None:
  """The start comes first; other settings are the start's or in the space."""
  start = start_of(problem)
  assert trials[0].asked == start
  for trial in trials:
    assert list(trial.asked) == list(problem.keys)
    for key, setting in trial.asked.items():
      assert setting == start[key] or _is_in_the_space(key, setting)


def test_every_trial_is_the_start_or_in_the_space(case):
  trials, _ = trials_of(*case)
  _check_trials(case[1], trials)


@pytest.mark.parametrize("name", _TRIALS_PER_KEY)
@pytest.mark.parametrize("num_keys", [1, 4, 16])
@pytest.mark.parametrize("kernels_us", _KERNELS_US)
def test_trials_are_at_most_proportional_to_the_number_of_keys(
  name, num_keys, kernels_us
):
  trials, _ = trials_of(_SEARCHERS[name], *_overlap(num_keys, kernels_us))
  assert len(trials) <= 2 + _TRIALS_PER_KEY[name] * num_keys


@pytest.mark.parametrize("name", _SEARCHERS)
def test_sends_and_receives_keep_their_setting(name):
  permute = collective_lib.TuningKey("collective-permute", 8, 1, 64 * MIB)
  problem = problem_of(permute, gather(64))
  profile = overlap_of(problem, 300.0)
  trials, best = trials_of(_SEARCHERS[name], problem, profile)
  assert {trial.asked[permute] for trial in trials} == {best[permute]}


@pytest.mark.parametrize("name", _SEARCHERS)
def test_keys_of_the_start_outside_the_problem_are_ignored(name):
  problem = problem_of(gather(64))
  start = {**start_of(problem), **start_of(problem_of(gather(8)))}
  search = searcher_lib.Search(_SEARCHERS[name], problem, H100, start=start)
  assert search.asked == start_of(problem)


@pytest.mark.parametrize("name", _SEARCHERS)
def test_only_random_searchers_depend_on_the_seed(name):
  case = (_SEARCHERS[name], *_overlap(1, 400.0))
  first, second = (trials_of(*case, seed=seed) for seed in (0, 1))
  assert (first != second) == (name in _DRAWING)


@pytest.mark.parametrize("name", ["autoccl", "balance", "lagom"])
@hypothesis.given(seed=st.integers(0, 2**32), num_keys=st.integers(1, 4))
@hypothesis.settings(max_examples=25)
def test_searches_of_random_profiles_still_end_with_the_best_trial(
  name, seed, num_keys
):
  problem, _ = _overlap(num_keys, 0.0)
  rng = random.Random(seed)

  def nonsense(_: space_lib.Configuration) -> space_lib.Profile:
    def some_us() -> dict[space_lib.Key, float]:
      return {
        key: rng.choice([0.0, 100.0 * rng.random()]) for key in problem.keys
      }

    key_us, exposed_us, slowdown_us = some_us(), some_us(), some_us()
    total_us = 1e3 * rng.random()
    return space_lib.Profile(
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
  _check_trials(problem, trials)


def test_profiles_of_trials_add_up_to_the_timeline_of_the_step(
  train_step_module,
):
  step = step_lib.of_module(train_step_module, H100)
  whole = step.timeline(step.default)
  communication_us = waits_us = slowdown_us = 0.0
  for problem in problem_lib.problems(step):
    predictor = space_lib.Predictor(step, problem)
    fewest = {
      key: dataclasses.replace(step.default[key], num_channels=1)
      for key in problem.keys
    }
    predictor(fewest)
    shown = predictor(step.default)
    assert shown == space_lib.Predictor(step, problem)(step.default)
    assert shown.total_us == pytest.approx(
      problem_lib.Predictor(step, problem)(step.default)
    )
    communication_us += shown.communication_us
    waits_us += sum(shown.exposed_us.values())
    slowdown_us += sum(shown.slowdown_us.values())
  assert communication_us == pytest.approx(
    whole.collective_us + whole.total_delay_us
  )
  assert waits_us == pytest.approx(whole.total_exposed_us)
  assert slowdown_us == pytest.approx(whole.total_slowdown_us)
