# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Profiles, and what they say of a run: steps, kernels, collectives, ranks."""

from __future__ import annotations

from collections.abc import Sequence
import dataclasses
import statistics

import hypothesis
from hypothesis import strategies
import pytest

from lagom_xla.passes import hlo
from lagom_xla.profiling import overlaps as overlaps_lib
from lagom_xla.profiling import profile as profile_lib
import simulated_run
from traced_run import NUM_STEPS
from traced_run import SECOND_NS
from traced_run import lone_us
from traced_run import own_us
from traced_run import profile_of
from traced_run import run_of


@pytest.fixture(scope="module")
def profile(fsdp_scan: hlo.Module) -> profile_lib.Profile:
  """Eight ranks in one process, one of them 200 us late."""
  late_us = [0.0] * 8
  late_us[5] = 200.0
  return profile_of(fsdp_scan, run_of(fsdp_scan, late_us).steps(NUM_STEPS))


def test_the_module_comes_out_of_the_trace(
  fsdp_scan: hlo.Module, profile: profile_lib.Profile
):
  assert profile.analysis.module.proto == fsdp_scan.proto


def test_every_step_is_found_on_every_device(profile: profile_lib.Profile):
  found = sorted((step.device, step.number) for step in profile.whole_steps)
  assert found == [(d, n) for d in range(8) for n in range(NUM_STEPS)]


def test_every_run_of_a_loop_is_found(profile: profile_lib.Profile):
  assert profile.steps and profile.collectives
  for step in profile.steps:
    names = [event.name for event in step.collectives]
    for name, collective in profile.collectives.items():
      assert names.count(name) == collective.executions


def test_lone_kernels_take_their_lone_time(profile: profile_lib.Profile):
  assert profile.lone_us
  for name, times_us in profile.lone_us.items():
    # A picosecond is the trace's own resolution.
    assert times_us == pytest.approx([lone_us(name)] * len(times_us), abs=1e-3)


def test_covered_kernels_are_seen_slowed(profile: profile_lib.Profile):
  covered = [
    row
    for row in overlaps_lib.of_profile(profile).slowdowns
    if row.beside_us is not None and row.num_kernels == 1
  ]
  assert covered
  for row in covered:
    if row.kernel in profile.lone_us:
      expected = simulated_run.SLOWDOWN * lone_us(row.kernel)
      assert row.beside_us == pytest.approx(expected, rel=0.05)


def test_a_collectives_own_time_has_no_waiting(profile: profile_lib.Profile):
  assert all(i.has_all_ranks for i in profile.instances)
  for instance in profile.instances:
    assert instance.own_us == pytest.approx(own_us(instance.name), abs=1e-3)


def test_the_late_rank_is_named(profile: profile_lib.Profile):
  rows = overlaps_lib.of_profile(profile).devices
  assert max(rows, key=lambda row: row.late_us).name == "host GPU:5"
  assert max(rows, key=lambda row: row.late_us).late_us >= 200.0


def test_kernels_waits_and_gaps_make_the_step(profile: profile_lib.Profile):
  overlaps = overlaps_lib.of_profile(profile)
  parts_us = overlaps.kernel_us + overlaps.exposed_us + overlaps.gap_us
  spans_us = [s.end_us - s.begin_us for s in profile.whole_steps]
  assert parts_us == pytest.approx(statistics.mean(spans_us))


def test_waits_for_a_late_rank_are_told_from_the_networks(
  fsdp_scan: hlo.Module,
):
  def late_ranks_us(late_us: Sequence[float]) -> float:
    ranks = run_of(fsdp_scan, late_us).steps(NUM_STEPS)
    rows = overlaps_lib.of_profile(profile_of(fsdp_scan, ranks)).collectives
    return sum(row.late_ranks_us for row in rows)

  assert late_ranks_us([0.0] * 8) == pytest.approx(0.0, abs=1e-3)
  # Seven of eight wait for the last one, once a step; how much of that kernels
  # hide is the schedule's, and the same for both.
  late, later = (late_ranks_us([0.0] * 7 + [us]) for us in (1000.0, 1160.0))
  assert later - late == pytest.approx(160.0 * 7 / 8, rel=0.1)


def test_channels_are_the_grid_of_the_nccl_kernel(
  profile: profile_lib.Profile,
):
  assert set(profile.num_channels.values()) == {24}


def test_clocks_of_hosts_do_not_matter(fsdp_scan: hlo.Module):
  ranks = run_of(fsdp_scan, [0.0, 60.0]).steps(2)

  @hypothesis.settings(max_examples=5)
  @hypothesis.given(strategies.integers(min_value=0, max_value=SECOND_NS))
  def check(apart_ns: int) -> None:
    found = profile_of(fsdp_scan, ranks, [SECOND_NS, SECOND_NS + apart_ns])
    names = {c.name for c in found.analysis.collectives}
    assert len(found.instances) == sum(k.op in names for k in ranks[0])
    for instance in found.instances:
      assert instance.own_us == pytest.approx(own_us(instance.name), abs=1e-2)
    rows = overlaps_lib.of_profile(found).devices
    assert max(rows, key=lambda row: row.late_us).name == "host1 GPU:0"

  check()


def test_profiles_that_began_apart_are_put_together_by_their_clocks(
  fsdp_scan: hlo.Module,
):
  ranks = run_of(fsdp_scan, [0.0, 60.0]).steps(2)
  shifted = [
    dataclasses.replace(k, begin_us=k.begin_us + 3000.0) for k in ranks[1]
  ]
  start_ns = 1_770_000_000 * SECOND_NS
  found = profile_of(
    fsdp_scan, [ranks[0], shifted], [start_ns, start_ns - 3_000_000]
  )
  # Half a microsecond is what an epoch in float64 nanoseconds resolves.
  assert found.offsets_us == pytest.approx([0.0, 0.0], abs=0.5)


def test_a_device_that_lost_events_does_not_shift_the_others(
  fsdp_scan: hlo.Module,
):
  ranks = [list(r) for r in run_of(fsdp_scan, [0.0] * 8).steps(NUM_STEPS)]
  names = {c.name for c in profile_of(fsdp_scan, ranks).analysis.collectives}
  # In a loop, so that counting its occurrences would go wrong.
  repeated = next(
    k.op
    for k in ranks[0]
    if [x.op for x in ranks[0]].count(k.op) > 6 and k.op in names
  )
  ranks[0].remove(next(k for k in ranks[0] if k.op == repeated))
  found = profile_of(fsdp_scan, ranks)
  for instance in found.instances:
    ends_us = [run.end_us for run in instance.runs.values()]
    assert max(ends_us) - min(ends_us) == pytest.approx(0.0, abs=1e-3)
  incomplete = [i for i in found.instances if not i.has_all_ranks]
  assert [i.name for i in incomplete] == [repeated]


def test_a_step_that_was_cut_off_is_not_a_whole_one(fsdp_scan: hlo.Module):
  (ranks,) = run_of(fsdp_scan, [0.0]).steps(NUM_STEPS)
  found = profile_of(fsdp_scan, [ranks[len(ranks) // 6 :]])
  assert [step.is_whole for step in found.steps] == [False, True, True]


def test_several_kernels_of_an_instruction_are_one(fsdp_scan: hlo.Module):
  (ranks,) = run_of(fsdp_scan, [0.0]).steps(1)
  whole = profile_of(fsdp_scan, [ranks])
  halves = [
    dataclasses.replace(
      k, begin_us=k.begin_us + part * k.time_us / 2, time_us=k.time_us / 2
    )
    for k in ranks
    for part in range(2)
    if k.op in whole.kernels or part == 0
  ]
  halved = profile_of(fsdp_scan, [halves])
  assert halved.lone_us.keys() >= whole.lone_us.keys()
  for name, times_us in whole.lone_us.items():
    assert halved.lone_us[name] == pytest.approx(times_us, abs=1e-3)
