# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Rewriting of a program to a form: the passes in their order."""

from __future__ import annotations

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
    module: a lowered program; it stays as it is.
    form: what to make of it.

  Returns:
    The rewritten program, which is the module itself where nothing could be
    done, and what was done and refused.
  """
  if form.is_as_written:
    return module, Outcome()
  with module.context, ir.Location.unknown():
    copy = mlir.copied(module)
    outcome = _apply(copy, form)
    if not outcome.actions:
      return module, outcome
    copy.operation.verify()
    return copy, outcome


def with_chains_tagged(module: ir.Module) -> ir.Module:
  """A copy of a program whose collectives say which chains they are in."""
  with module.context, ir.Location.unknown():
    copy = mlir.copied(module)
    chains.tag(copy)
    return copy


def _apply(module: ir.Module, form: Form) -> Outcome:
  # First: chains have their labels in the program as it is written.
  outcome = slices.cut(module, form.slices)
  if form.strands in ("merged", "staggered"):
    staggered = form.strands == "staggered"
    outcome += loop_pairs.merge_loops(module, staggered=staggered)
  elif form.strands == "rotated":
    outcome += rotate.rotate(module)
  elif form.strands == "paired":
    outcome += rotate.pair_trips(module)
  if form.keyed:  # Last: it is the finished strands that stay apart.
    outcome += keys.key_strands(module)
  return outcome
