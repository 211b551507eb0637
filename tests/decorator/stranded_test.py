# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""A step under `lagom_xla.strands` is the jitted step, in another form."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import lagom_xla
from lagom_xla.compile import rewriting
from lagom_xla.passes.program import form as form_lib
import strands_step


def _step() -> tuple[Any, tuple[jax.Array, ...]]:
  jitted, args = strands_step.lowerable(jax.devices())
  return jitted, strands_step.values(args)


def test_the_strongest_form_that_applies_is_used(monkeypatch):
  asked = []
  real = rewriting.step

  def step(lowered: Any, form: Any) -> Any:
    asked.append(form.strands)
    return real(lowered, form)

  monkeypatch.setattr(rewriting, "step", step)
  jitted, args = _step()
  stranded = lagom_xla.strands(jitted)
  stranded(*args)
  assert asked == ["paired", "rotated", "merged"]
  (outcome,) = stranded.outcomes
  assert len(outcome.actions) == 2


def test_a_requested_form_is_used_without_trying_others():
  form = lagom_xla.Form(strands="staggered")
  jitted, args = _step()
  stranded = lagom_xla.strands(form=form)(jitted)
  ours, _ = stranded(*args)
  assert [arg.is_deleted() for arg in args] == [True, False, False]
  theirs, _ = jitted(*_step()[1])
  np.testing.assert_array_equal(ours, theirs)
  (outcome,) = stranded.outcomes
  assert outcome.actions


def test_a_step_without_an_applicable_form_runs_as_jit_with_one_warning():
  @lagom_xla.strands
  @functools.partial(jax.jit, static_argnames="power")
  def plain(x: jax.Array, power: int) -> jax.Array:
    return x**power

  x = jnp.arange(4.0)
  with pytest.warns(RuntimeWarning) as warned:
    np.testing.assert_array_equal(plain(x, power=2), x**2)
    np.testing.assert_array_equal(plain(x, power=3), x**3)
  (warning,) = warned
  message = str(warning.message)
  assert message.startswith("lagom_xla.strands leaves plain unchanged: it")
  assert "strands rotated (" in message
  assert "nor strands merged (" in message
  assert warning.filename == __file__
  assert [outcome.actions for outcome in plain.outcomes] == [(), ()]


def test_transformations_and_lowering_see_the_jitted_step():
  jitted, args = _step()
  stranded: Any = lagom_xla.strands(jitted)
  assert stranded.lower(*args).as_text() == jitted.lower(*args).as_text()
  assert jax.eval_shape(stranded, *args) == jax.eval_shape(jitted, *args)
  assert list(stranded.outcomes) == []


def test_a_bound_step_is_rewritten_with_its_bound_arguments():
  jitted, (weights, *batches) = _step()
  expected = jitted(weights, *batches)[1]
  stranded: Any = lagom_xla.strands(
    functools.partial(jitted, _step()[1][0]),
    form=form_lib.Form(strands="merged"),
  )
  assert stranded(*batches)[1] == expected
  (outcome,) = stranded.outcomes
  assert outcome.actions
