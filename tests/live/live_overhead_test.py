# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""What tuning costs is told without bias, and bounded, in simulated jobs."""

from __future__ import annotations

import math
import random
import statistics

import pytest

from lagom_xla.live import account
from lagom_xla.live import loop
from simulated_job import Job
from simulated_job import all_vote

_NUM_JOBS = 100


def _heavy_tails(number: int, noise: random.Random) -> float:
  """In one call of twenty, a pause of 0.1 s at least, and rarely of 10."""
  del number
  return 0.1 * noise.paretovariate(1.5) if noise.random() < 0.05 else 0.0


def _checkpoint(number: int, noise: random.Random) -> float:
  del noise
  return 50.0 if number % 40 == 0 else 0.0


def _nothing(number: int, noise: random.Random) -> float:
  del number, noise
  return 0.0


def _searched(seed: int, beside: float, own_s=_nothing, noise=0.05) -> Job:
  """A job of steps of 1 s, beside which 300 s are searched for nothing."""
  job = Job(
    step_s=[1.0],
    noise=noise,
    beside=beside,
    own_s=own_s,
    finds=lambda waited_s: waited_s > 300,
    seed=seed,
  )
  job.run(500)
  assert job.states()[:3] == ["baseline", "profile", "search"]
  return job


def _cost(job: Job) -> account.Cost:
  return job.loop.account.cost


@pytest.mark.parametrize("own_s", [_nothing, _heavy_tails])
@pytest.mark.parametrize("beside", [0.0, 0.02])
def test_the_account_is_right_on_average_and_as_sure_as_it_says(beside, own_s):
  jobs = [_searched(seed, beside, own_s) for seed in range(_NUM_JOBS)]
  wrong_s = [_cost(job).seconds - job.lost_s for job in jobs]
  error_s = statistics.stdev(wrong_s) / math.sqrt(_NUM_JOBS)
  assert abs(statistics.fmean(wrong_s)) < 3 * error_s
  assert error_s < 1.0  # So that 2 % of 300 steps would be seen.
  half_s = [_cost(job).half_s for job in jobs]
  inside = [
    abs(wrong) < half for wrong, half in zip(wrong_s, half_s, strict=True)
  ]
  # 95 of 100; 3 standard deviations less are 88.
  assert 88 <= sum(inside) < _NUM_JOBS


def test_two_percent_of_a_search_are_seen_in_one_run():
  for seed in range(20):
    with_effect = _cost(_searched(seed, 0.02, noise=0.01))
    without = _cost(_searched(seed, 0.0, noise=0.01))
    assert with_effect.seconds > with_effect.half_s
    assert abs(without.seconds) < 2 * without.half_s


def test_a_checkpoint_is_told_apart():
  job = _searched(0, 0.0, _checkpoint, noise=0.0)
  cost = _cost(job)
  counted = [it for it in job.phases if it.state in ("profile", "search")]
  assert cost.num_foreign > 2
  assert cost.foreign_s == pytest.approx(50.0 * cost.num_foreign)
  assert abs(cost.seconds) < 1e-6
  assert len(counted) > 100
  words = cost.in_words(1.0)
  assert words.startswith("0.0 steps (0.0 to 0.0), 0.00 % of a run of 1,000")
  assert f"not in it {cost.foreign_s:.1f} steps in" in words


def test_a_slow_traced_call_is_never_taken_for_a_checkpoint():
  job = Job(step_s=[1.0], noise=0.0)
  job.own_s = lambda *_: 9.0 if job.is_traced else 0.0
  job.run(100)
  assert _cost(job).num_foreign == 0
  assert _cost(job).seconds == pytest.approx(27.0)


@pytest.mark.parametrize(("step_s", "is_adopted"), [(0.5, True), (1.1, False)])
def test_what_is_faster_is_measured_to_the_end_whatever_finding_it_cost(
  step_s, is_adopted
):
  job = Job(
    step_s=[1.0, step_s],
    noise=0.001,
    beside=0.3,
    finds=lambda seconds: seconds > 50,
    voted=lambda seconds: all_vote(seconds) if seconds > 40 else {},
  )
  job.run()
  (trial,) = job.trials
  assert trial.verdict is not None
  assert trial.verdict.is_adopted is is_adopted
  assert ("tuning has cost" in trial.words) is not is_adopted


def test_what_is_adopted_is_no_credit_for_what_comes_next():
  job = Job(step_s=[1.0, 0.5], noise=0.0)
  assert job.run(500).in_use == 1
  assert _cost(job).seconds == pytest.approx(0.0, abs=1e-6)


@pytest.mark.parametrize("noise", [0.0, 0.1])
def test_a_job_whose_candidates_cost_too_much_stops_proposing(noise):
  for seed in range(20):
    job = Job(step_s=[1.0, *[1.9] * 30], noise=noise, seed=seed)
    job.run(1000)
    assert 2 < len(job.trials) < 30
    assert job.lost_s <= 20 + _cost(job).half_s
    assert job.states()[-1] == "watch"
    words = [phase.words for phase in job.phases if phase.words]
    assert "to try more might make it more than 20" in words[-1]


def test_candidates_that_noise_keeps_undecided_are_given_up():
  jobs = [Job(step_s=[1.0, *[1.6] * 4], noise=0.5, seed=it) for it in range(30)]
  for job in jobs:
    job.run(1000)
    assert job.lost_s <= 20 + 2 * _cost(job).half_s
  # Noise passes the bound at the end as often as it keeps away from it.
  assert statistics.fmean(job.lost_s for job in jobs) <= 22


def test_a_search_that_slows_the_step_too_much_is_ended():
  job = _searched(0, 0.3)
  assert 15 < job.lost_s < 25
  assert any("tuning has cost" in phase.words for phase in job.phases)


def test_what_a_short_run_cannot_pay_for_waits_for_a_longer_one():
  # A trace costs 0.1 s: 100 of these steps, 2 % of 5,000.
  job = Job(step_s=[1e-3, 0.8e-3], noise=1e-6)
  job.run(4_900)
  assert job.states() == ["baseline", "wait"]
  words = " ".join(phase.words for phase in job.phases)
  assert "a step takes 1 ms, and to search might cost 100 of them" in words
  assert job.run(20_000).in_use == 1
  assert job.states()[2:5] == ["baseline", "profile", "search"]
  began = next(
    index for index, it in enumerate(job.phases) if it.state == "profile"
  )
  calls = sum(
    segment.num_calls
    for phase in job.phases[:began]
    for segment in phase.segments
  )
  assert 4_900 < calls < 5_500


def test_a_search_after_a_drift_is_paid_for_by_the_whole_run():
  limits = loop.Limits(overhead_steps=10)
  job = Job(step_s=[1.0, 1.9, 1.9, 1.9], slower_from=4000, limits=limits)
  job.run(8000)
  assert job.num_searches == 2
  assert _cost(job).seconds <= 0.01 * job.num_calls
