# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Replays of schedules, against examples worked out by hand.

In these programs kernel "k40" takes 40 us and collective "c50" 50 us, alone.
Beside any collective, a kernel takes twice its time; what collectives lose to
kernels is in examples of its own.
"""

from __future__ import annotations

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
BOTH_TWICE = replay_parts.slowing(lambda *_: 2.0, collective_factor=2.0)
LATE = replay_parts.slowing(lambda *_: 1.0, wait_us=15.0)


def _replay(*program, costs: streams.Costs = TWICE) -> timeline.Timeline:
  return timeline.replay(program, costs)


def test_a_hidden_collective_costs_only_what_it_slows():
  c30, k40 = collective("c30"), kernel("k40")
  # 30 us at half speed do 15 of the kernel's 40; 25 are left.
  replayed = _replay(Start(c30), Launch(k40), Wait(c30))
  assert replayed.step_time_us == pytest.approx(30 + 25)
  assert replayed.exposed_us == {}
  assert replayed.slowdown_us == pytest.approx({("k40", "c30"): 15})
  assert replayed.kernel_us == 40
  assert replayed.collective_us == 30


def test_a_partially_hidden_collective_is_waited_for():
  c100, k40 = collective("c100"), kernel("k40")
  replayed = _replay(Start(c100), Launch(k40), Wait(c100))
  assert replayed.step_time_us == pytest.approx(100)
  assert replayed.exposed_us == pytest.approx({"c100": 20})
  assert replayed.slowdown_us == pytest.approx({("k40", "c100"): 40})


def test_a_collective_beside_nothing_is_exposed():
  c50, k40 = collective("c50"), kernel("k40")
  replayed = _replay(Start(c50), Wait(c50), Launch(k40))
  assert replayed.step_time_us == pytest.approx(90)
  assert replayed.exposed_us == {"c50": 50}
  assert replayed.slowdown_us == {}


def test_a_kernel_after_the_collective_is_not_slowed():
  c10, k40, k41 = collective("c10"), kernel("k40"), kernel("k41")
  replayed = _replay(Start(c10), Launch(k40), Launch(k41), Wait(c10))
  assert replayed.slowdown_us == pytest.approx({("k40", "c10"): 5})
  assert replayed.step_time_us == pytest.approx(40 + 41 + 5)


def test_two_collectives_run_one_after_the_other():
  c30, c50, k20 = collective("c30"), collective("c50"), kernel("k20")
  replayed = _replay(Start(c30), Start(c50), Launch(k20), Wait(c30), Wait(c50))
  # The kernel is done at 40: 30 beside the first, 10 beside the second.
  assert replayed.step_time_us == pytest.approx(80)
  assert replayed.exposed_us == pytest.approx({"c50": 40})


def test_waiting_for_the_second_exposes_the_first_too():
  c30, c50 = collective("c30"), collective("c50")
  replayed = _replay(Start(c30), Start(c50), Wait(c50), Wait(c30))
  assert replayed.exposed_us == {"c30": 30, "c50": 50}


def test_a_kernel_is_split_over_the_collectives_that_it_meets():
  c30, c40, k100 = collective("c30"), collective("c40"), kernel("k100")
  # Three times as slow beside the first, twice beside the second.
  costs = replay_parts.slowing(
    lambda _, collective_us: 3.0 if collective_us == 30 else 2.0
  )
  replayed = _replay(
    Start(c30), Start(c40), Launch(k100), Wait(c30), Wait(c40), costs=costs
  )
  # 30 us do 10 of 100, the next 40 do 20; 70 are left to run alone.
  assert replayed.step_time_us == pytest.approx(30 + 40 + 70)
  assert replayed.slowdown_us == pytest.approx(
    {("k100", "c30"): 20, ("k100", "c40"): 20}
  )


def test_kernels_slow_a_collective_that_they_run_beside():
  c50, k20 = collective("c50"), kernel("k20")
  replayed = _replay(Start(c50), Launch(k20), Wait(c50), costs=BOTH_TWICE)
  # In the kernel's 40 us 20 of 50 are done; 30 are left, at full pace.
  assert replayed.step_time_us == pytest.approx(40 + 30)
  assert replayed.exposed_us == pytest.approx({"c50": 30})
  assert replayed.delay_us == pytest.approx({"c50": 20})
  assert replayed.collective_us == 50


def test_a_collective_that_is_slowed_slows_a_kernel_for_longer():
  c10, k40 = collective("c10"), kernel("k40")
  replayed = _replay(Start(c10), Launch(k40), Wait(c10), costs=BOTH_TWICE)
  # 20 us side by side do 10 of the kernel's 40.
  assert replayed.slowdown_us == pytest.approx({("k40", "c10"): 10})
  assert replayed.step_time_us == pytest.approx(20 + 30)


def test_a_collective_whose_turn_comes_inside_a_kernel_waits_for_sms():
  c30, c50, k100 = collective("c30"), collective("c50"), kernel("k100")
  replayed = _replay(
    Start(c30), Start(c50), Launch(k100), Wait(c30), Wait(c50), costs=LATE
  )
  # The second starts at 45 and ends at 95.
  assert replayed.step_time_us == pytest.approx(100)
  assert replayed.delay_us == pytest.approx({"c50": 15})
  assert replayed.exposed_us == {}


def test_sms_come_free_when_the_kernel_ends():
  c30, c50, k40 = collective("c30"), collective("c50"), kernel("k40")
  replayed = _replay(
    Start(c30), Start(c50), Launch(k40), Wait(c30), Wait(c50), costs=LATE
  )
  assert replayed.delay_us == pytest.approx({"c50": 10})
  assert replayed.step_time_us == pytest.approx(40 + 50)


def test_a_collective_that_starts_between_kernels_does_not_wait():
  c30, c0, k40 = collective("c30"), collective("c0"), kernel("k40")
  replayed = _replay(
    Launch(k40), Start(c0), Start(c30), Launch(k40), Wait(c30), costs=LATE
  )
  assert replayed.delay_us == {}


def test_a_collective_that_nobody_waits_for_ends_with_the_step():
  c50, k20 = collective("c50"), kernel("k20")
  replayed = _replay(Start(c50), Launch(k20))
  assert replayed.step_time_us == pytest.approx(50)
  assert replayed.exposed_us == pytest.approx({"c50": 10})


def test_a_collective_of_no_time_leaves_no_trace():
  c0, k40 = collective("c0"), kernel("k40")
  replayed = _replay(Start(c0), Launch(k40), Wait(c0))
  assert replayed.step_time_us == 40
  assert replayed.slowdown_us == {}


def test_a_wait_for_what_was_never_started_passes():
  assert _replay(Wait(collective("c50"))).step_time_us == 0


def test_the_slowest_branch_counts():
  k40, k10, c50 = kernel("k40"), kernel("k10"), collective("c50")
  slow = (Launch(k10), Start(c50), Wait(c50))
  replayed = _replay(Branch(((Launch(k40),), slow, ())))
  assert replayed.step_time_us == pytest.approx(60)
  assert replayed.kernel_us == 10


def test_a_conditional_without_branches_takes_no_time():
  assert _replay(Branch(())).step_time_us == 0


def test_a_collective_can_outlive_iterations_of_a_loop():
  c70, k10 = collective("c70"), kernel("k10")
  # At half speed three iterations cover 60 of 70; the fourth is free halfway.
  replayed = _replay(Start(c70), Loop((Launch(k10),), 5), Wait(c70))
  assert replayed.step_time_us == pytest.approx(70 + 50 - 35)
  assert replayed.slowdown_us == pytest.approx({("k10", "c70"): 35})


def test_a_loop_of_no_trips_takes_no_time():
  assert _replay(Loop((Launch(kernel("k10")),), 0)).step_time_us == 0


def test_a_host_copy_goes_on_beside_kernels_and_collectives():
  h60, c30, k40 = copy("h60"), collective("c30"), kernel("k40")
  lone = replay_parts.slowing(lambda *_: 1.0)
  replayed = _replay(
    StartCopy(h60), Start(c30), Launch(k40), Wait(c30), WaitCopy(h60),
    costs=lone,
  )  # fmt: skip
  assert replayed.step_time_us == pytest.approx(60)
  assert replayed.copy_wait_us == pytest.approx({"h60": 20})
  assert replayed.total_exposed_us == 0


def test_copies_of_a_stream_queue_up_and_others_do_not():
  first, second = copy("h30"), copy("h20")
  other = copy("h45", "to device")
  starts = StartCopy(first), StartCopy(second), StartCopy(other)
  assert _replay(*starts, WaitCopy(other)).step_time_us == pytest.approx(50)
  assert _replay(*starts[:2]).copy_us == pytest.approx(50)


def test_a_collective_goes_on_while_a_host_copy_is_awaited():
  h60, c50 = copy("h60"), collective("c50")
  replayed = _replay(StartCopy(h60), Start(c50), WaitCopy(h60), Wait(c50))
  assert replayed.step_time_us == pytest.approx(60)
  assert replayed.total_exposed_us == 0


def test_a_kernel_loses_to_a_host_copy_for_as_long_as_it_runs():
  h30, k40 = copy("h30"), kernel("k40")
  replayed = _replay(StartCopy(h30), Launch(k40), WaitCopy(h30))
  # Twice as slow for 30 us, in which 15 us of its work are done.
  assert replayed.step_time_us == pytest.approx(55)
  assert replayed.copy_slowdown_us == pytest.approx({"h30": 15})
