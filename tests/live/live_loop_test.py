# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""The loop adopts faster variants at a bounded cost, in simulated jobs."""

from __future__ import annotations

import math
import random
import statistics

from hypothesis import given
from hypothesis import settings
from hypothesis import strategies as st
import pytest

from lagom_xla import errors
from lagom_xla.live import account
from lagom_xla.live import agreement
from lagom_xla.live import loop
from lagom_xla.live import phases
from lagom_xla.live import proposals
from lagom_xla.live import timing
from lagom_xla.live import trial_log
from lagom_xla.live import verdict
from simulated_job import COMPILED
from simulated_job import MEMBERS
from simulated_job import Job
from simulated_job import all_vote


@pytest.mark.parametrize("ratio", [0.7, 0.9, 0.97, 1.0, 1.02, 1.3, 3.0])
def test_a_candidate_is_adopted_only_if_it_is_faster(ratio):
  job = Job(step_s=[1.0, ratio])
  is_faster = ratio < 1
  assert job.run(1000).in_use == is_faster
  (trial,) = job.trials
  assert trial.verdict is not None and trial.verdict.is_adopted == is_faster
  if is_faster:
    assert trial.verdict.low <= ratio <= trial.verdict.high
    assert job.calls_of(1) > 800


def test_each_candidate_is_measured_against_the_variant_in_use():
  job = Job(step_s=[1.0, 0.8, 0.9, 0.7])
  assert job.run(2000).in_use == 3
  assert [trial.rival for trial in job.trials] == [0, 1, 1]
  adopted = [
    it.verdict is not None and it.verdict.is_adopted for it in job.trials
  ]
  assert adopted == [True, False, True]


def test_a_candidate_twice_as_slow_runs_for_few_steps():
  job = Job(step_s=[1.0, 2.0])
  job.run(1000)
  assert job.calls_of(1) <= 6


@settings(max_examples=60)
@given(
  st.lists(st.floats(0.5, 4.0), max_size=6),
  st.floats(0, 0.1),
  st.integers(0, 1000),
)
def test_a_run_never_ends_up_slower_by_more_than_the_noise(ratios, noise, seed):
  job = Job(step_s=[1.0, *ratios], noise=noise, seed=seed)
  job.run(1500)
  in_use = job.phases[-1].in_use
  # A verdict takes at least six pairs of two-step blocks with this noise.
  assert job.step_s[in_use] <= 1 + noise


def test_no_more_than_one_in_forty_equal_candidates_is_adopted():
  num_jobs = 400
  jobs = [Job(step_s=[1.0, 1.0], seed=seed) for seed in range(num_jobs)]
  num_adopted = sum(job.run(250).in_use for job in jobs)
  # 2.5 % of 400 are 10; 3 standard deviations more are 19.
  assert num_adopted <= 19


def _odd_one(waited_s: float):
  del waited_s
  odd = phases.Vote(digest="odd")
  return {**dict.fromkeys(MEMBERS, COMPILED), 1: odd}


def test_missing_votes_stop_the_loop_within_the_compile_limit():
  limits = loop.Limits(compile_s=50)
  job = Job(step_s=[1.0, 0.5], voted=lambda _: {0: COMPILED}, limits=limits)
  last = job.run(1000)
  assert last.state == "stopped"
  assert "processes 1-2 did not compile way 1 within 50 s" in last.words
  assert job.num_calls < 150
  assert job.calls_of(1) == 0


def test_a_drift_leads_to_one_new_search():
  job = Job(step_s=[1.0, 0.8], slower_from=2000)
  job.run(6000)
  assert job.num_searches == 2
  words = [phase.words for phase in job.phases]
  assert any("ms to 1.2e+03 ms and stayed there" in it for it in words)


def test_steps_that_do_not_drift_are_searched_once():
  for seed in range(5):
    job = Job(step_s=[1.0, 0.8], noise=0.1, seed=seed)
    job.run(20_000)
    assert job.num_searches == 1


def test_checkpoints_in_some_windows_are_not_drift():
  watch = timing.Watch()
  for number in range(100):
    assert not watch.has_drifted(2.0 if number % 3 == 0 else 1.0)


def test_each_new_search_requires_a_drift_twice_as_long():
  watch = timing.Watch()
  lengths = []
  for _ in range(3):
    for _ in range(10):
      watch.has_drifted(1.0)
    num = 1
    while not watch.has_drifted(2.0):
      num += 1
    lengths.append(num)
    watch.restart()
  assert lengths[1:] == [2 * lengths[0], 4 * lengths[0]]


def _profiles(job: Job) -> list[list[int]]:
  """The variants of each profile's traced calls."""
  return [
    [it.variant for it in phase.segments if it.is_traced]
    for phase in job.phases
    if any(it.is_traced for it in phase.segments)
  ]


def test_the_profiling_build_is_traced_once_all_processes_compiled_it():
  job = Job(step_s=[1.0, 0.8], has_profile_build=True)
  job.run(1000)
  assert _profiles(job) == [[-1]]
  assert job.states()[:3] == ["baseline", "profiling", "searching"]
  first, *_ = [it for it in job.phases if it.state == "profiling"]
  assert [segment.variant for segment in first.segments] == [0]
  (trial,) = job.trials
  assert trial.verdict is not None and trial.verdict.is_adopted


@pytest.mark.parametrize(
  ("voted", "words"),
  [
    (
      lambda _: {1: phases.Vote(digest=None, words="no")},
      "process 1: no",
    ),
    (_odd_one, "process 1 got another result than process 0"),
    (lambda _: {}, "did not compile the build for profiling within 50 s"),
  ],
)
def test_the_step_itself_is_traced_if_its_profiling_build_fails(voted, words):
  limits = loop.Limits(compile_s=50)
  job = Job(step_s=[1.0], has_profile_build=True, voted=voted, limits=limits)
  job.run(500)
  assert _profiles(job) == [[0]]
  assert job.num_searches == 1
  assert any(words in phase.words for phase in job.phases)


@pytest.mark.parametrize("has_build", [False, True])
def test_the_original_step_is_traced_again_after_a_drift(has_build):
  job = Job(step_s=[1.0, 0.8], slower_from=2000, has_profile_build=has_build)
  job.run(6000)
  assert _profiles(job) == [[-1], [-2]] if has_build else [[0], [0]]
  assert job.phases[-1].in_use == 1


@pytest.mark.parametrize("has_build", [False, True])
def test_the_variant_in_use_runs_untraced_while_the_trace_ends(has_build):
  job = Job(step_s=[1.0], trace_s=30.0, has_profile_build=has_build)
  job.run(500)
  states = [str(phase.state) for phase in job.phases]
  ends = states.index("searching")
  first = next(
    index
    for index, phase in enumerate(job.phases)
    if any(segment.is_traced for segment in phase.segments)
  )
  beside = job.phases[first + 1 : ends]
  segments = [segment for phase in beside for segment in phase.segments]
  assert sum(segment.num_calls for segment in segments) == pytest.approx(30, 1)
  assert {segment.variant for segment in segments} == {0}
  assert {phase.number for phase in beside} == {0}
  assert not any(segment.is_traced for segment in segments)


def test_a_trace_that_never_ends_is_abandoned_at_its_time_limit():
  limits = loop.Limits(trace_s=50)
  job = Job(step_s=[1.0], trace_s=1e9, limits=limits)
  job.run(500)
  assert job.num_searches == 1
  assert job.states() == ["baseline", "profiling", "searching", "watching"]
  profiling = [it for it in job.phases if it.state == "profiling"]
  calls = sum(seg.num_calls for it in profiling for seg in it.segments)
  assert 50 <= calls < 60


def test_a_search_is_concluded_only_once_all_candidates_were_tried():
  job = Job(step_s=[1.0, 0.8])
  job.run(1000)
  assert job.num_concluded == 1
  job = Job(step_s=[1.0, *[1.9] * 30], noise=0.0)
  job.run(1000)
  assert job.num_concluded == 0


def test_paired_blocks_alternate_their_order_and_have_equal_lengths():
  job = Job(step_s=[1.0, 0.97])
  job.run(1000)
  phases_ = [it.segments for it in job.phases if it.state == "measuring"]
  (first,), *measured = phases_
  assert first.variant == 1
  variants = [segment.variant for segment in measured[0]]
  assert variants[:4] == [0, 1, 1, 0]
  assert len({segment.num_calls for it in measured for segment in it}) == 1


_SEGMENTS = st.builds(
  phases.Segment,
  variant=st.integers(0, 9),
  num_calls=st.integers(1, 999),
  is_timed=st.booleans(),
  is_traced=st.booleans(),
  is_watched=st.booleans(),
)
_PROPOSALS = st.builds(
  proposals.Proposal,
  name=st.text(),
  payload=st.binary(),
  predicted_ratio=st.none() | st.floats(0.1, 10),
)
_PHASES = st.builds(
  phases.Phase,
  state=st.sampled_from(phases.State),
  segments=st.lists(_SEGMENTS, max_size=4).map(tuple),
  in_use=st.integers(0, 9),
  number=st.integers(0, 9),
  proposal=st.none() | _PROPOSALS,
  words=st.text(),
)


@given(_PHASES)
def test_a_phase_round_trips_through_json(phase):
  assert phases.from_json(phase.to_json()) == phase


@pytest.mark.parametrize("text", [b"", b"[]", b"{}", b'{"state": "dance"}'])
def test_invalid_phase_json_is_rejected(text):
  with pytest.raises(errors.ProcessesError, match="the same version on all"):
    phases.from_json(text)


@given(st.floats(1e-6, 1e3), st.floats(0.2, 5))
def test_a_verdict_does_not_depend_on_the_unit_of_time(unit, ratio):
  pairs = [(1.0, ratio), (1.1, ratio), (1.0, 1.05 * ratio)] * 2
  scaled = [(unit * ours, unit * theirs) for ours, theirs in pairs]
  one, other = verdict.judge(pairs), verdict.judge(scaled)
  assert one.is_adopted == other.is_adopted
  assert one.ratio == pytest.approx(other.ratio)
  assert one.low <= one.ratio <= one.high


def test_the_interval_is_students_t_of_log_ratios():
  # By hand: logs 0 and 1 in turn, mean 1/2, standard error sqrt(0.3 / 6), and
  # t of 5 degrees of freedom at 1 - 0.05 / 6 is 3.5341 (tables: 3.5341).
  pairs = [(1.0, 1.0), (1.0, 2.718281828459045)] * 3
  _, low, high = verdict.interval(pairs)
  assert low == pytest.approx(0.7480, abs=2e-3)
  assert high == pytest.approx(3.6339, abs=1e-2)


def test_a_store_of_one_process_keeps_the_first_value_of_a_key():
  store = agreement.next_store("step", [0])
  assert agreement.is_first(store)
  assert store.get("phases/1", timeout_s=9) is None
  assert store.put("phases/1", b"one") == b"one"
  assert store.put("phases/1", b"two") == b"one"
  assert store.get("phases/1", timeout_s=9) == b"one"
  assert store.in_folder("phases") == {"1": b"one"}


def _trial(
  number: int, rival: int, predicted_ratio: float | None
) -> phases.Trial:
  """A trial measured against its rival."""
  proposal = proposals.Proposal(
    name=f"way {number}", payload=b"{}", predicted_ratio=predicted_ratio
  )
  judged = verdict.judge([(1.0, 0.9), (1.0, 0.9)])
  return phases.Trial(
    proposal=proposal,
    number=number,
    rival=rival,
    verdict=judged,
    words="0.9 of the time",
  )


def test_predicted_ratios_are_reported_relative_to_the_trials_rival():
  log = trial_log.TrialLog(
    name="step", devices="8 cpu", path=None, loop=Job(step_s=[1.0]).loop
  )
  for trial in (
    _trial(1, 0, 0.5),
    _trial(2, 1, 0.6),  # Like all of these, predicted over jit's step.
    _trial(3, 1, None),
    _trial(4, 3, 0.4),
  ):
    log.note_trial(trial)
  told = [it for it in log.report().splitlines() if "tried: " in it]
  assert told == [
    "  tried: way 1: predicted 0.500, 0.9 of the time, rejected",
    "  tried: way 2: predicted 1.200, 0.9 of the time, rejected",
    "  tried: way 3: 0.9 of the time, rejected",
    "  tried: way 4: predicted 0.400 of jit's, 0.9 of the time, rejected",
  ]


_NUM_JOBS = 100


def _heavy_tails(number: int, noise: random.Random) -> float:
  """A pause of at least 0.1 s, rarely 10 s, in one of twenty calls."""
  del number
  return 0.1 * noise.paretovariate(1.5) if noise.random() < 0.05 else 0.0


def _checkpoint(number: int, noise: random.Random) -> float:
  del noise
  return 50.0 if number % 40 == 0 else 0.0


def _nothing(number: int, noise: random.Random) -> float:
  del number, noise
  return 0.0


def _searched(seed: int, beside: float, own_s=_nothing, noise=0.05) -> Job:
  """A job with steps of 1 s, and 300 s of a search without result beside it."""
  job = Job(
    step_s=[1.0],
    noise=noise,
    beside=beside,
    own_s=own_s,
    finds=lambda waited_s: waited_s > 300,
    seed=seed,
  )
  job.run(500)
  assert job.states()[:3] == ["baseline", "profiling", "searching"]
  return job


def _cost(job: Job) -> account.Cost:
  return job.loop.account.cost


@pytest.mark.parametrize("own_s", [_nothing, _heavy_tails])
@pytest.mark.parametrize("beside", [0.0, 0.02])
def test_the_estimated_cost_is_unbiased_and_its_interval_calibrated(
  beside, own_s
):
  jobs = [_searched(seed, beside, own_s) for seed in range(_NUM_JOBS)]
  wrong_s = [_cost(job).seconds - job.lost_s for job in jobs]
  error_s = statistics.stdev(wrong_s) / math.sqrt(_NUM_JOBS)
  assert abs(statistics.fmean(wrong_s)) < 3 * error_s
  assert error_s < 1.0  # Small enough to detect 2 % of 300 steps.
  half_s = [_cost(job).half_s for job in jobs]
  inside = [
    abs(wrong) < half for wrong, half in zip(wrong_s, half_s, strict=True)
  ]
  # 95 of 100; 3 standard deviations less are 88.
  assert 88 <= sum(inside) < _NUM_JOBS


def test_a_search_overhead_of_two_percent_is_detected_in_one_run():
  for seed in range(20):
    with_effect = _cost(_searched(seed, 0.02, noise=0.01))
    without = _cost(_searched(seed, 0.0, noise=0.01))
    assert with_effect.seconds > with_effect.half_s
    assert abs(without.seconds) < 2 * without.half_s


def test_checkpoints_are_not_counted_as_tuning_cost():
  job = _searched(0, 0.0, _checkpoint, noise=0.0)
  cost = _cost(job)
  counted = [it for it in job.phases if it.state in ("profiling", "searching")]
  assert cost.num_foreign > 2
  assert cost.foreign_s == pytest.approx(50.0 * cost.num_foreign)
  assert abs(cost.seconds) < 1e-6
  assert len(counted) > 100
  words = cost.in_words(1.0, 500)
  assert words.startswith("0.0 steps (0.0 to 0.0), 0.00 % of 500 so far")
  assert f"not counted: {cost.foreign_s:.1f} steps in" in words


def test_a_slow_traced_call_is_never_taken_for_a_checkpoint():
  job = Job(step_s=[1.0], noise=0.0)
  job.own_s = lambda *_: 9.0 if job.is_traced else 0.0
  job.run(100)
  assert _cost(job).num_foreign == 0
  assert _cost(job).seconds == pytest.approx(27.0)


@pytest.mark.parametrize(("step_s", "is_adopted"), [(0.5, True), (1.1, False)])
def test_a_faster_candidate_is_fully_measured_even_over_the_cost_limit(
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


def test_time_saved_by_an_adopted_variant_does_not_offset_the_cost():
  job = Job(step_s=[1.0, 0.5], noise=0.0)
  assert job.run(500).in_use == 1
  assert _cost(job).seconds == pytest.approx(0.0, abs=1e-6)


@pytest.mark.parametrize("noise", [0.0, 0.1])
def test_a_search_with_costly_candidates_waits_until_the_run_is_longer(noise):
  for seed in range(20):
    job = Job(step_s=[1.0, *[1.9] * 30], noise=noise, seed=seed)
    job.run(1000)
    num_trials = len(job.trials)
    assert 2 < num_trials < 30
    assert job.lost_s <= 20 + _cost(job).half_s
    assert not job.is_searching
    assert job.states()[-2:] == ["baseline", "waiting"]
    words = [phase.words for phase in job.phases if phase.words]
    assert "another try could exceed the limit of 20" in words[-2]
    assert words[-1].startswith("until call ")
    job.run(10_000)
    assert len(job.trials) > num_trials
    assert job.lost_s <= 0.02 * job.num_calls + _cost(job).half_s


def test_a_measured_candidate_is_not_measured_again_before_a_drift():
  job = Job(step_s=[1.0, *[1.9] * 9], proposes_the_same=True)
  job.run(1000)
  assert len(job.trials) == 1
  assert job.num_concluded == 1
  job = Job(step_s=[1.0, 1.9, 1.9], proposes_the_same=True, slower_from=2000)
  job.run(6000)
  assert len(job.trials) == job.num_searches == 2


def test_candidates_left_undecided_by_noise_are_abandoned():
  jobs = [Job(step_s=[1.0, *[1.6] * 4], noise=0.5, seed=it) for it in range(30)]
  for job in jobs:
    job.run(1000)
    assert job.lost_s <= 20 + 2 * _cost(job).half_s
  # Noise ends searches above the bound as often as below it.
  assert statistics.fmean(job.lost_s for job in jobs) <= 22


def test_a_search_that_slows_the_step_too_much_is_stopped():
  job = _searched(0, 0.3)
  assert 15 < job.lost_s < 25
  assert any("tuning has cost" in phase.words for phase in job.phases)


def test_a_search_too_costly_for_a_short_run_waits_for_a_longer_one():
  # A trace costs 0.1 s: 100 of these steps, 2 % of 5,000.
  job = Job(step_s=[1e-3, 0.8e-3], noise=1e-6)
  job.run(4_900)
  assert job.states() == ["baseline", "waiting"]
  words = " ".join(phase.words for phase in job.phases)
  assert "a search would cost about 100 steps of 1 ms" in words
  assert job.run(20_000).in_use == 1
  assert job.states()[2:5] == ["baseline", "profiling", "searching"]
  began = next(
    index for index, it in enumerate(job.phases) if it.state == "profiling"
  )
  calls = sum(
    segment.num_calls
    for phase in job.phases[:began]
    for segment in phase.segments
  )
  assert 4_900 < calls < 5_500


def test_repeated_searches_stay_within_the_whole_runs_cost_limit():
  limits = loop.Limits(overhead_steps=10)
  job = Job(step_s=[1.0, 1.9, 1.9, 1.9], slower_from=4000, limits=limits)
  job.run(8000)
  assert job.num_searches >= 2
  assert _cost(job).seconds <= 0.01 * job.num_calls
