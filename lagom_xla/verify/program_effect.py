# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""The effect of a program's form: what was rewritten, and what that hides."""

from __future__ import annotations

import dataclasses

from lagom_xla.costs import in_words
from lagom_xla.costs import step as step_lib
from lagom_xla.passes.program import outcome as outcome_lib
from lagom_xla.verify import effects


def with_outcome(
  seen: effects.Effect,
  outcome: outcome_lib.Outcome,
  without: step_lib.Step,
  with_it: step_lib.Step,
) -> effects.Effect:
  """The effect of a form with what it rewrote, and what that hides.

  Args:
    seen: the effect in the two schedules.
    outcome: what the form made of the program.
    without: the step as scheduled without it.
    with_it: the step as scheduled with it.
  """
  if not (seen.acted and outcome.actions):
    return seen
  first, *others = outcome.actions
  more = f" (and {len(others)} more)" if others else ""
  before, after = (s.timeline(s.default) for s in (without, with_it))
  return dataclasses.replace(
    seen,
    replaces="the program as written",
    without_us=before.step_time_us,
    with_us=after.step_time_us,
    evidence=(
      f"{first.removesuffix('.')}{more};"
      f" {in_words.milliseconds(before.total_exposed_us)} of collectives"
      f" exposed became {in_words.milliseconds(after.total_exposed_us)}"
      f" (predicted, NCCL's defaults); {seen.evidence}"
    ),
  )
