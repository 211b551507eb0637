# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Whatever fails in tuning, training continues with the original step."""

from __future__ import annotations

from collections.abc import Callable
import dataclasses
import threading
from typing import Any
import warnings

import jax
import jax.numpy as jnp
import pytest

import lagom_xla
import live_step

_SHORT = dataclasses.replace(live_step.LIMITS, search_s=0.3)


def _train(
  proposer: live_step.Proposer,
  is_done: Callable[[str], bool] | str = "now: stopped",
  **options: Any,
) -> tuple[Any, list[str]]:
  """Trains beside jit until the loop ends; returns the step and warnings."""
  with (
    live_step.proposed_by(proposer),
    warnings.catch_warnings(record=True) as warned,
  ):
    warnings.simplefilter("always")
    step = live_step.tuned_step(**options)
    live_step.train(step, is_done)
  return step, [str(warning.message) for warning in warned]


def test_a_proposer_that_raises_causes_one_warning():
  def before(stop: threading.Event) -> None:
    raise ZeroDivisionError("the search is broken")

  step, warned = _train(live_step.Proposer({}, before))
  assert warned == [
    "lagom_xla.tune leaves step unchanged:"
    " ZeroDivisionError: the search is broken"
  ]
  assert "unchanged" in step.report()


def test_a_proposer_that_hangs_is_abandoned_and_signaled_to_stop():
  stopped = threading.Event()

  def before(stop: threading.Event) -> None:
    stop.wait()
    stopped.set()

  proposer = live_step.Proposer({}, before)
  with live_step.proposed_by(proposer, _SHORT, waits_for="nothing"):
    step = live_step.tuned_step()
    with pytest.warns(
      RuntimeWarning, match=r"the search made no proposal within 0\.3 s"
    ):
      live_step.train(step, "now: stopped")
  assert stopped.wait(live_step.HANGS_S)


@pytest.mark.parametrize("num_calls", [0, 60])
def test_a_candidate_that_raises_is_replaced_in_the_same_call(num_calls):
  made: list[live_step.Fragile] = []

  def fragile(lowered: jax.stages.Lowered) -> Any:
    made.append(live_step.Fragile(live_step.sleeping(0.0)(lowered), num_calls))
    return made[0]

  step, (warned,) = _train(
    live_step.Proposer({"fragile": fragile}),
    is_done=lambda report: bool(made) and made[0].num_calls < 0,
  )
  assert "fragile failed: RuntimeError: out of resources" in warned
  assert warned.startswith("lagom_xla.tune leaves step unchanged")
  assert made[0].num_calls == -1  # It was not called again.
  del step


def test_a_variant_that_fails_after_adoption_is_dropped_and_reported(tmp_path):
  made: list[live_step.Fragile] = []

  def fragile(lowered: jax.stages.Lowered) -> Any:
    made.append(live_step.Fragile(live_step.sleeping(0.0)(lowered), 10**6))
    return made[0]

  def is_done(report: str) -> bool:
    """Whether it failed while watched, and that was reported."""
    if "now: watch" in report:
      assert "with fragile" in report.splitlines()[0]
      made[0].num_calls = 0
    return "now: stopped" in report

  step, (warned,) = _train(
    live_step.Proposer({"fragile": fragile}), is_done=is_done, cache=tmp_path
  )
  assert "fragile failed: RuntimeError: out of resources" in warned
  first, second, *_ = step.report().splitlines()
  assert "unchanged" in first
  assert second.endswith("fragile failed: RuntimeError: out of resources")
  assert not list(tmp_path.iterdir())


def test_a_failing_call_during_another_threads_measured_one_is_replaced():
  fails, is_called, is_helped = (threading.Event() for _ in range(3))

  class Failing(live_step.Fragile):
    """Raises in one thread during a call in another."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
      if not fails.is_set():
        return self.compiled(*args, **kwargs)
      if threading.current_thread() is not measured:
        is_helped.set()
        raise RuntimeError("out of resources")
      is_called.set()
      is_helped.wait()
      return self.compiled(*args, **kwargs)

  def failing(lowered: jax.stages.Lowered) -> Any:
    return Failing(faster(lowered), 0)

  def call_until_helped() -> None:
    while not is_helped.is_set():
      step(*arguments)

  faster = live_step.sleeping(0.0, donate_argnums=())
  arguments = (live_step.state(), live_step.batch(0))
  with live_step.proposed_by(live_step.Proposer({"fails": failing})):
    step = lagom_xla.tune(jax.jit(live_step.train_step(0.004)), cache=False)
    measured = threading.Thread(target=call_until_helped)
    live_step.call_until(step, "adopted", *arguments)
    fails.set()
    measured.start()
    try:
      is_called.wait()
      with pytest.warns(RuntimeWarning, match="fails failed") as warned:
        _, loss = step(*arguments)
        assert is_helped.is_set()
        measured.join()  # Either call may warn, but only one does.
    finally:
      is_helped.set()  # Otherwise the thread would call forever.
      measured.join()
  assert len(warned) == 1
  assert loss == jax.jit(live_step.train_step())(*arguments)[1]


def test_a_candidate_with_other_arguments_or_results_never_runs():
  def other_type(lowered: jax.stages.Lowered) -> jax.stages.Compiled:
    jitted = jax.jit(lambda state, x: (state, jnp.int32(0)))
    return jitted.lower(live_step.state(), live_step.batch(0)).compile()

  proposer = live_step.Proposer(
    {
      "keeps its arguments": live_step.sleeping(0.0, donate_argnums=()),
      "returns another type": other_type,
    }
  )
  step, warned = _train(proposer, is_done="now: watch")
  assert warned == []
  tried = [it for it in step.report().splitlines() if "tried: " in it]
  assert "its arguments differ from the step's" in tried[0]
  assert "differ from the step's" in tried[1]


def test_bad_arguments_raise_jits_error_in_every_tuning_state():
  faster = live_step.sleeping(0.0, donate_argnums=())
  function = live_step.train_step(0.004)
  jitted = jax.jit(function)
  with live_step.proposed_by(live_step.Proposer({"faster": faster})):
    step = lagom_xla.tune(jax.jit(function))
    state = live_step.state()
    for number in live_step.until_it_hangs(step):
      if "adopted" in step.report():
        break
      state, _ = step(state, live_step.batch(number))
      if number % 5 == 0:
        with pytest.raises(TypeError) as theirs:
          jitted(state, "text")
        with pytest.raises(TypeError) as ours:
          step(state, "text")
        assert str(ours.value) == str(theirs.value)
