# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Rewrites lowered steps to forms, and describes forms in words."""

from __future__ import annotations

import collections
from collections.abc import Mapping
from typing import Any

import jax

from lagom_xla import errors
from lagom_xla.jax_internals import lowerings
from lagom_xla.passes.program import form as form_lib
from lagom_xla.passes.program import rewrite as rewrite_lib

# Chains that are named in words.
_MOST_CHAINS = 2


def step(
  lowered: jax.stages.Lowered, form: form_lib.Form
) -> tuple[jax.stages.Lowered, form_lib.Outcome]:
  """A lowered step in another form, with its donation and its shardings.

  If the form cannot act it is the same step, and the outcome has no actions.

  Raises:
    UnsupportedError: this lagom_xla does not support how JAX lowers.
  """
  program: Any = lowered.compiler_ir("stablehlo")
  rewritten, outcome = rewrite_lib.rewrite(program, form)
  if outcome.actions:
    lowered = lowerings.with_module(lowered, rewritten)
  return lowered, outcome


def check(name: str, form: form_lib.Form, outcome: form_lib.Outcome) -> None:
  """Raises a ProgramError unless a form acted on the named program."""
  if not (form.is_as_written or outcome.actions):
    raise errors.ProgramError(f"{name} cannot have {obstacle(form, outcome)}.")


def obstacle(form: form_lib.Form, outcome: form_lib.Outcome) -> str:
  """A form in words, with the first reason why it could not act."""
  shown = "it applies to nothing in it"
  if outcome.refusals:
    first, *others = outcome.refusals
    shown = f"{first.where}: {first.reason}"
    if others:
      shown += f"; and {len(others)} more"
  return f"{in_words(form)} ({shown})"


def in_words(form: form_lib.Form) -> str:
  """A form in a few words, such as "strands rotated"."""
  parts = []
  if form.strands != "none":
    parts.append(f"strands {form.strands}")
  if form.keyed:
    parts.append("strands combined separately")
  parts += _sliced_in_words(form.slices)
  return ", ".join(parts) or "the program as written"


def _sliced_in_words(slices: Mapping[str, int]) -> list[str]:
  if len(slices) <= _MOST_CHAINS:
    return [f"{chain} in {k} pieces" for chain, k in slices.items()]
  num_chains = sorted(collections.Counter(slices.values()).items())
  return [f"{num} chains in {k} pieces" for k, num in num_chains]


def key(form: form_lib.Form) -> object:
  """A hashable key, equal for equal forms."""
  return form.strands, form.keyed, frozenset(form.slices.items())
