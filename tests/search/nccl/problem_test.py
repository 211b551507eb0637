# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""What is tuned together: tuning keys that meet, directly or through others."""

from __future__ import annotations

from collections.abc import Sequence
import dataclasses

import pytest

import hlo_text
from lagom_xla import cluster as cluster_lib
from lagom_xla.costs import step as step_lib
from lagom_xla.costs.replay import program as program_lib
from lagom_xla.costs.replay import timeline
from lagom_xla.search.nccl import problem as problem_lib

H100 = cluster_lib.parse("1x8xh100")
_MIB = 2**20


def _gather(name: str, mib: int, kernels_us: Sequence[float] = ()) -> str:
  """An all-gather of `mib` in all, beside kernels of these times."""
  start, done = hlo_text.all_gather(name, mib * _MIB)
  kernels = [
    hlo_text.kernel(f"{name}-kernel{i}", us) for i, us in enumerate(kernels_us)
  ]
  return "\n".join([start, *kernels, done])


def _plain_gather(name: str, mib: int) -> str:
  return (
    f"{name}-in = f32[{mib * _MIB // 32}] custom-call(), "
    'custom_call_target="AllocateBuffer"\n'
    f"{name} = f32[{mib * _MIB // 4}] all-gather({name}-in), {hlo_text.GATHER}"
  )


def _step(*parts: str, loop: tuple[int, str] | None = None) -> step_lib.Step:
  """A step of these parts; "LOOP" in one of them is where a loop stands."""
  num_trips, body = loop or (1, "")
  entry = "\n".join(parts).replace(
    "LOOP",
    "start = (s32[], f32[256,256]) tuple(zero, p)\n"
    "loop = (s32[], f32[256,256]) while(start), condition=condition,"
    f" body=body, {hlo_text.trips(num_trips)}",
  )
  module = hlo_text.load(
    f"""
  p = f32[256,256] parameter(0)
  zero = s32[] constant(0)
{entry}
  ROOT result = (f32[256,256]) tuple(p)
""",
    computations=f"""
body {{
  carry = (s32[], f32[256,256]) parameter(0)
  p = f32[256,256] get-tuple-element(carry), index=1
{body}
  ROOT out = (s32[], f32[256,256]) copy(carry)
}}

condition {{
  carry = (s32[], f32[256,256]) parameter(0)
  ROOT more = pred[] constant(true)
}}
""",
  )
  return step_lib.of_module(module, H100)


def _mib_of(problem: problem_lib.Problem) -> list[int]:
  return [key.num_bytes // _MIB for key in problem.keys]


def test_overlaps_without_a_common_key_are_problems_of_their_own():
  step = _step(_gather("a", 8, [50]), _gather("b", 16, [50]))
  assert sorted(map(_mib_of, problem_lib.problems(step))) == [[8], [16]]


def test_overlaps_that_share_a_key_are_one_problem():
  step = _step(_gather("a", 8, [50]), _gather("b", 8, [500]))
  (problem,) = problem_lib.problems(step)
  assert _mib_of(problem) == [8]
  assert [times for _, times in problem.programs] == [1, 1]


def test_keys_are_joined_through_others():
  # a overlaps b, c overlaps d, and b and c share a key.
  def pair(x: str, x_mib: int, y: str, y_mib: int) -> str:
    *opening, x_done = _gather(x, x_mib).splitlines()
    return "\n".join([*opening, _gather(y, y_mib, [20]), x_done])

  step = _step(pair("a", 8, "b", 16), pair("c", 16, "d", 32))
  (problem,) = problem_lib.problems(step)
  assert _mib_of(problem) == [8, 16, 32]


def test_alike_overlaps_are_replayed_once_and_counted():
  alike = [_gather(f"g{i}", 8, [50, 20]) for i in range(5)]
  step = _step(*alike, _gather("other", 8, [50]))
  (problem,) = problem_lib.problems(step)
  assert sorted(times for _, times in problem.programs) == [1, 5]


def test_overlaps_differ_in_the_order_of_their_kernels():
  step = _step(_gather("a", 8, [50, 20]), _gather("b", 8, [20, 50]))
  (problem,) = problem_lib.problems(step)
  assert len(problem.programs) == 2


def test_an_overlap_in_a_loop_counts_its_trips():
  step = _step("LOOP", loop=(12, _gather("g", 8, [50])))
  (problem,) = problem_lib.problems(step)
  assert [times for _, times in problem.programs] == [12]
  assert step.executions[problem.keys[0]] == 12


def test_sync_collectives_have_keys_too():
  step = _step(_plain_gather("alone", 8))
  (problem,) = problem_lib.problems(step)
  profile = problem_lib.profile(step, problem, step.default)
  assert _mib_of(problem) == [8]
  assert profile.computation_us == 0
  assert profile.total_us == profile.communication_us > 0


_STEPS = {
  "apart": lambda: _step(_gather("a", 8, [50]), _gather("b", 16, [50])),
  "alike": lambda: _step(*(_gather(f"g{i}", 8, [50]) for i in range(3))),
  "sync beside async": lambda: _step(
    _gather("a", 64, [50]), _plain_gather("b", 8), _gather("c", 8, [90])
  ),
  "sync inside a window": lambda: _step(
    *_gather("a", 64, [50]).splitlines()[:-1],
    _plain_gather("b", 8),
    f"a-done = f32[{16 * _MIB}] all-gather-done(a)",
  ),
  "loop": lambda: _step("LOOP", loop=(4, _gather("g", 8, [50]))),
  "loop inside a window": lambda: _step(
    *_gather("a", 64, [50]).splitlines()[:-1],
    "LOOP",
    f"a-done = f32[{16 * _MIB}] all-gather-done(a)",
    loop=(4, _gather("g", 8, [50]) + "\n" + _plain_gather("s", 2)),
  ),
}


@pytest.mark.parametrize("name", _STEPS)
def test_a_profile_counts_every_collective_as_often_as_it_runs(name):
  step = _STEPS[name]()
  problems = problem_lib.problems(step)
  assert sorted(k for p in problems for k in p.keys) == list(step.keys)
  whole = step.timeline(step.default)
  communication_us = 0.0
  for problem in problems:
    profile = problem_lib.profile(step, problem, step.default)
    # What collectives lose to kernels is part of their time.
    communication_us += profile.communication_us
    assert sum(profile.key_us.values()) == pytest.approx(
      profile.communication_us
    )
  assert communication_us == pytest.approx(
    whole.collective_us + whole.total_delay_us
  )


def test_a_profile_is_the_sum_over_all_overlaps():
  step = _step(
    *(_gather(f"a{i}", 8, [50]) for i in range(3)), _gather("b", 8, [500])
  )
  (problem,) = problem_lib.problems(step)
  profile = problem_lib.profile(step, problem, step.default)
  replays = [
    timeline.replay(
      program_lib.of_overlap(step.analysis, overlap),
      step.costs(step.default),
    )
    for overlap in step.analysis.overlaps
  ]
  assert len(replays) == 4
  assert profile.total_us == pytest.approx(
    sum(replay.step_time_us for replay in replays)
  )
  assert profile.communication_us == pytest.approx(
    sum(replay.collective_us + replay.total_delay_us for replay in replays)
  )
  assert profile.computation_us == pytest.approx(
    sum(replay.kernel_us + replay.total_slowdown_us for replay in replays)
  )


@pytest.mark.parametrize("name", _STEPS)
def test_a_profile_says_who_waits_for_and_who_slows_whom(name):
  step = _STEPS[name]()
  problems = problem_lib.problems(step)
  assert problems
  for problem in problems:
    profile = problem_lib.profile(step, problem, step.default)
    waits_us = sum(profile.exposed_us.values())
    assert profile.total_us == pytest.approx(profile.computation_us + waits_us)
    assert profile.total_us == pytest.approx(sum(profile.overlap_us))
    assert len(profile.overlap_us) == len(problem.programs)
    slowdown_us = kernels_us = 0.0
    for program, times in problem.programs:
      replay = timeline.replay(program, step.costs(step.default))
      slowdown_us += times * replay.total_slowdown_us
      kernels_us += times * replay.kernel_us
    assert sum(profile.slowdown_us.values()) == pytest.approx(slowdown_us)
    assert profile.computation_us == pytest.approx(kernels_us + slowdown_us)


@pytest.mark.parametrize("name", _STEPS)
def test_problems_together_are_the_whole_step(name):
  # What is outside of all overlaps takes as long whatever the settings are.
  step = _STEPS[name]()
  fewest = {
    key: dataclasses.replace(setting, num_channels=1)
    for key, setting in step.default.items()
  }
  outside_us = [
    step.timeline(configuration).step_time_us
    - sum(
      problem_lib.profile(step, problem, configuration).total_us
      for problem in problem_lib.problems(step)
    )
    for configuration in (step.default, fewest)
  ]
  assert outside_us[0] == pytest.approx(outside_us[1], abs=1e-6)


def test_the_keys_of_a_program_are_its_own():
  step = _step(_gather("a", 8, [50]), _gather("b", 8, [500]))
  (problem,) = problem_lib.problems(step)
  assert problem.program_keys == (frozenset(problem.keys),) * 2


def test_a_step_without_collectives_has_no_problems():
  assert problem_lib.problems(_step(hlo_text.kernel("kernel", 50))) == ()
