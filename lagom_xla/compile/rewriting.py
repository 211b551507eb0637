# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""The form of a lowered program: a copy, rewritten, and what became of it.

A form with two parts, strands and slices, is all or nothing: where one of them
cannot act, the program stays as it was written.
"""

from __future__ import annotations

import collections
from collections.abc import Iterator, Mapping
import dataclasses
from typing import Any, Generic, TypeVar

import jax
from jaxlib.mlir import ir

from lagom_xla import errors
from lagom_xla.jax_internals import lowerings
from lagom_xla.passes.program import form as form_lib
from lagom_xla.passes.program import rewrite as rewrite_lib

_T_co = TypeVar("_T_co", covariant=True)

# Reasons that an error quotes, and chains that are named in words.
_MOST_REASONS = 3
_MOST_CHAINS = 2


@dataclasses.dataclass(frozen=True, kw_only=True)
class Rewritten(Generic[_T_co]):
  """A program in another form.

  Attributes:
    program: in that form; the very program where the form cannot act.
    outcome: what was done to it; no actions where the form cannot act.
  """

  program: _T_co
  outcome: form_lib.Outcome


def module(program: ir.Module, form: form_lib.Form) -> Rewritten[ir.Module]:
  """A StableHLO module in another form; the module itself is not touched."""
  rewritten, outcome = program, form_lib.Outcome()
  for part in _parts(form):
    rewritten, of_part = rewrite_lib.rewrite(rewritten, part)
    outcome += of_part
    # Of slices every chain that is named must be there, of strands any loop.
    if not of_part.actions or (part.slices and of_part.refusals):
      refused = form_lib.Outcome(refusals=outcome.refusals)
      return Rewritten(program=program, outcome=refused)
  return Rewritten(program=rewritten, outcome=outcome)


def step(
  lowered: jax.stages.Lowered, form: form_lib.Form
) -> Rewritten[jax.stages.Lowered]:
  """A lowered step in another form, with its donation and its shardings.

  Raises:
    UnsupportedError: JAX lowers in a way that lagom_xla does not know.
  """
  program: Any = lowered.compiler_ir("stablehlo")
  rewritten = module(program, form)
  if not rewritten.outcome.actions:
    return Rewritten(program=lowered, outcome=rewritten.outcome)
  return Rewritten(
    program=lowerings.with_module(lowered, rewritten.program),
    outcome=rewritten.outcome,
  )


def check(name: str, form: form_lib.Form, outcome: form_lib.Outcome) -> None:
  """Checks that a form acted on a program.

  Args:
    name: of the program.
    form: what was asked for.
    outcome: what became of it.

  Raises:
    ProgramError: it did not.
  """
  if not (form.is_as_written or outcome.actions):
    raise errors.ProgramError(
      f"{name} cannot have {obstacle(form, outcome)}: leave the program as it"
      " is written."
    )


def obstacle(form: form_lib.Form, outcome: form_lib.Outcome) -> str:
  """A form in words, with the first reasons for which it could not act."""
  reasons = [f"{r.where}: {r.reason}" for r in outcome.refusals]
  shown = "; ".join(reasons[:_MOST_REASONS]) or "nothing in it has that form"
  if len(reasons) > _MOST_REASONS:
    shown += f"; and {len(reasons) - _MOST_REASONS} more"
  return f"{in_words(form)} ({shown})"


def in_words(form: form_lib.Form) -> str:
  """A form in a few words, such as "strands rotated"."""
  parts = []
  if form.strands != "none":
    parts.append(f"strands {form.strands}")
  if form.keyed:
    parts.append("strands combined apart")
  parts += _sliced_in_words(form.slices)
  return ", ".join(parts) or "the program as written"


def _sliced_in_words(slices: Mapping[str, int]) -> list[str]:
  if len(slices) <= _MOST_CHAINS:
    return [f"{chain} in {k} pieces" for chain, k in slices.items()]
  num_chains = sorted(collections.Counter(slices.values()).items())
  return [f"{num} chains in {k} pieces" for k, num in num_chains]


def key(form: form_lib.Form) -> object:
  """What equal forms share, to find one in a dict."""
  return form.strands, form.keyed, frozenset(form.slices.items())


def _parts(form: form_lib.Form) -> Iterator[form_lib.Form]:
  """Slices first: chains have their labels in the program as written."""
  if form.slices:
    yield form_lib.Form(slices=form.slices)
  if form.strands != "none":
    yield form_lib.Form(strands=form.strands)
  if form.keyed:
    yield form_lib.Form(keyed=True)
