# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""The segments that a change replays, and that no others are needed."""

from __future__ import annotations

from collections.abc import Sequence
import random
from unittest import mock

import hypothesis
from hypothesis import strategies as st
import pytest

import hlo_text
from lagom_xla import cluster as cluster_lib
from lagom_xla.costs import step as step_lib
from lagom_xla.costs.replay import incremental
from lagom_xla.costs.replay import timeline
from lagom_xla.search.nccl import problem as problem_lib

H100 = cluster_lib.parse("1x8xh100")
_KIB = 1024


def _chain(kernels_us: Sequence[float]) -> step_lib.Step:
  """Gathers of as many keys, each of which overlaps the one before it."""
  gathers = [
    hlo_text.all_gather(f"gather{i}", (8192 + 64 * i) * _KIB)
    for i in range(len(kernels_us))
  ]
  lines = [gathers[0][0]]
  for i, (time_us, (_, done)) in enumerate(
    zip(kernels_us, gathers, strict=True)
  ):
    lines.append(hlo_text.kernel(f"before{i}", time_us))
    lines += [start for start, _ in gathers[i + 1 : i + 2]]
    lines += [hlo_text.kernel(f"after{i}", time_us / 2), done]
  body = "\n".join(lines)
  module = hlo_text.load(f"""
  p = f32[256,256] parameter(0)
{body}
  ROOT result = (f32[256,256]) tuple(p)
""")
  return step_lib.of_module(module, H100)


def _changed(
  step: step_lib.Step,
  keys: Sequence[step_lib.Key],
  configuration: step_lib.Configuration,
  rng: random.Random,
) -> step_lib.Configuration:
  """With the settings of one or two keys drawn anew."""
  changed = dict(configuration)
  for key in rng.sample(keys, min(len(keys), rng.randint(1, 2))):
    subspace = rng.choice(problem_lib.subspaces(key, step.cluster))
    changed[key] = rng.choice(subspace.settings)
  return changed


def _check(step: step_lib.Step, seed: int, num_trials: int) -> None:
  """Profiles of a walk through the space are those of each place alone."""
  rng = random.Random(seed)
  for problem in problem_lib.problems(step):
    profiler = problem_lib.Predictor(step, problem)
    configuration = {key: step.default[key] for key in problem.keys}
    for _ in range(num_trials):
      profile = profiler(configuration)
      assert profile == problem_lib.profile(step, problem, configuration)
      total_us = sum(
        times * timeline.replay(program, step.costs(configuration)).step_time_us
        for program, times in problem.programs
      )
      assert profile.total_us == pytest.approx(total_us)
      configuration = _changed(step, problem.keys, configuration, rng)


@hypothesis.given(
  kernels_us=st.lists(
    st.sampled_from([5, 20, 60, 200]), min_size=1, max_size=8
  ),
  seed=st.integers(0, 2**32),
)
@hypothesis.settings(max_examples=25)
def test_replaying_a_change_is_replaying_all(kernels_us, seed):
  _check(_chain(kernels_us), seed, num_trials=6)


def test_replaying_a_change_is_replaying_all_of_real_steps(train_step_module):
  step = step_lib.of_module(train_step_module, H100)
  _check(step, seed=0, num_trials=6)


def _num_replays(step: step_lib.Step, changes: int) -> int:
  """Segments that a change of one key replays, at most."""
  (problem,) = problem_lib.problems(step)
  profiler = problem_lib.Predictor(step, problem)
  configuration = {key: step.default[key] for key in problem.keys}
  profiler(configuration)
  rng = random.Random(0)
  most = 0
  for key in rng.sample(problem.keys, changes):
    subspace = rng.choice(problem_lib.subspaces(key, H100))
    configuration = {**configuration, key: rng.choice(subspace.settings)}
    with mock.patch.object(
      timeline, "replay_segment", wraps=timeline.replay_segment
    ) as replay:
      profiler(configuration)
    most = max(most, replay.call_count)
  return most


@pytest.mark.parametrize("kernels_us", [5.0, 30.0, 200.0])
def test_a_change_is_replayed_where_it_is_whatever_the_length(kernels_us):
  short, long = _chain([kernels_us] * 16), _chain([kernels_us] * 128)
  assert 0 < _num_replays(long, 16) <= _num_replays(short, 16) + 2 < 16


def test_going_back_replays_nothing():
  step = _chain([30.0] * 4)
  (problem,) = problem_lib.problems(step)
  profiler = problem_lib.Predictor(step, problem)
  start = {key: step.default[key] for key in problem.keys}
  before = profiler(start)
  key = problem.keys[1]
  profiler({**start, key: problem_lib.subspaces(key, H100)[0].most})
  with mock.patch.object(timeline, "replay_segment") as replay:
    assert profiler(start) == before
  assert not replay.call_count


def test_the_first_replay_is_that_of_the_whole_program():
  step = _chain([30.0] * 3)
  (problem,) = problem_lib.problems(step)
  program = problem.programs[0][0]
  first = incremental.IncrementalReplay(
    program, key_of=step.key_of, costs_under=step.costs
  )
  first.replay(step.default, step.keys)
  whole = timeline.replay(program, step.costs(step.default))
  assert first.step_time_us == pytest.approx(whole.step_time_us)
  slowed_us = whole.kernel_us + whole.total_slowdown_us
  assert first.kernel_us == pytest.approx(slowed_us)
  for name, key in step.key_of.items():
    lost = first.lost(key)
    assert lost.exposed_us == pytest.approx(whole.exposed_us.get(name, 0.0))
    assert lost.delay_us == pytest.approx(whole.delay_us.get(name, 0.0))
    slowdown_us = sum(
      us for (_, beside), us in whole.slowdown_us.items() if beside == name
    )
    assert lost.slowdown_us == pytest.approx(slowdown_us)
