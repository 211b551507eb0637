# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Notes below a report: what to know of its figures, and what to do next."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
import pathlib
import shlex

from lagom_xla import plan as plan_lib
from lagom_xla.costs import step as step_lib
from lagom_xla.flags import environment
from lagom_xla.report.tables import tuning_tables
from lagom_xla.report.terminal import scatters
from lagom_xla.report.terminal import screen
from lagom_xla.report.wording import program
from lagom_xla.report.wording import step_notes
from lagom_xla.report.wording import today
from lagom_xla.search.xla import arms
from lagom_xla.tuner import tuning as tuning_lib


def of_step(step: step_lib.Step, step_time_us: float) -> Iterator[str]:
  """What to know of a step's figures, in sentences."""
  yield from step_notes.of_step(step)
  yield from scatters.notes(step, step_time_us)


def of_tuning(tuning: tuning_lib.Tuning) -> Iterator[str]:
  """What to know of a tuning's figures, in sentences."""
  if rests_on := arms.rests_on(tuning.plan.xla.options):
    yield rests_on
  yield from of_step(tuning.before, tuning.timeline_before.step_time_us)
  if recomputed := tuning_tables.recomputed(tuning):
    yield recomputed
  if tuning.search.no_arms:
    yield f"No published XLA_FLAGS were tried: {tuning.search.no_arms}"
  if measured_run := tuning_tables.measured_run(tuning.plan):
    yield measured_run


def of_plan(plan: plan_lib.Plan) -> Iterator[str]:
  """What to know where a plan is verified, in sentences."""
  if (flags := environment.xla_flags()) != plan.xla_flags:
    yield (
      f"XLA_FLAGS is {flags or 'not set'}; where the plan was made it was"
      f" {plan.xla_flags or 'not set'}."
    )
  if note := today.uncosted():
    yield f"{note}."
  if measured_run := tuning_tables.measured_run(plan):
    yield measured_run


def section(notes: Iterable[str]) -> screen.Section:
  """Notes as a part of a report; one of them at least is shown."""
  return screen.Section(
    head=(),
    items=tuple(screen.wrapped(f"Note: {note}") for note in notes),
    least=1,
  )


def next_steps(
  plan: plan_lib.Plan, files: Sequence[pathlib.Path]
) -> screen.Section:
  """What to do with a plan.

  Args:
    plan: the plan.
    files: that were written, plan.json first; none if it was not written.
  """
  if not files:
    return screen.Section(head=())
  folder = str(files[0].parent)
  place = shlex.quote(folder)
  does = []
  if not plan.is_default:
    does.append(
      (f"source {place}/env.sh", "on every process, before Python starts")
    )
  if plan.needs_process:
    does.append((f"lagom_xla.tune(plan={folder!r})", "around the step"))
  typed = program.name()
  does.append((f"{typed} report {place}", "a page: the step before and after"))
  does.append((f"{typed} explain {place}", "why kernels wait, and what helps"))
  does.append(("the same with -v", "every table, with what was tried"))
  wide = max(len(what) for what, _ in does)
  rows = [
    line
    for what, why in does
    for line in screen.wrapped(f"{what:{wide}}  {why}", indent=2)
  ]
  return screen.Section(head=("Next:", *rows))
