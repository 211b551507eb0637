# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Recordings of replays: what ran when, against the timeline of the same."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
import pytest

from lagom_xla import cluster as cluster_lib
from lagom_xla.costs import step as step_lib
from lagom_xla.costs.replay import program as program_lib
from lagom_xla.costs.replay import recorder
from lagom_xla.costs.replay import streams
from lagom_xla.costs.replay import timeline
from lagom_xla.passes import hlo
import replay_parts

_COSTS = st.builds(
  replay_parts.costs,
  slowdown=st.sampled_from([1.0, 1.3, 2.0]),
  collective_factor=st.sampled_from([1.0, 1.5]),
  wait_us=st.sampled_from([0.0, 7.0]),
)


def _of_compute(
  recorded: recorder.Recording,
) -> list[recorder.Slice]:
  return [s for s in recorded.slices if s.stream == recorder.COMPUTE]


def _check_sums(
  recorded: recorder.Recording, replayed: timeline.Timeline
) -> None:
  compute = _of_compute(recorded)
  assert sum(s.time_us for s in compute) == pytest.approx(
    replayed.step_time_us, abs=1e-6
  )
  assert sum(
    s.lone_us for s in compute if s.kind in ("kernel", "folded")
  ) == pytest.approx(replayed.kernel_us, abs=1e-6)
  waits_us = sum(s.time_us for s in compute if s.kind == "wait")
  assert waits_us + sum(s.wait_us for s in compute) == pytest.approx(
    replayed.total_exposed_us + replayed.total_copy_wait_us, abs=1e-6
  )
  lost_us = sum(us for s in compute for _, us in s.lost_us)
  assert lost_us == pytest.approx(
    replayed.total_slowdown_us + replayed.total_copy_slowdown_us, abs=1e-6
  )


@given(program=replay_parts.programs(), costs=_COSTS)
def test_a_recording_is_as_long_as_the_timeline_and_loses_as_much(
  program: program_lib.Program, costs: streams.Costs
) -> None:
  recorded = recorder.record(program, costs)
  replayed = timeline.replay(program, costs)
  assert recorded.step_time_us == replayed.step_time_us
  _check_sums(recorded, replayed)


@given(program=replay_parts.programs(), costs=_COSTS)
def test_slices_of_one_stream_follow_each_other(
  program: program_lib.Program, costs: streams.Costs
) -> None:
  recorded = recorder.record(program, costs)
  for stream in recorded.streams:
    end_us = 0.0
    for ran in recorded.slices:
      if ran.stream == stream:
        assert end_us - 1e-6 <= ran.begin_us <= ran.end_us
        end_us = ran.end_us
    assert end_us <= recorded.step_time_us + 1e-6


@given(program=replay_parts.programs(), costs=_COSTS)
def test_a_collective_is_issued_before_it_runs_and_done_after(
  program: program_lib.Program, costs: streams.Costs
) -> None:
  recorded = recorder.record(program, costs)
  for ran in recorded.slices:
    if ran.kind in ("collective", "copy"):
      assert ran.issued_us <= ran.begin_us + 1e-6
      assert ran.end_us <= ran.done_us + 1e-6


def test_the_trips_of_a_loop_that_are_alike_are_one_slice() -> None:
  c50 = replay_parts.collective("c50")
  body = (
    program_lib.Start(c50),
    program_lib.Launch(replay_parts.kernel("k10")),
    program_lib.Wait(c50),
  )
  recorded = recorder.record(
    (program_lib.Loop(body, 100),), replay_parts.costs()
  )
  # The first two trips start alike, so the second stands for the rest: a kernel
  # of 20 us beside the collective, and 30 us of waiting.
  compute = _of_compute(recorded)
  assert [(s.kind, s.time_us) for s in compute] == [
    ("kernel", 20.0),
    ("wait", 30.0),
    ("kernel", 20.0),
    ("wait", 30.0),
    ("folded", 98 * 50.0),
  ]
  moving = [s for s in recorded.slices if s.stream != recorder.COMPUTE]
  assert [(s.kind, s.time_us) for s in moving] == [
    ("collective", 50.0),
    ("collective", 50.0),
    ("folded", 98 * 50.0),
  ]
  fold = compute[-1]
  assert fold.num_trips == 98
  assert fold.lone_us == pytest.approx(98 * 10)
  assert fold.wait_us == pytest.approx(98 * 30)
  assert dict(fold.lost_us)["collectives"] == pytest.approx(98 * 10)


def test_a_kernel_names_what_it_ran_beside_and_what_that_cost() -> None:
  program = (
    program_lib.Start(replay_parts.collective("c30")),
    program_lib.Start(replay_parts.collective("c8")),
    program_lib.Launch(replay_parts.kernel("k40")),
  )
  kernel, *_ = _of_compute(recorder.record(program, replay_parts.costs()))
  # Beside either the kernel takes twice its time: half of theirs is lost.
  assert dict(kernel.lost_us) == pytest.approx({"c30": 15.0, "c8": 4.0})
  assert kernel.time_us == pytest.approx(40 + 15 + 4)


def test_a_compiled_step_is_recorded_as_it_is_replayed(
  train_step_module: hlo.Module,
) -> None:
  step = step_lib.of_module(train_step_module, cluster_lib.parse("1x8xh100"))
  recorded = recorder.record(step.program, step.costs(step.default))
  _check_sums(recorded, step.timeline(step.default))
  names = {s.name for s in recorded.slices if s.kind == "collective"}
  assert names == {c.name for c in step.analysis.collectives}
