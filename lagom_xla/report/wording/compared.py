# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Step times by which candidates are compared: with NCCL tuned, too.

Tuned means what a plan would set of NCCL: settings per collective, or one cap,
by what is applied of the plan.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from lagom_xla import plan as plan_lib
from lagom_xla.costs import in_words
from lagom_xla.search.xla import candidates as candidates_lib
from lagom_xla.tuner import tuning as tuning_lib

# The heading of these times, by what is applied.
_COLUMNS: Mapping[plan_lib.Applied, str] = {
  "all": "NCCL tuned",
  "env": "NCCL capped",
  "flags": "NCCL capped",
}


def column(applied: plan_lib.Applied) -> str:
  """The heading of the column of these times."""
  return _COLUMNS[applied]


def cell(candidate: candidates_lib.Candidate) -> str:
  """A candidate's time in that column, in ms; "-" where there is none."""
  us = tuned_us(candidate)
  return "-" if us is None else in_words.ms(us)


def tuned_us(candidate: candidates_lib.Candidate) -> float | None:
  """A candidate's time with NCCL tuned; None where that was not searched."""
  return candidate.tuned.step_time_us if candidate.is_searched else None


def refusal(refused: candidates_lib.Refused) -> str:
  """That XLA refused a config, and why, in a line."""
  reason, *_ = refused.reason.splitlines() or [""]
  return f"refused: {reason}"


def xla_us(tuning: tuning_lib.Tuning) -> float:
  """The step with what a plan sets of XLA, and nothing of NCCL's variables.

  XLA's options may have a cap on channels, where jobs set no more than them.
  """
  if tuning.plan.applied == "flags":
    return tuning.plan.planned_us
  return tuning.kept.under_nccl_defaults.step_time_us


def note(candidates: Iterable[candidates_lib.Candidate]) -> str | None:
  """What "-" means in that column; None where no candidate has it."""
  if all(candidate.is_searched for candidate in candidates):
    return None
  return (
    "-: not searched, as under NCCL's own choices the step is slower than"
    " today's"
  )
