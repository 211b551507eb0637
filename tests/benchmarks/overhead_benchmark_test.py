# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""The benchmark of what tuning takes: its steps, its runs, what it prints."""

from __future__ import annotations

import re
import time

import jax
import numpy as np
import pytest

from benchmarks.overhead import __main__ as command
from benchmarks.overhead import runs
from benchmarks.overhead import steps
import lagom_xla
from lagom_xla.apply.nccl import build
from lagom_xla.passes import collectives
from lagom_xla.passes import hlo

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
def test_a_step_on_a_device_takes_its_time_and_no_core():
  step = steps.on_device(1e3 * _DEVICE_S)
  jitted = step.jitted()
  jax.block_until_ready(jitted(step.weights, step.batch))
  begin_s, used_s = time.monotonic(), time.process_time()
  jax.block_until_ready(jitted(step.weights, step.batch))
  assert time.monotonic() - begin_s >= _DEVICE_S
  # Each device would need that much, if it worked.
  assert time.process_time() - used_s < _DEVICE_S


@needs_compiler
def test_the_host_goes_on_while_a_device_is_at_work():
  step = steps.on_device(1e3 * _DEVICE_S)
  jitted = step.jitted()
  weights = jax.block_until_ready(jitted(step.weights, step.batch))
  begin_s = time.monotonic()
  for _ in range(3):
    weights = jitted(weights, step.batch)
  # Three were dispatched, and not three are done: the last ones cannot be.
  is_done = all(it.is_ready() for it in weights)
  assert not is_done
  jax.block_until_ready(weights)
  assert time.monotonic() - begin_s >= 3 * _DEVICE_S


@needs_compiler
def test_a_device_changes_no_results():
  slow, fast = steps.on_device(1.0), steps.on_device(0.0)
  for one, other in zip(
    slow.jitted()(slow.weights, slow.batch),
    fast.jitted()(fast.weights, fast.batch),
    strict=True,
  ):
    np.testing.assert_array_equal(one, other)


@needs_compiler
def test_a_step_on_a_device_is_searched_for_and_candidates_are_measured():
  step = steps.on_device(40.0)
  with step.surroundings():
    tuned = lagom_xla.tune(step.jitted(), cache=False)
    weights = step.weights
    for _ in range(2_000):
      weights = tuned(weights, step.batch)
      if re.search("tried: .* of the time", tuned.report()):
        return
  raise AssertionError(tuned.report())


def test_steps_on_cores_have_an_all_reduce_of_each_gradient():
  step = steps.on_cores(8)
  compiled = step.jitted().lower(step.weights, step.batch).compile()
  found = collectives.find(hlo.load(compiled))
  assert {it.kind for it in found} == {"all-reduce"}
  assert sum(it.num_operands for it in found) == len(step.weights)


def test_a_row_has_intervals_around_its_means_and_is_told_in_words():
  row = runs.measure(steps.on_cores(8), num_steps=30, num_pairs=2)
  for mean, low, high in (row.wall_steps, row.cpu_steps, row.thread_steps):
    assert low <= mean <= high
  words = command.in_words(row)
  assert words.startswith("8 rows, ")
  assert "of 30 steps: wall clock" in words
  assert "told nothing" in words  # They end in the baseline.
