# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""The benchmark of what tuning takes: its steps, its runs, what it prints."""

from __future__ import annotations

import time

import jax
import pytest

from benchmarks.overhead import __main__ as command
from lagom_xla.apply.nccl import build

try:
  build.compiler()
  _HAS_COMPILER = True
except build.BuildError:
  _HAS_COMPILER = False

needs_compiler = pytest.mark.skipif(
  not _HAS_COMPILER, reason="no cc compiles a custom call: apt-get install gcc"
)
_DEVICE_S = 0.2


@needs_compiler
def test_a_step_on_a_device_takes_its_time_and_neither_a_core_nor_the_host():
  step = command.on_device(1e3 * _DEVICE_S)
  jitted = step.jitted()
  weights = jax.block_until_ready(jitted(step.weights, step.batch))
  begin_s, used_s = time.monotonic(), time.process_time()
  for _ in range(3):
    weights = jitted(weights, step.batch)
  # Three were dispatched, and not three are done: the last ones cannot be.
  is_done = all(it.is_ready() for it in weights)
  assert not is_done
  jax.block_until_ready(weights)
  assert time.monotonic() - begin_s >= 3 * _DEVICE_S
  # Each device would need that much, if it worked.
  assert time.process_time() - used_s < 3 * _DEVICE_S


def test_a_row_has_intervals_around_its_means():
  row = command.measure(command.on_cores(8), num_steps=12, num_pairs=2)
  assert (row["step"], row["steps"]) == ("8 rows", 12)
  for what in ("wall", "cpu", "thread"):
    assert row[f"{what}_low"] <= row[f"{what}_steps"] <= row[f"{what}_high"]
  assert "told_steps" not in row  # They end in the baseline.
