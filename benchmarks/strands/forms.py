# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Forms of a lowered step, to be compiled like the step itself."""

from __future__ import annotations

import copy
import dataclasses
from typing import Any

import jax

from lagom_xla.passes.program import form as form_lib
from lagom_xla.passes.program import outcome as outcome_lib
from lagom_xla.passes.program import rewrite as rewrite_lib
from lagom_xla.passes.program.slices import chains as chains_lib


def rewritten(
  lowered: jax.stages.Lowered, form: form_lib.Form
) -> tuple[jax.stages.Lowered, outcome_lib.Outcome]:
  """A lowered step in another form.

  Args:
    lowered: stays as it is.
    form: what to make of it.

  Returns:
    The step, which is the same object where no pass acted, and what was done.
  """
  source: Any = lowered
  module, outcome = rewrite_lib.rewrite(source._lowering._hlo, form)
  if not outcome.actions:
    return lowered, outcome
  lowering = copy.copy(source._lowering)
  lowering._hlo = module
  # What was compiled before came of the other program.
  lowering._executable = None
  other: Any = copy.copy(source)
  other._lowering = lowering
  return other, outcome


def in_pieces(
  lowered: jax.stages.Lowered, strands: form_lib.Strands, num_pieces: int
) -> form_lib.Form:
  """The form in which every chain that can be is cut in so many pieces.

  Args:
    lowered: the step as written.
    strands: which the form has, too; chains are found once they are there.
    num_pieces: 1 cuts none.
  """
  form = form_lib.Form(strands=strands)
  if num_pieces == 1:
    return form
  source: Any = rewritten(lowered, form)[0]
  slices: dict[str, int] = {
    chain.label: num_pieces
    for chain in chains_lib.find(source._lowering._hlo)
    if num_pieces in chain.pieces
  }
  return dataclasses.replace(form, slices=slices)
