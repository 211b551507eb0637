# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""After jax.clear_caches, a step is compiled again but not tuned again."""

from __future__ import annotations

from collections.abc import Callable
import gc
import re
from typing import Any
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jitted_steps
import lagom_xla
from lagom_xla.jax_internals import caches
from lagom_xla.live import timing
import live_step


def _tuned(function: Callable[..., Any], **jit_options: Any) -> Any:
  return lagom_xla.tune(jax.jit(function, **jit_options), cache=False)


def _faster() -> live_step.Proposer:
  return live_step.Proposer({"faster": live_step.sleeping(0.0)})


def test_the_adopted_variant_is_recompiled_and_stays_in_use():
  proposer = _faster()
  x = live_step.batch(0)
  with live_step.proposed_by(proposer):
    step = live_step.tuned_step(cache=False)
    live_step.train(step, "now: watch")
    verdict = step.report().splitlines()[0]
    state, loss = step(live_step.state(), x)
    jax.clear_caches()
    again, again_loss = step(live_step.state(), x)
    # Lanes are C++ caches, which are filled again.
    for _ in range(40):
      _, latest_loss = step(live_step.state(), x)
  assert proposer.compiled == ["faster", "faster"], step.report()
  assert len(proposer.measured) == 1
  assert step.report().splitlines()[0] == verdict
  assert step._current.variant == 1
  jax.tree.map(np.testing.assert_array_equal, again, state)
  assert loss == again_loss == latest_loss


@pytest.mark.parametrize("state", ["profiling", "measuring"])
def test_tuning_resumes_where_it_was_after_caches_are_cleared(state):
  proposer = _faster()
  with live_step.proposed_by(proposer), warnings.catch_warnings():
    warnings.simplefilter("error")
    step = live_step.tuned_step(cache=False)
    step(live_step.state(), live_step.batch(0))
    live_step.train(step, f"now: {state}", calls_after=0)
    jax.clear_caches()
    live_step.train(step, "now: watch")
  assert len(proposer.measured) == 1
  assert "faster: 0." in step.report() and "adopted" in step.report()
  assert step.report().count("  now: ") == 1


def test_each_shape_keeps_its_loop_after_caches_are_cleared():
  with live_step.proposed_by(_faster()):
    step = live_step.tuned_step(cache=False)
    shapes = (8, 4)
    for num_rows in shapes:
      step(live_step.state(), live_step.batch(0, num_rows))
    jax.clear_caches()
    for num_rows in shapes:
      step(live_step.state(), live_step.batch(0, num_rows))
  report = step.report()
  assert report.count("now: baseline") == len(shapes)
  for num_rows in shapes:  # Reports name only arguments that differ.
    shape = live_step.batch(0, num_rows).shape
    told = re.escape(",".join(map(str, shape)))
    assert re.search(rf"^\w+\(\w+: float32\[{told}\]\): ", report, re.M)


def test_a_function_that_changed_by_the_next_trace_is_tuned_anew():
  factor = 2.0
  with live_step.proposed_by(live_step.Proposer({})):
    step = _tuned(lambda x: x * factor)
    step(jnp.ones(3))
    factor = 3.0
    jax.clear_caches()
    np.testing.assert_array_equal(step(jnp.ones(3)), np.full(3, factor))
  assert step.report().count("  now: ") == 2


def test_a_step_is_tuned_anew_if_jax_does_not_identify_it(monkeypatch):
  def elsewhere(lowered: jax.stages.Lowered) -> object:
    raise KeyError("committed")

  monkeypatch.setattr(caches, "_outside", elsewhere)
  with live_step.proposed_by(live_step.Proposer({})):
    step = _tuned(lambda x: x * 2)
    for _ in range(2):
      np.testing.assert_array_equal(step(jnp.ones(3)), np.full(3, 2.0))
      jax.clear_caches()
  assert step.report().count("  now: ") == 2


def test_a_variant_that_no_longer_compiles_falls_back_to_jit(monkeypatch):
  # Failures are reported at the end of a window.
  monkeypatch.setattr(timing, "MIN_WINDOW_S", 0.0)
  proposer = _faster()
  with live_step.proposed_by(proposer):
    step = live_step.tuned_step(cache=False)
    live_step.train(step, "now: watch")
    proposer.makers["faster"] = live_step.failing("no such option")
    jax.clear_caches()
    with pytest.warns(RuntimeWarning, match="no such option"):
      live_step.train(step, "now: stopped")
  assert step._current.variant == 0


def test_callbacks_come_from_the_new_trace():
  calls: list[str] = []
  name = "before"

  def step(x: jax.Array) -> jax.Array:
    own = name
    jax.debug.callback(lambda: calls.append(own), ordered=True)
    return x + 1

  with live_step.proposed_by(live_step.Proposer({})):
    counting = _tuned(step)
    counting(jnp.ones(3))
    name = "after"
    jax.clear_caches()
    counting(jnp.ones(3))
  jax.effects_barrier()
  assert calls == ["before", "after"]


def test_committed_arguments_make_a_different_step_of_the_same_module():
  jitted = jax.jit(lambda x: x * 2)
  x = jnp.ones(3)
  free = jitted.lower(x)
  bound = jitted.lower(jax.device_put(x, jax.devices()[0]))
  assert caches.is_same_step(free, jitted.lower(x))
  assert not caches.is_same_step(free, bound)


@pytest.mark.parametrize("measure", [True, False])
def test_a_predicted_plan_is_recompiled_without_a_new_search(
  measure, tuned_names
):
  step = lagom_xla.tune(
    jax.jit(lambda x: x + jnp.sum(x)),
    cluster=jitted_steps.CLUSTER,
    measure=measure,
  )
  x = jitted_steps.sharded(16)
  results, num_executables = [], []
  for _ in range(3):
    jax.clear_caches()
    results.append(step(x))
    gc.collect()
    num_executables.append(len(jax.devices()[0].client.live_executables()))
  assert tuned_names == ["<lambda>"]
  # Earlier executables were freed, as under jit.
  assert num_executables[1] == num_executables[2]
  jitted_steps.assert_identical(results[2], results[0])
