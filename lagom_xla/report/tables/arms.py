# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Arms in a report: what runs today, what others publish, and the plan.

A user sees what the recipe that they use is worth on their own step: its time
under NCCL's own choices, as they run it, and with searched settings.
"""

from __future__ import annotations

import rich.table

from lagom_xla import plan as plan_lib
from lagom_xla.costs import in_words
from lagom_xla.report.tables import table as table_lib
from lagom_xla.report.wording import arm_rows
from lagom_xla.report.wording import compared
from lagom_xla.search.xla import candidates as candidates_lib


def table(
  search: candidates_lib.Search, applied: plan_lib.Applied = "all"
) -> rich.table.Table:
  """Each arm with its predicted step times, and the plan beside them."""
  table = table_lib.new(
    "What you could run without a plan (predicted ms per step)",
    "arm",
    "NCCL defaults",
    "over today",
    compared.column(applied),
    "",
  )
  table.columns[-1].justify = "left"
  for arm, found in arm_rows.rows(search):
    if isinstance(found, candidates_lib.Candidate):
      fastest = "fastest" if found is search.fastest_arm else ""
      table.add_row(arm.name, *_times(found, search), fastest)
    else:
      reason = compared.refusal(found) if found else "not tried"
      times = ["-"] * (len(table.columns) - 2)
      table.add_row(arm.name, *times, reason)
  table.add_row("the plan", *_times(search.best, search), "")
  return table


def _times(
  candidate: candidates_lib.Candidate, search: candidates_lib.Search
) -> tuple[str, ...]:
  """Under NCCL's defaults, in ms and against what runs today; and tuned."""
  us = candidate.under_nccl_defaults.step_time_us
  over = us / search.default.under_nccl_defaults.step_time_us - 1
  return in_words.ms(us), f"{over:+.1%}", compared.cell(candidate)


def notes(search: candidates_lib.Search) -> list[str]:
  """A line for each thing to know of arms, the names of those it is true of."""
  taken = [
    found
    for _, found in arm_rows.rows(search)
    if isinstance(found, candidates_lib.Candidate)
  ]
  not_searched = compared.note(taken)
  by_note: dict[str, list[str]] = {}
  for arm in search.arms:
    if arm.source:
      by_note[f"It is from {arm.source}."] = [arm.name]
    for note in arm.notes:
      by_note.setdefault(note, []).append(arm.name)
  told = [f"{', '.join(names)}: {note}" for note, names in by_note.items()]
  return [not_searched, *told] if not_searched else told
