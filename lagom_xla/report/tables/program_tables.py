# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""The table of forms: what each made of the program, and what it gains."""

from __future__ import annotations

from collections.abc import Sequence

import rich.table

from lagom_xla.compile import rewriting
from lagom_xla.costs import in_words
from lagom_xla.passes.program import form
from lagom_xla.report.tables import table as table_lib
from lagom_xla.search.xla import candidates as candidates_lib
from lagom_xla.tuner import tuning as tuning_lib

# Sentences on what a form did, and on what it left alone, that are shown.
_MOST_SENTENCES = 4


def forms(tuning: tuning_lib.Tuning) -> rich.table.Table:
  """The best step in each form, what was rewritten for it, and what was not."""
  table = table_lib.new(
    "Forms of the program (predicted ms of the best candidate in each)",
    "form",
    "step",
    "exposed",
    "",
  )
  table.columns[0].no_wrap = True
  table.columns[-1].justify = "left"
  for tried in _by_form(tuning).values():
    words = rewriting.in_words(tried[0].config.program)
    found = [c for c in tried if isinstance(c, candidates_lib.Candidate)]
    if not found:
      refused = tried[0]
      assert isinstance(refused, candidates_lib.Refused)
      table.add_row(words, "-", "-", refused.reason)
      continue
    best = min(found, key=candidates_lib.tuned_us)
    table.add_row(
      words,
      in_words.ms(best.tuned.step_time_us),
      in_words.ms(best.tuned.total_exposed_us),
      "\n".join(_sentences(best.outcome)),
    )
  return table


def has_forms(tuning: tuning_lib.Tuning) -> bool:
  """Whether any form but the program as written was tried."""
  return len(_by_form(tuning)) > 1


def why_none(tuning: tuning_lib.Tuning) -> str:
  """Why the target can have no other form, in a sentence; "" where it can."""
  as_written = tuning.search.default.outcome.refusals
  refused = all(
    isinstance(candidate, candidates_lib.Refused)
    for candidate in tuning.candidates
    if is_formed(candidate)
  )
  if not (as_written and refused):
    return ""
  reasons = "; ".join(f"{r.where}: {r.reason}" for r in as_written)
  return f"There are no other forms of the program. {reasons}."


def is_formed(
  candidate: candidates_lib.Candidate | candidates_lib.Refused,
) -> bool:
  """Whether it is of another form than the program as written."""
  return not candidate.config.program.is_as_written


def _by_form(
  tuning: tuning_lib.Tuning,
) -> dict[object, list[candidates_lib.Candidate | candidates_lib.Refused]]:
  """All that was tried, by the form of the program."""
  found: dict[
    object, list[candidates_lib.Candidate | candidates_lib.Refused]
  ] = {}
  for candidate in tuning.candidates:
    key = rewriting.key(candidate.config.program)
    found.setdefault(key, []).append(candidate)
  return found


def _sentences(outcome: form.Outcome) -> Sequence[str]:
  refusals = [f"Left alone: {r.where}: {r.reason}." for r in outcome.refusals]
  return [*_first(outcome.actions), *_first(refusals)]


def _first(sentences: Sequence[str]) -> Sequence[str]:
  shown = list(sentences[:_MOST_SENTENCES])
  if len(sentences) > len(shown):
    shown.append(f"And {len(sentences) - len(shown)} more of these.")
  return shown
