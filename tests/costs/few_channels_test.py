# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Fewer channels than NCCL gives, on clusters that no channel was fitted to."""

from __future__ import annotations

import pathlib

import pytest

from benchmarks import groups
from benchmarks.collectives import channel_rows
from benchmarks.collectives import nccl_sweeps

_DATA = pathlib.Path(__file__).resolve().parents[3] / "shared/data/nccl_tests"


@pytest.fixture(scope="module")
def found() -> dict[str, groups.Group]:
  return {group.name: group for group in channel_rows.compare()}


@pytest.mark.parametrize("algorithm", ["ring", "tree"])
@pytest.mark.parametrize("protocol", ["ll", "ll128", "simple"])
def test_what_channels_bound_takes_as_long_as_measured(
  found: dict[str, groups.Group], algorithm: str, protocol: str
):
  # LL128 of rings and trees took 1.8 and 2.9 times as long when the rate of a
  # channel was NCCL's own cap.
  group = found[f"few channels: {algorithm}.{protocol}"]
  assert group.n >= 20
  assert group.median < 0.16
  assert group.p90 < 0.19


def test_rows_that_fix_a_channels_rate_judge_none():
  rates = channel_rows.channels_gbps()
  assert set(rates) == {"h100", "b200"}
  judged = [
    c.what for group in channel_rows.compare() for c in group.comparisons
  ]
  assert judged
  assert all(what.startswith(("8xp5en", "16xp5en")) for what in judged)


def test_only_rows_with_twice_their_channels_can_show_what_bounds_them():
  rows = channel_rows.read()
  most = max(row.num_channels for row in rows)
  bound = channel_rows.bound_by_channels(rows)
  assert bound
  assert all(row.num_channels < most for row in bound)
  rates = [row.channel_gbps for row in bound if row.path == "ring.simple"]
  assert 27 < min(rates) < max(rates) < 30


@pytest.mark.skipif(not _DATA.is_dir(), reason=f"{_DATA} is not here")
def test_one_channel_through_the_switch_takes_as_long_as_measured():
  # No row of NVLS is fitted: its channel copies what a permute's does.
  (group,) = (
    g for g in nccl_sweeps.compare(_DATA) if g.name == "sweeps: one channel"
  )
  through_switch = [c for c in group.comparisons if " 1 MiB" not in c.what]
  through_switch = [c for c in through_switch if " 2 MiB" not in c.what]
  assert len(through_switch) == 6
  assert max(c.error for c in through_switch) < 0.09
