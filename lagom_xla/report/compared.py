# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Times that candidates are compared by: with what a plan would set of NCCL.

That depends on what is applied of a plan: settings per collective, one cap, or
nothing, where a step under NCCL's own choices says it all.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from lagom_xla import plan as plan_lib
from lagom_xla.costs import in_words
from lagom_xla.search.xla import candidates as candidates_lib

# The column of these times, by what is applied.
_COLUMNS: Mapping[plan_lib.Applied, tuple[str, ...]] = {
  "all": ("NCCL tuned",),
  "env": ("NCCL capped",),
  "flags": (),
}


def columns(applied: plan_lib.Applied) -> tuple[str, ...]:
  """The column for them; none where they are those under NCCL's own choices."""
  return _COLUMNS[applied]


def cells(
  candidate: candidates_lib.Candidate, applied: plan_lib.Applied
) -> tuple[str, ...]:
  """What a candidate has there, in ms."""
  if not columns(applied):
    return ()
  if not candidate.is_searched:
    return ("-",)
  return (in_words.ms(candidate.tuned.step_time_us),)


def tuned_us(candidate: candidates_lib.Candidate) -> float | None:
  """The same as a number; None where it was not looked for."""
  return candidate.tuned.step_time_us if candidate.is_searched else None


def note(
  candidates: Iterable[candidates_lib.Candidate], applied: plan_lib.Applied
) -> str | None:
  """What "-" means there; None where no candidate has it."""
  if any("-" in cells(candidate, applied) for candidate in candidates):
    return (
      "-: not searched, as under NCCL's own choices the step is slower than"
      " today's"
    )
  return None
