# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Capped: a search as jobs judge it that load no plugin and set a cap.

Options are searched by what NCCL's settings make of them, which take a plugin.
Where it is not loaded, env.sh sets one cap on channels instead, and some
options that are slower under NCCL's own choices, so that no settings were
searched for them, pay with that. So at the end all that was compiled is judged
under caps, too, and what is kept so is the plan, if it is faster, with settings
where these are faster still.
"""

from __future__ import annotations

import dataclasses

from lagom_xla.costs import uncertainty
from lagom_xla.search.nccl import channel_cap
from lagom_xla.search.nccl import searcher as searcher_lib
from lagom_xla.search.nccl import settings as settings_lib
from lagom_xla.search.xla import candidates


def if_ahead(
  search: candidates.Search, by_cap: channel_cap.WithoutPlugin
) -> candidates.Search | None:
  """The search under caps, if what it keeps so is faster; else None.

  Args:
    search: under settings.
    by_cap: chooses the cap of a step.
  """
  kept_us = search.best.tuned.step_time_us
  # Most searches have no schedule that any cap brings below that.
  if not any(_is_ahead(c, kept_us, by_cap) for c in search.scheduled):
    return None
  capped = dataclasses.replace(
    search,
    default=_capped(search.default, by_cap),
    others=tuple(
      _capped(c, by_cap) if isinstance(c, candidates.Candidate) else c
      for c in search.others
    ),
    pruned=None,
  )
  return capped if capped.best.tuned.step_time_us < kept_us else None


def with_settings(
  search: candidates.Search, searcher: searcher_lib.Searcher
) -> candidates.Search:
  """A search under caps, its best one with settings if that stays the best.

  Args:
    search: under caps.
    searcher: of the NCCL settings.
  """
  kept = search.best
  found = settings_lib.search(kept.runs, searcher)
  more = dataclasses.replace(
    kept,
    settings={**kept.step.default, **found.configuration},
    tuned=kept.runs.timeline(found.configuration),
    tuned_times=found.tuned_times,
    num_trials=found.num_trials,
  )
  if more.tuned.step_time_us >= kept.tuned.step_time_us:
    return search
  settled = search.judged_again(kept, more)
  return settled if settled.best is more else search


def _is_ahead(
  candidate: candidates.Candidate,
  kept_us: float,
  by_cap: channel_cap.WithoutPlugin,
) -> bool:
  """Whether a candidate is faster than that under its cap.

  What takes least to tell goes first: a cap only rids of slowdowns, and the
  surest cap is not faster than the best one.
  """
  own = candidate.under_nccl_defaults
  return (
    own.step_time_us - own.total_slowdown_us < kept_us
    and channel_cap.best(candidate.runs).step_time_us < kept_us
    and _capped(candidate, by_cap).tuned.step_time_us < kept_us
  )


def _capped(
  candidate: candidates.Candidate, by_cap: channel_cap.WithoutPlugin
) -> candidates.Candidate:
  """A candidate under the surest cap in place of its settings."""
  runs = candidate.runs
  configuration = by_cap.configuration(runs)
  tuned = runs.timeline(configuration)
  return dataclasses.replace(
    candidate,
    settings={**candidate.step.default, **configuration},
    tuned=tuned,
    tuned_times=uncertainty.times(runs, configuration),
    capped=tuned,
  )
