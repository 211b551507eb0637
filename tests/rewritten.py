# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""A jitted function rewritten to a form, and run beside the one as written."""

from __future__ import annotations

from collections.abc import Callable
import copy
from typing import Any

import jax
import numpy as np

from lagom_xla.passes.program import form as form_lib
from lagom_xla.passes.program import outcome as outcome_lib
from lagom_xla.passes.program import rewrite


def compile_rewritten(
  lowered: jax.stages.Lowered, form: form_lib.Form
) -> tuple[jax.stages.Compiled, outcome_lib.Outcome]:
  """Compiles a lowered step in a form."""
  as_written: Any = lowered.compiler_ir("stablehlo")
  module, outcome = rewrite.rewrite(as_written, form)
  lowering: Any = copy.copy(lowered._lowering)
  lowering._hlo = module
  lowered = jax.stages.Lowered(
    lowering, lowered.args_info, lowered.out_tree, no_kwargs=lowered._no_kwargs
  )
  return lowered.compile(), outcome


def assert_same_bits(
  function: Callable[..., Any], form: form_lib.Form, *args: Any
) -> outcome_lib.Outcome:
  """Runs a function as written and in a form, and compares every bit."""
  lowered = jax.jit(function).lower(*args)
  compiled, outcome = compile_rewritten(lowered, form)
  expected, actual = lowered.compile()(*args), compiled(*args)
  jax.tree.map(np.testing.assert_array_equal, actual, expected)
  return outcome
