# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Reports for the terminal: of an inspection, a tuning, a verification.

The verdict first, then what it rests on, in 40 lines of 80 columns; every table
where the user asks for it. Every time shown is predicted, unless it says so.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
import pathlib

import rich.console

from lagom_xla.costs import step as step_lib
from lagom_xla.report.tables import everything
from lagom_xla.report.tables import tuning_tables
from lagom_xla.report.terminal import exposed
from lagom_xla.report.terminal import notes as notes_lib
from lagom_xla.report.terminal import screen
from lagom_xla.report.terminal import settings
from lagom_xla.report.terminal import verdict
from lagom_xla.tuner import tuning as tuning_lib
from lagom_xla.verify import verification as verification_lib

_EVERYTHING = "-v shows every table"
_MORE_OF_STEP = (
  "Next: `lagom-xla explain` tells what would help each collective,",
  f"`lagom-xla tune` looks for a plan, and {_EVERYTHING}",
)


def show_inspection(
  console: rich.console.Console,
  step: step_lib.Step,
  files: Sequence[pathlib.Path] = (),
  *,
  notes: Iterable[str] = (),
  is_verbose: bool = False,
) -> None:
  """Shows what collectives cost a step, which ones, and why.

  Args:
    console: where.
    step: the step.
    files: that were written.
    notes: what else to know of it.
    is_verbose: whether to show every table, too.
  """
  replayed = step.timeline(step.default)
  told = (*notes_lib.of_step(step, replayed.step_time_us), *notes)
  sections = (
    verdict.of_step(step, replayed),
    exposed.section(step, step.default, replayed, "today"),
    notes_lib.section(told),
    None if is_verbose else screen.Section(head=_more(step)),
  )
  screen.show(console, sections, files, is_whole=is_verbose)
  if is_verbose:
    everything.of_step(console, step)
  screen.show_files(console, files)


def _more(step: step_lib.Step) -> tuple[str, ...]:
  """What to do with a step next."""
  return _MORE_OF_STEP if step.analysis.collectives else (_EVERYTHING,)


def show_tuning(
  console: rich.console.Console,
  tuning: tuning_lib.Tuning,
  files: Sequence[pathlib.Path],
  *,
  is_verbose: bool = False,
) -> None:
  """Shows what tuning found, whether it acts, and what it should gain.

  Args:
    console: where.
    tuning: what was found.
    files: that were written, the plan's among them.
    is_verbose: whether to show every table, too.
  """
  before = tuning.before
  sections = (
    verdict.of_tuning(tuning),
    exposed.section(before, before.default, tuning.timeline_before, "today"),
    *settings.sections(tuning),
    notes_lib.section(notes_lib.of_tuning(tuning)),
    notes_lib.next_steps(tuning.plan, files),
  )
  screen.show(console, sections, files, is_whole=is_verbose)
  if is_verbose:
    everything.of_tuning(console, tuning)
  screen.show_files(console, files)


def show_verification(
  console: rich.console.Console,
  verification: verification_lib.Verification,
  *,
  is_verbose: bool = False,
) -> None:
  """Shows what each knob of a plan did, and what all of it should gain.

  Args:
    console: where.
    verification: what was seen.
    is_verbose: whether to show every table, too.
  """
  sections = (
    verdict.of_verification(verification),
    settings.of_effects(verification.effects, verification.plan),
    notes_lib.section(notes_lib.of_plan(verification.plan)),
  )
  screen.show(console, sections, (), is_whole=is_verbose)
  if is_verbose:
    console.print(tuning_tables.effects(verification.effects))
