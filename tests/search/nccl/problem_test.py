# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Tuning keys that share overlaps, directly or not, are tuned together."""

from __future__ import annotations

from collections.abc import Sequence
import dataclasses

import pytest

import hlo_text
from lagom_xla import cluster as cluster_lib
from lagom_xla.costs import step as step_lib
from lagom_xla.costs.replay import timeline
from lagom_xla.search.nccl import problem as problem_lib

H100 = cluster_lib.parse("1x8xh100")
_MIB = 2**20


def _gather(name: str, mib: int, kernels_us: Sequence[float] = ()) -> str:
  """An all-gather of `mib` in total, beside kernels with these times."""
  return _beside(
    name,
    mib,
    "\n".join(
      hlo_text.kernel(f"{name}-kernel{i}", us)
      for i, us in enumerate(kernels_us)
    ),
  )


def _plain_gather(name: str, mib: int) -> str:
  return (
    f"{name}-in = f32[{mib * _MIB // 32}] custom-call(), "
    'custom_call_target="AllocateBuffer"\n'
    f"{name} = f32[{mib * _MIB // 4}] all-gather({name}-in), {hlo_text.GATHER}"
  )


def _step(*parts: str, loop: tuple[int, str] | None = None) -> step_lib.Step:
  """A step with these parts; "LOOP" in one of them marks a loop."""
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


def _beside(outer: str, outer_mib: int, inner: str) -> str:
  """An all-gather with these parts beside it."""
  start, done = hlo_text.all_gather(outer, outer_mib * _MIB)
  return "\n".join([start, inner, done])


# Parts of steps, and the problems in them: keys by their MiB, and how often
# each of their programs runs.
_PROBLEMS = {
  "nothing": ([hlo_text.kernel("kernel", 50)], []),
  "no common key": (
    [_gather("a", 8, [50]), _gather("b", 16, [50])],
    [([8], [1]), ([16], [1])],
  ),
  "a common key": (
    [_gather("a", 8, [50]), _gather("b", 8, [500])],
    [([8], [1, 1])],
  ),
  "keys joined through others": (
    [
      _beside("a", 8, _gather("b", 16, [20])),
      _beside("c", 16, _gather("d", 32, [20])),
    ],
    [([8, 16, 32], [1, 1])],
  ),
  "alike overlaps": (
    [*(_gather(f"g{i}", 8, [50, 20]) for i in range(5)), _gather("h", 8, [50])],
    [([8], [1, 5])],
  ),
  "kernels in another order": (
    [_gather("a", 8, [50, 20]), _gather("b", 8, [20, 50])],
    [([8], [1, 1])],
  ),
  "sync beside async": (
    [_gather("a", 64, [50]), _plain_gather("b", 8), _gather("c", 8, [90])],
    [([8], [1, 1]), ([64], [1])],
  ),
  "sync inside a window": (
    [_beside("a", 64, _plain_gather("b", 8))],
    [([8, 64], [1])],
  ),
  "a loop": (["LOOP"], [([8], [12])]),
  "a loop inside a window": (
    [_beside("a", 64, "LOOP")],
    [([2, 8, 64], [1])],
  ),
}
_LOOPS = {
  "a loop": (12, _gather("g", 8, [50])),
  "a loop inside a window": (
    4,
    _gather("g", 8, [50]) + "\n" + _plain_gather("s", 2),
  ),
}


@pytest.fixture(params=_PROBLEMS)
def name(request: pytest.FixtureRequest) -> str:
  return request.param


@pytest.fixture
def step(name: str) -> step_lib.Step:
  parts, _ = _PROBLEMS[name]
  return _step(*parts, loop=_LOOPS.get(name))


def test_keys_that_share_overlaps_form_problems_with_counted_programs(
  name: str, step: step_lib.Step
):
  problems = problem_lib.problems(step)
  assert (
    sorted(
      (
        [key.num_bytes // _MIB for key in problem.keys],
        sorted(times for _, times in problem.programs),
      )
      for problem in problems
    )
    == _PROBLEMS[name][-1]
  )
  for problem in problems:
    assert len(problem.program_keys) == len(problem.programs)
    assert frozenset().union(*problem.program_keys) == set(problem.keys)


def test_time_outside_all_problems_does_not_depend_on_settings(
  step: step_lib.Step,
):
  # Problems cover all overlaps.
  fewest = {
    key: dataclasses.replace(setting, num_channels=1)
    for key, setting in step.default.items()
  }
  outside_us = [
    step.timeline(configuration).step_time_us
    - sum(
      problem_lib.Predictor(step, problem)(configuration)
      for problem in problem_lib.problems(step)
    )
    for configuration in (step.default, fewest)
  ]
  assert outside_us[0] == pytest.approx(outside_us[1], abs=1e-6)


def test_a_prediction_after_one_change_equals_a_full_replay(
  step: step_lib.Step,
):
  for problem in problem_lib.problems(step):
    predict = problem_lib.Predictor(step, problem)
    configuration = {key: step.default[key] for key in problem.keys}
    for key in (*problem.keys, *problem.keys[:1]):
      # A key that was changed gets NCCL's setting back.
      is_own = configuration[key] == step.default[key]
      channels = 1 if is_own else step.default[key].num_channels
      setting = dataclasses.replace(configuration[key], num_channels=channels)
      configuration = {**configuration, key: setting}
      costs = step.costs({**step.default, **configuration})
      assert predict(configuration) == pytest.approx(
        sum(
          times * timeline.replay(program, costs).step_time_us
          for program, times in problem.programs
        )
      )
