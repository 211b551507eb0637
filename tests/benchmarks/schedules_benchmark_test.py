# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Schedules that are made quickly are predicted as XLA's own."""

from __future__ import annotations

import itertools
import pathlib

import pytest

from benchmarks import schedules
import commands
from lagom_xla import cluster as cluster_lib
from lagom_xla.compile import load


@pytest.mark.parametrize("way", [schedules.fused, schedules.left_out])
def test_a_quick_schedule_is_predicted_as_xlas_own(
  tmp_path: pathlib.Path, h100s: object, way
) -> None:
  del h100s  # Only says whether there is anything to compile with.
  target = load.load(
    commands.write_steps(tmp_path), cluster_lib.parse("1x8xh100")
  )
  rows = list(itertools.islice(way(target), 3))
  assert len(rows) >= 2
  assert all(abs(row["excess"]) < 0.01 for row in rows)
