# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Runners-up of a search: candidates worth a measurement beside the best.

A search keeps only what is surely faster. Where steps are measured, what is
merely predicted to be faster can be tried, too: each of another kind than those
before it, since candidates of one kind are wrong together.
"""

from __future__ import annotations

from lagom_xla.compile import config as config_lib
from lagom_xla.search.xla import candidates as candidates_lib

# More of them would cost a run more blocks of steps than they are likely to
# gain: each is the best that is left of what was predicted to be behind.
MOST = 2


def ratio(
  search: candidates_lib.Search, candidate: candidates_lib.Candidate
) -> float:
  """A candidate's predicted step time over the default's.

  Both under NCCL's own choices: settings of NCCL act when a process starts.
  """
  default = search.default.under_nccl_defaults.step_time_us
  return candidate.under_nccl_defaults.step_time_us / default


def of(search: candidates_lib.Search) -> list[candidates_lib.Candidate]:
  """The fastest candidates of kinds that the best is not of, best first.

  None that is predicted to be slower than XLA's defaults, nor two that XLA
  schedules alike.
  """
  kinds = {_kind(search.planned), _kind(config_lib.DEFAULT)}
  schedules = [search.default.runs, search.best.runs]
  found: list[candidates_lib.Candidate] = []
  for candidate in sorted(search.scheduled, key=lambda c: ratio(search, c)):
    is_new = _kind(candidate.config) not in kinds and not any(
      candidate.runs is known for known in schedules
    )
    if is_new and len(found) < MOST and ratio(search, candidate) < 1:
      kinds.add(_kind(candidate.config))
      schedules.append(candidate.runs)
      found.append(candidate)
  return found


def _kind(config: config_lib.XlaConfig) -> frozenset[str]:
  """The parts that a config has."""
  parts = {
    "options": bool(config.options),
    "combine groups": config.combine_groups is not None,
    "form": not config.program.is_as_written,
    "scheduler profile": config.scheduler_profile is not None,
    "orders": bool(config.orders),
  }
  return frozenset(part for part, is_set in parts.items() if is_set)
