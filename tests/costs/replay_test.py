# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Replays of schedules, compared with examples computed by hand.

In these programs, kernel "k40" takes 40 us and collective "c50" 50 us, alone.
Beside any collective, a kernel takes twice its time; separate examples cover
the slowdown of collectives by kernels. A change replays few segments.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from hypothesis import given
from hypothesis import settings
from hypothesis import strategies as st
import pytest

import hlo_text
from lagom_xla import cluster as cluster_lib
from lagom_xla.costs import contention
from lagom_xla.costs import step as step_lib
from lagom_xla.costs.replay import program as program_lib
from lagom_xla.costs.replay import recorder
from lagom_xla.costs.replay import timeline
from lagom_xla.passes import collectives as collectives_lib
from lagom_xla.passes import hlo
from lagom_xla.passes import overlap as overlap_lib
import replay_parts
from replay_parts import collective
from replay_parts import copy
from replay_parts import kernel

Launch, Start, Wait = program_lib.Launch, program_lib.Start, program_lib.Wait
Loop, Branch = program_lib.Loop, program_lib.Branch
StartCopy, WaitCopy = program_lib.StartCopy, program_lib.WaitCopy


TWICE = replay_parts.slowing(lambda kernel_us, collective_us: 2.0)
H100 = cluster_lib.parse("1x8xh100")
BOTH_TWICE = replay_parts.slowing(lambda *_: 2.0, collective_factor=2.0)
LATE = replay_parts.slowing(lambda *_: 1.0, wait_us=15.0)


def _replay(*program, costs: timeline.Costs = TWICE) -> timeline.Timeline:
  return timeline.replay(program, costs)


# A kernel takes three times as long beside c30, twice beside other collectives.
UNEQUAL = replay_parts.slowing(
  lambda _, collective_us: 3.0 if collective_us == 30 else 2.0
)
ALONE = replay_parts.slowing(lambda *_: 1.0)


def _program(text: str) -> program_lib.Program:
  """Kernels by name, "+c30" a start and "-c30" its wait."""
  made: dict[str, Any] = {
    name: {"k": kernel, "c": collective, "h": copy}[name[0]](name)
    for name in {word.lstrip("+-") for word in text.split()}
  }
  make: dict[str, Any] = {
    "c+": Start,
    "c-": Wait,
    "h+": StartCopy,
    "h-": WaitCopy,
  }
  return tuple(
    make[word[1] + word[0]](made[word[1:]])
    if word[0] in "+-"
    else Launch(made[word])
    for word in text.split()
  )


@pytest.mark.parametrize(
  ("text", "costs", "step_us", "expected"),
  [
    # A hidden collective costs only its slowdown: 30 us at half speed do 15 of
    # the 40.
    ("+c30 k40 -c30", TWICE, 30 + 25, {"slowdown_us": {("k40", "c30"): 15}}),
    ("+c30 k40 -c30", TWICE, 55, {"kernel_us": 40, "collective_us": 30}),
    ("+c100 k40 -c100", TWICE, 100, {"exposed_us": {"c100": 20}}),
    ("+c100 k40 -c100", TWICE, 100, {"slowdown_us": {("k40", "c100"): 40}}),
    ("+c50 -c50 k40", TWICE, 90, {"exposed_us": {"c50": 50}}),
    ("+c50 -c50 k40", TWICE, 90, {"slowdown_us": {}}),
    # A kernel after the collective is not slowed.
    ("+c10 k40 k41 -c10", TWICE, 86, {"slowdown_us": {("k40", "c10"): 5}}),
    # Two in sequence: the kernel ends at 40, after 10 beside the second.
    ("+c30 +c50 k20 -c30 -c50", TWICE, 80, {"exposed_us": {"c50": 40}}),
    # Waiting for the second exposes the first, too.
    ("+c30 +c50 -c50 -c30", TWICE, 80, {"exposed_us": {"c30": 30, "c50": 50}}),
    # 30 us do 10 of 100, the next 40 do 20; 70 are left to run alone.
    (
      *("+c30 +c40 k100 -c30 -c40", UNEQUAL, 30 + 40 + 70),
      {"slowdown_us": {("k100", "c30"): 20, ("k100", "c40"): 20}},
    ),
    # In the kernel's 40 us 20 of 50 are done; 30 are left, at full pace.
    (
      *("+c50 k20 -c50", BOTH_TWICE, 40 + 30),
      {"exposed_us": {"c50": 30}, "delay_us": {"c50": 20}, "collective_us": 50},
    ),
    # A slowed collective slows the kernel for longer: 20 us do 10 of the 40.
    ("+c10 k40 -c10", BOTH_TWICE, 50, {"slowdown_us": {("k40", "c10"): 10}}),
    # A collective that begins during a kernel waits for SMs, from 30 to 45.
    (
      *("+c30 +c50 k100 -c30 -c50", LATE, 100),
      {"delay_us": {"c50": 15}, "exposed_us": {}},
    ),
    # SMs become free when the kernel ends, and between kernels.
    ("+c30 +c50 k40 -c30 -c50", LATE, 40 + 50, {"delay_us": {"c50": 10}}),
    ("k40 +c0 +c30 k40 -c30", LATE, 80, {"delay_us": {}}),
    # The step lasts until a collective without a wait ends.
    ("+c50 k20", TWICE, 50, {"exposed_us": {"c50": 10}}),
    ("+c0 k40 -c0", TWICE, 40, {"slowdown_us": {}}),
    # A wait without a start takes no time.
    ("-c50", TWICE, 0, {}),
    # Copies overlap kernels and collectives, and queue up.
    ("+h60 +c30 k40 -c30 -h60", ALONE, 60, {"copy_wait_us": {"h60": 20}}),
    ("+h30 +h20", TWICE, 50, {"copy_us": 50}),
    # A collective continues during a wait for a copy.
    ("+h60 +c50 -h60 -c50", TWICE, 60, {"total_exposed_us": 0}),
    # Twice as slow for 30 us, in which 15 us of the kernel's work are done.
    ("+h30 k40 -h30", TWICE, 55, {"copy_slowdown_us": {"h30": 15}}),
  ],
)
def test_short_programs_replay_as_computed_by_hand(
  text, costs, step_us, expected
):
  replayed = _replay(*_program(text), costs=costs)
  assert replayed.step_time_us == pytest.approx(step_us)
  for field, figure in expected.items():
    assert getattr(replayed, field) == pytest.approx(figure)


# Streams of communication.


def _on_two_streams(
  *words: str, costs: timeline.Costs = TWICE
) -> timeline.Timeline:
  """Like `_program`; names with a dot have their own stream."""
  made: dict[str, collectives_lib.Collective] = {}
  parts: list[program_lib.Part] = []
  for word in words:
    name = word.lstrip("+-")
    stream = collectives_lib.SCALE_UP if "." in name else None
    if name[0] == "k":
      parts.append(Launch(kernel(name)))
      continue
    if name not in made:
      made[name] = collective(name, stream or collectives_lib.COMMUNICATION)
    parts.append((Start if word[0] == "+" else Wait)(made[name]))
  return timeline.replay(tuple(parts), costs)


def test_collectives_on_two_streams_run_concurrently():
  replayed = _on_two_streams("+c50", "+c30.0", "-c30.0", "-c50")
  assert replayed.exposed_us == {"c30.0": 30, "c50": 20}
  assert replayed.collective_us == 80


def test_a_wait_for_one_stream_does_not_wait_for_the_other():
  replayed = _on_two_streams("+c90", "+c30.0", "-c30.0", "k10", "-c90")
  # The kernel loses 10 us beside c90, which continues.
  assert replayed.exposed_us == {"c30.0": 30, "c90": 40}
  assert replayed.step_time_us == 90


def test_collectives_that_share_a_link_take_as_long_as_in_sequence():
  costs = dataclasses.replace(
    TWICE,
    together=lambda found: contention.Together(
      cost=found[0], factors=(float(len(found)),) * len(found)
    ),
  )
  replayed = _on_two_streams("+c50", "+c30.0", "-c30.0", "-c50", costs=costs)
  assert replayed.exposed_us == {"c30.0": 60, "c50": 20}


def test_a_kernel_is_slowed_by_the_channels_of_both_collectives():
  def beside(k, moving):
    return contention.Beside(
      kernel_us=k.time_us * (1 + moving.num_channels / 4),
      collective_factor=1.0,
      wait_us=0.0,
    )

  costs = dataclasses.replace(
    replay_parts.costs_by_name(beside),
    together=lambda found: contention.together(found, H100.gpu),
  )
  replayed = _on_two_streams(
    "+c60", "+c60.0", "k20", "-c60", "-c60.0", costs=costs
  )
  assert replayed.step_time_us == 60
  assert replayed.slowdown_us == {("k20", "c60"): 20, ("k20", "c60.0"): 20}


def test_a_synchronous_collective_does_not_wait_for_other_streams():
  module = hlo_text.load(f"""
  p = f32[256,256] parameter(0)
{hlo_text.all_gather("long", 2**28)[0]}
{hlo_text.kernel("k", 1.0)}
  short = f32[2048,256] all-gather(p), dimensions={{0}}
{hlo_text.kernel("after", 1.0)}
{hlo_text.all_gather("long", 2**28)[1]}
  ROOT result = (f32[2048,256]) tuple(short)
""")
  step = step_lib.of_module(module, H100)
  key, replayed = step.key_of["short"], step.timeline(step.default)
  lone_us = step.predict(key, step.default[key]).time_us
  # Both are on one fabric, so each gets at least half of it.
  assert lone_us < replayed.exposed_us["short"] <= 2 * lone_us + 1e-6


several_streams = replay_parts.programs(
  streams=(collectives_lib.COMMUNICATION, collectives_lib.SCALE_UP)
)


@given(program=several_streams)
def test_a_second_stream_never_costs_time_where_nothing_is_shared(program):
  one = timeline.replay(_on_one_stream(program), ALONE)
  two = timeline.replay(program, ALONE)
  assert two.step_time_us <= one.step_time_us * (1 + 1e-9)
  assert two.collective_us == pytest.approx(one.collective_us)


def _on_one_stream(program: program_lib.Program) -> program_lib.Program:
  moved: dict[str, collectives_lib.Collective] = {}

  def of(found: collectives_lib.Collective) -> collectives_lib.Collective:
    one = dataclasses.replace(found, stream=collectives_lib.COMMUNICATION)
    return moved.setdefault(found.name, one)

  def of_part(part: program_lib.Part) -> program_lib.Part:
    match part:
      case Start(found):
        return Start(of(found))
      case Wait(found):
        return Wait(of(found))
      case Loop(body, num_trips):
        return Loop(tuple(map(of_part, body)), num_trips)
    return part

  return tuple(map(of_part, program))


def test_a_conditional_takes_its_slowest_branch():
  branches = _program("k40"), _program("k10 +c50 -c50"), ()
  replayed = _replay(Branch(branches))
  assert replayed.step_time_us == pytest.approx(60)
  assert replayed.kernel_us == 10


def test_a_collective_can_span_several_iterations_of_a_loop():
  c70 = collective("c70")
  # At half speed three iterations cover 60 of 70; the fourth is free halfway.
  replayed = _replay(Start(c70), Loop(_program("k10"), 5), Wait(c70))
  assert replayed.step_time_us == pytest.approx(70 + 50 - 35)
  assert replayed.slowdown_us == pytest.approx({("k10", "c70"): 35})


def _unrolled(program: program_lib.Program) -> program_lib.Program:
  parts: list = []
  for part in program:
    match part:
      case Loop(body, num_trips):
        parts.extend(_unrolled(body) * num_trips)
      case _:
        parts.append(part)
  return tuple(parts)


_KERNELS = [kernel(f"k{time_us}") for time_us in (0, 1, 7, 20, 300)]
_COLLECTIVES = [collective(f"c{time_us}") for time_us in (0, 3, 11, 50, 170)]
# Slowdowns are neither commensurable nor equal for any two pairs.
_UNEVEN = replay_parts.slowing(
  lambda kernel_us, collective_us: (
    1.0 + (kernel_us % 3) / 7 + (collective_us % 5) / 11
  ),
  collective_factor=1.3,
  wait_us=2.5,
)

_COPIES = [
  copy(f"h{time_us}", stream)
  for time_us, stream in ((0, "a"), (4, "a"), (60, "a"), (13, "b"))
]

_simple_parts = st.one_of(
  st.sampled_from([StartCopy(copy) for copy in _COPIES]),
  st.sampled_from([WaitCopy(copy) for copy in _COPIES]),
  st.sampled_from([Launch(kernel) for kernel in _KERNELS]),
  st.sampled_from([Start(collective) for collective in _COLLECTIVES]),
  st.sampled_from([Wait(collective) for collective in _COLLECTIVES]),
)
_parts = st.recursive(
  _simple_parts,
  lambda parts: st.builds(
    Loop, st.lists(parts, max_size=5).map(tuple), st.integers(0, 6)
  ),
  max_leaves=8,
)
programs = st.lists(_parts, max_size=8).map(tuple)
with_branches = st.lists(
  st.one_of(
    _parts, st.builds(Branch, st.lists(programs, max_size=3).map(tuple))
  ),
  max_size=8,
).map(tuple)


@settings(deadline=None)
@given(programs)
def test_a_loop_costs_as_much_as_its_unrolled_iterations(program):
  replayed = timeline.replay(program, _UNEVEN)
  unrolled = timeline.replay(_unrolled(program), _UNEVEN)
  near = {"rel": 1e-6, "abs": 1e-6}
  assert replayed.step_time_us == pytest.approx(unrolled.step_time_us, **near)
  assert replayed.kernel_us == pytest.approx(unrolled.kernel_us, **near)
  assert replayed.collective_us == pytest.approx(unrolled.collective_us, **near)
  assert replayed.copy_us == pytest.approx(unrolled.copy_us, **near)
  for field in (
    *("exposed_us", "slowdown_us", "delay_us"),
    *("copy_wait_us", "copy_slowdown_us"),
  ):
    looped, flat = getattr(replayed, field), getattr(unrolled, field)
    for name in looped.keys() | flat.keys():
      assert looped.get(name, 0) == pytest.approx(flat.get(name, 0), **near)


@settings(deadline=None)
@given(with_branches)
def test_step_time_is_the_sum_of_kernels_slowdowns_and_waits(program):
  replayed = timeline.replay(program, _UNEVEN)
  assert replayed.step_time_us == pytest.approx(
    replayed.kernel_us
    + replayed.total_slowdown_us
    + replayed.total_exposed_us
    + replayed.total_copy_slowdown_us
    + replayed.total_copy_wait_us
  )
  longest = max(replayed.kernel_us, replayed.collective_us)
  assert replayed.step_time_us >= longest * (1 - 1e-6)


def test_long_loops_are_not_replayed_trip_by_trip():
  launches = []
  costs = timeline.Costs(
    kernel=lambda kernel: launches.append(kernel) or TWICE.kernel(kernel),
    collective=TWICE.collective,
    copy=TWICE.copy,
    beside=TWICE.beside,
    together=TWICE.together,
  )
  replayed = _replay(Loop(_program("+c5 k10 -c5"), 10**6), costs=costs)
  assert replayed.step_time_us == pytest.approx(12.5e6)
  assert len(launches) < 10


_COSTS = st.builds(
  replay_parts.costs,
  slowdown=st.sampled_from([1.0, 1.3, 2.0]),
  collective_factor=st.sampled_from([1.0, 1.5]),
  wait_us=st.sampled_from([0.0, 7.0]),
)


def _of_compute(recorded: recorder.Recording) -> list[recorder.Slice]:
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
  assert sum(s.wait_us for s in compute) == pytest.approx(
    replayed.total_exposed_us + replayed.total_copy_wait_us, abs=1e-6
  )
  lost_us = sum(us for s in compute for _, us in s.lost_us)
  assert lost_us == pytest.approx(
    replayed.total_slowdown_us + replayed.total_copy_slowdown_us, abs=1e-6
  )


@given(program=replay_parts.programs() | several_streams, costs=_COSTS)
def test_a_recordings_slices_add_up_to_the_times_of_the_replay(program, costs):
  recorded = recorder.record(program, costs)
  replayed = timeline.replay(program, costs)
  assert recorded.step_time_us == replayed.step_time_us
  _check_sums(recorded, replayed)


@given(program=replay_parts.programs() | several_streams, costs=_COSTS)
def test_slices_on_a_stream_neither_overlap_nor_precede_their_issue(
  program, costs
):
  recorded = recorder.record(program, costs)
  end_us = dict.fromkeys(recorded.streams, 0.0)
  for ran in recorded.slices:
    assert end_us[ran.stream] - 1e-6 <= ran.begin_us <= ran.end_us
    end_us[ran.stream] = ran.end_us
    if ran.kind in ("collective", "copy"):
      assert ran.issued_us <= ran.begin_us + 1e-6
      assert ran.end_us <= ran.done_us + 1e-6
  assert max(end_us.values()) <= recorded.step_time_us + 1e-6


def test_identical_trips_of_a_loop_are_folded_into_one_slice():
  loop = Loop(_program("+c50 k10 -c50"), 100)
  recorded = recorder.record((loop,), replay_parts.costs())
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


def test_a_kernel_slice_lists_overlapping_collectives_and_their_cost():
  program = _program("+c30 +c8 k40")
  ran, *_ = _of_compute(recorder.record(program, replay_parts.costs()))
  # Beside either collective the kernel takes twice its time and loses half of
  # theirs.
  assert dict(ran.lost_us) == pytest.approx({"c30": 15.0, "c8": 4.0})
  assert ran.time_us == pytest.approx(40 + 15 + 4)


def test_a_compiled_steps_recording_agrees_with_its_replay(train_step_module):
  step = step_lib.of_module(train_step_module, cluster_lib.parse("1x8xh100"))
  recorded = recorder.record(step.program, step.costs(step.default))
  _check_sums(recorded, step.timeline(step.default))
  names = {s.name for s in recorded.slices if s.kind == "collective"}
  assert names == {c.name for c in step.analysis.collectives}


# One all-gather beside a product, a plain all-reduce after it; then a loop of
# four trips with an all-gather of its own.
_TEXT = hlo_text.text(
  f"""
  p = f32[64,64] parameter(0)
  outer-start = (f32[64,64], f32[512,64]) all-gather-start(p), {hlo_text.GATHER}
  outer-dot = f32[64,64] dot(p, p), {hlo_text.DOT}
  outer-done = f32[512,64] all-gather-done(outer-start)
  plain = f32[64,64] all-reduce(outer-dot), {hlo_text.ALL}, to_apply=add
  zero = s32[] constant(0)
  start = (s32[], f32[64,64]) tuple(zero, plain)
  ROOT loop = (s32[], f32[64,64]) while(start), condition=condition, body=body,
    {hlo_text.trips(4)}
""",
  computations=f"""
body {{
  carry = (s32[], f32[64,64]) parameter(0)
  i = s32[] get-tuple-element(carry), index=0
  a = f32[64,64] get-tuple-element(carry), index=1
  inner-start = (f32[64,64], f32[512,64]) all-gather-start(a), {hlo_text.GATHER}
  inner-dot = f32[64,64] dot(a, a), {hlo_text.DOT}
  inner-done = f32[512,64] all-gather-done(inner-start)
  one = s32[] constant(1)
  next = s32[] add(i, one)
  ROOT out = (s32[], f32[64,64]) tuple(next, inner-dot)
}}

condition {{
  carry = (s32[], f32[64,64]) parameter(0)
  i = s32[] get-tuple-element(carry), index=0
  n = s32[] constant(4)
  ROOT less = pred[] compare(i, n), direction=LT
}}
""",
)
_MODULE = hlo.load(_TEXT)


def _spelled(program: program_lib.Program) -> list:
  spelled: list = []
  for part in program:
    match part:
      case Launch(kernel):
        spelled.append(kernel.name)
      case Start(collective):
        spelled.append(f"start {collective.name}")
      case Wait(collective):
        spelled.append(f"wait {collective.name}")
      case Loop(body, num_trips):
        spelled.append((num_trips, _spelled(body)))
  return spelled


def test_a_program_is_the_schedule_of_its_module():
  analysis = overlap_lib.analyze(_MODULE)
  assert _spelled(program_lib.of_module(analysis)) == [
    "start outer-start",
    "outer-dot",
    "wait outer-start",
    "start plain",
    "wait plain",
    (4, ["start inner-start", "inner-dot", "wait inner-start", "next"]),
  ]


def test_a_loop_without_a_trip_count_runs_its_condition_every_trip():
  uncounted = _TEXT.replace(hlo_text.trips(4), "metadata={}")
  analysis = overlap_lib.analyze(hlo.load(uncounted))
  *_, loop, last = _spelled(program_lib.of_module(analysis))
  assert (loop[0], loop[1][0], last) == (4, "less", "less")


def test_an_overlaps_program_runs_from_its_start_to_its_done():
  analysis = overlap_lib.analyze(_MODULE)
  programs_ = [
    _spelled(program_lib.of_overlap(analysis, overlap))
    for overlap in analysis.overlaps
  ]
  assert programs_ == [
    ["start outer-start", "outer-dot", "wait outer-start"],
    ["start inner-start", "inner-dot", "wait inner-start"],
  ]
