# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Laws that hold of every timeline, whatever the program."""

from __future__ import annotations

from hypothesis import given
from hypothesis import settings
from hypothesis import strategies as st
import pytest

from lagom_xla.costs.replay import program as program_lib
from lagom_xla.costs.replay import streams
from lagom_xla.costs.replay import timeline
import replay_parts
from replay_parts import collective
from replay_parts import copy
from replay_parts import kernel

Launch, Start, Wait = program_lib.Launch, program_lib.Start, program_lib.Wait
Loop, Branch = program_lib.Loop, program_lib.Branch
StartCopy, WaitCopy = program_lib.StartCopy, program_lib.WaitCopy


TWICE = replay_parts.slowing(lambda kernel_us, collective_us: 2.0)


def _replay(*program, costs: streams.Costs = TWICE) -> timeline.Timeline:
  return timeline.replay(program, costs)


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
# Neither commensurable nor equal for any two pairs.
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
def test_a_loop_is_its_iterations_one_after_the_other(program):
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
def test_step_time_is_kernels_and_slowdown_and_waits(program):
  replayed = timeline.replay(program, _UNEVEN)
  assert replayed.step_time_us == pytest.approx(
    replayed.kernel_us
    + replayed.total_slowdown_us
    + replayed.total_exposed_us
    + replayed.total_copy_slowdown_us
    + replayed.total_copy_wait_us
  )


@settings(deadline=None)
@given(with_branches)
def test_no_step_is_shorter_than_any_stream(program):
  replayed = timeline.replay(program, _UNEVEN)
  longest = max(replayed.kernel_us, replayed.collective_us)
  assert replayed.step_time_us >= longest * (1 - 1e-6)


def test_long_loops_are_not_replayed_trip_by_trip():
  launches = []
  costs = streams.Costs(
    kernel=lambda kernel: launches.append(kernel) or TWICE.kernel(kernel),
    collective=TWICE.collective,
    copy=TWICE.copy,
    beside=TWICE.beside,
  )
  c5, k10 = collective("c5"), kernel("k10")
  body = (Start(c5), Launch(k10), Wait(c5))
  replayed = _replay(Loop(body, 10**6), costs=costs)
  assert replayed.step_time_us == pytest.approx(12.5e6)
  assert len(launches) < 10
