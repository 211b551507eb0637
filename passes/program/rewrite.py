# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Rewrites a program to a form, by running the passes in order.

A form with both strands and slices is all or nothing: if one of them cannot
act, the program stays as written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
import functools

from jaxlib.mlir import ir

from lagom_xla.passes.program import mlir
from lagom_xla.passes.program.form import Form
from lagom_xla.passes.program.form import Outcome
from lagom_xla.passes.program.slices import chains
from lagom_xla.passes.program.slices import cut as slices
from lagom_xla.passes.program.strands import keys
from lagom_xla.passes.program.strands import loop_pairs
from lagom_xla.passes.program.strands import rotate


def rewrite(module: ir.Module, form: Form) -> tuple[ir.Module, Outcome]:
  """Rewrites a program to a form.

  Args:
    module: a lowered program, which is not changed.
    form: the form to give it.

  Returns:
    The rewritten program, or the module itself if nothing changed; and the
    outcome.
  """
  if form.is_as_written:
    return module, Outcome()
  with module.context, ir.Location.unknown():
    copy = mlir.copied(module)
    outcome = Outcome()
    for apply, needs_all in _passes(form):
      of_pass = apply(copy)
      outcome += of_pass
      if not of_pass.actions or (needs_all and of_pass.refusals):
        return module, Outcome(refusals=outcome.refusals)
    copy.operation.verify()
    return copy, outcome


def with_chains_tagged(module: ir.Module) -> ir.Module:
  """A copy of a program whose collectives are tagged with their chains."""
  with module.context, ir.Location.unknown():
    copy = mlir.copied(module)
    chains.tag(copy)
    return copy


def _passes(
  form: Form,
) -> Iterator[tuple[Callable[[ir.Module], Outcome], bool]]:
  """The passes of a form, and whether each must succeed completely."""
  # First, because chains are labeled in the program as written.
  if form.slices:
    yield lambda module: slices.cut(module, form.slices), True
  if form.strands in ("merged", "staggered"):
    is_staggered = form.strands == "staggered"
    yield (
      functools.partial(loop_pairs.merge_loops, staggered=is_staggered),
      False,
    )
  elif form.strands == "rotated":
    yield rotate.rotate, False
  elif form.strands == "paired":
    yield rotate.pair_trips, False
  if form.keyed:  # Last, because it separates the finished strands.
    yield keys.key_strands, False
