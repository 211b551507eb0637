# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Rewrites a jitted function to a form, and compares it to the original."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from lagom_xla.compile import rewriting
from lagom_xla.passes.program import form as form_lib


def lower_rewritten(
  lowered: jax.stages.Lowered, form: form_lib.Form
) -> tuple[jax.stages.Lowered, form_lib.Outcome]:
  """A lowered step in a form."""
  return rewriting.step(lowered, form)


def compile_rewritten(
  lowered: jax.stages.Lowered, form: form_lib.Form
) -> tuple[jax.stages.Compiled, form_lib.Outcome]:
  """Compiles a lowered step in a form."""
  lowered, outcome = lower_rewritten(lowered, form)
  return lowered.compile(), outcome


def assert_same_bits(
  function: Callable[..., Any], form: form_lib.Form, *args: Any
) -> form_lib.Outcome:
  """Runs a function as written and in a form, and compares every bit."""
  lowered = jax.jit(function).lower(*args)
  in_form, outcome = compile_rewritten(lowered, form)
  expected, actual = lowered.compile()(*args), in_form(*args)
  jax.tree.map(np.testing.assert_array_equal, actual, expected)
  return outcome
