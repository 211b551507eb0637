# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Ten steps of training give the same numbers in every form.

If layers are in a loop, every bit is the same.
"""

from __future__ import annotations

from collections.abc import Callable
import dataclasses
import functools
from typing import Any

import jax
import numpy as np
import pytest

import accumulating_step as step_lib
import lagom_xla

# Layout, layers, recomputed, accumulated micro-batches, strands. Merged and
# staggered strands are halves of one batch, or of each micro-batch.
_CASES: list[tuple[step_lib.Layout, step_lib.Layers, bool, int, Any]] = [
  ("fsdp", "scan", True, 2, "rotated"),
  ("fsdp", "unroll", True, 8, "rotated"),
  ("tp_sp", "unroll", True, 2, "rotated"),
  ("ep", "scan", True, 2, "rotated"),
  ("fsdp", "unroll", True, 8, "paired"),
  ("tp_sp", "scan", False, 3, "paired"),
  ("ep", "scan", True, 2, "paired"),
  ("fsdp", "scan", True, 1, "merged"),
  ("ep", "scan", False, 1, "staggered"),
  ("tp_sp", "scan", True, 1, "staggered"),
  ("tp_sp", "scan", True, 2, "merged"),
]
# Loops keep XLA from fusing across layers. Unrolled layers may be fused with
# other neighbors than before, which reorders sums: one rounding of the largest
# number in each step.
_FUSED_ANEW = step_lib.NUM_STEPS * 2.0**-23


def _train(
  step: Callable[..., Any], training: step_lib.Training, state: Any = None
) -> Any:
  """The last state and all losses, as NumPy arrays."""
  state, losses = state or training.state(), []
  for batch in training.batches:
    state, loss = step(state, batch)
    losses.append(loss)
  return jax.tree.map(np.asarray, (state, losses))


def _as_written(case: step_lib.Case) -> Any:
  """The result of a case's step as written."""
  are_whole = case.strands in ("rotated", "paired")
  strands = "rotated" if are_whole else "merged"
  return _trained_as_written(dataclasses.replace(case, strands=strands))


@functools.cache
def _trained_as_written(case: step_lib.Case) -> Any:
  training = step_lib.Training(case)
  return _train(jax.jit(training.step), training)


@pytest.mark.parametrize(
  "case", [step_lib.Case(*case) for case in _CASES], ids=repr
)
def test_ten_steps_in_each_form_donate_their_state_and_train_alike(case):
  training = step_lib.Training(case)
  state = training.state()
  donating = jax.jit(training.step, donate_argnums=0)
  stranded = lagom_xla.strands(
    donating, form=lagom_xla.Form(strands=case.strands)
  )
  actual = _train(stranded, training, state)
  expected = _as_written(case)
  assert stranded.outcomes[0].actions
  assert all(leaf.is_deleted() for leaf in jax.tree.leaves(state))
  most = _FUSED_ANEW if case.layers == "unroll" else 0

  def check(actual: np.ndarray, expected: np.ndarray) -> None:
    difference = np.max(np.abs(actual - expected))
    assert difference <= most * np.max(np.abs(expected))

  jax.tree.map(check, actual, expected)


def test_unrolled_halves_are_unchanged_with_a_warning_and_train_alike():
  case = step_lib.Case(layout="tp_sp", layers="unroll", strands="merged")
  training = step_lib.Training(case)
  stranded = lagom_xla.strands(
    jax.jit(training.step), form=lagom_xla.Form(strands="merged")
  )
  with pytest.warns(RuntimeWarning, match="no loop with matmuls"):
    actual = _train(stranded, training)
  expected = _train(jax.jit(training.step), training)
  jax.tree.map(np.testing.assert_array_equal, actual, expected)
