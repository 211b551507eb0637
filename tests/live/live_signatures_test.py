# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""A step that is tuned while it trains takes whatever the jitted step takes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import jax
import numpy as np
import pytest

from jitted_steps import assert_identical
import lagom_xla
from lagom_xla.live import step as step_lib
from lagom_xla.live import timing
import live_step


@pytest.fixture(autouse=True)
def proposer() -> Iterator[live_step.Proposer]:
  with live_step.proposed_again() as proposer:
    yield proposer


def test_shapes_that_alternate_have_each_a_loop_and_come_to_rest(proposer):
  proposer.makers = {}
  jitted = jax.jit(lambda x: x * 2)
  step: Any = lagom_xla.tune(jax.jit(lambda x: x * 2))
  batches = [live_step.batch(0, num_rows) for num_rows in (4, 8)]
  expected = [jitted(x) for x in batches]
  for number in range(2 * live_step.NUM_CALLS):
    assert_identical(step(batches[number % 2]), expected[number % 2])
  assert step.report().count("now: watch") == 2
  asked: list[Any] = []
  step._jitted = _Asking(step._jitted, asked)
  for number in range(50):
    assert_identical(step(batches[number % 2]), expected[number % 2])
  assert asked == []  # C++ knows both.


class _Asking:
  """A jitted function that notes when Python is asked about a call."""

  def __init__(self, jitted: Any, asked: list[Any]):
    self._jitted = jitted
    self._asked = asked

  def __getattr__(self, name: str) -> Any:
    self._asked.append(name)
    return getattr(self._jitted, name)


def test_a_report_begins_with_the_signature_that_is_called_most():
  step = lagom_xla.tune(jax.jit(lambda x: x * 2))
  step(live_step.batch(0, num_rows=4))  # As a program's first call may be.
  for number in range(live_step.NUM_CALLS):
    step(live_step.batch(number))
  first, *_, last, _ = step.report().splitlines()
  assert first.startswith("<lambda>: as jit runs it, ")
  assert last == "<lambda>: not measured yet"


def test_shapes_that_alternate_are_watched_now_and_then(proposer, monkeypatch):
  # Windows of as few calls as can be, so that they end in a test.
  monkeypatch.setattr(timing, "MIN_WINDOW_S", 0.0)
  monkeypatch.setattr(timing, "MIN_CALLS", 4)
  monkeypatch.setattr(step_lib, "REST_CALLS", 1)
  slow_s = [0.001]

  def sleep(value: np.ndarray) -> np.ndarray:
    live_step.clock.sleep(slow_s[0])
    return value

  def double(x: jax.Array) -> jax.Array:
    shape = jax.ShapeDtypeStruct(x.shape, x.dtype)
    return jax.pure_callback(sleep, shape, 2 * x)

  proposer.makers = {}
  step: Any = lagom_xla.tune(jax.jit(double))
  batches = [live_step.batch(0, num_rows) for num_rows in (4, 8)]
  num_rests, was_resting = 0, False
  for number in live_step.until_it_hangs(step):
    x = batches[number % 2]
    np.testing.assert_array_equal(step(x), 2 * x)
    is_resting = step._current is None
    num_rests += is_resting and not was_resting
    was_resting = is_resting
    if num_rests == 12:
      slow_s[0] = 0.03
    if proposer.measured and proposer.measured[-1].step_s > 0.03:
      break
  assert num_rests >= 12
  # A search for each shape, and one for the drift.
  first, second, drifted = (it.step_s for it in proposer.measured)
  assert max(first, second) < 0.03 < drifted
