# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Forms of a lowered program: the program in one, and its chains there."""

from __future__ import annotations

from lagom_xla.compile import lowered as lowered_lib
from lagom_xla.compile import rewriting
from lagom_xla.passes.program import chains as chains_lib
from lagom_xla.passes.program import form as form_lib


def in_form(
  lowered: lowered_lib.Lowered, form: form_lib.Form
) -> lowered_lib.Lowered:
  """A program in a form.

  Raises:
    ProgramError: it cannot have this form.
  """
  if form.is_as_written:
    return lowered
  rewritten = lowered.rewritten(form)
  rewriting.check(lowered.name, form, rewritten.outcome)
  return rewritten.program


def chains(
  lowered: lowered_lib.Lowered, form: form_lib.Form
) -> tuple[chains_lib.Chain, ...]:
  """The chains of a program in a form that could be cut in pieces.

  Raises:
    ProgramError: it cannot have this form.
  """
  return chains_lib.find(in_form(lowered, form).stablehlo)
