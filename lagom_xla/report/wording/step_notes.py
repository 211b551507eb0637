# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Notes on a step: what its figures rest on."""

from __future__ import annotations

from collections.abc import Iterator

from lagom_xla.costs import in_words
from lagom_xla.costs import step as step_lib
from lagom_xla.passes import rematerialization
from lagom_xla.report.wording import today
from lagom_xla.report.wording import unknown_work


def of_step(step: step_lib.Step) -> Iterator[str]:
  """What to know of a step's figures, in sentences."""
  module = step.analysis.module
  if note := today.note():
    yield f"{note}."
  if note := today.uncosted_of(step):
    yield f"{note}."
  if loops := module.loops_of_unknown_length:
    yield (
      f"Counted once, as their trip counts are not known: {', '.join(loops)}."
    )
  if note := unknown_work.note(step):
    yield f"{note}."
  if count := len(rematerialization.recomputed(module)):
    yield (
      f"{in_words.count(count, 'instruction')} run again, as memory is short:"
      " this is the compiled module, which XLA changed after its scheduler."
    )
