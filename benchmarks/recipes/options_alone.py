# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Options alone: the search for whoever sets XLA_FLAGS and no more.

Every candidate is judged under NCCL's own choices, as recipes are, and as
`lagom-xla tune --flags-only` does. Without that flag a plan may hold other
options, which suit the settings that a tuner plugin applies.
"""

from __future__ import annotations

import functools

from lagom_xla.compile import target as target_lib
from lagom_xla.search.nccl import without_plugin
from lagom_xla.search.xla import candidates as candidates_lib
from lagom_xla.search.xla import joint


def search(
  target: target_lib.Target,
  *,
  progress: candidates_lib.Progress = lambda _: None,
) -> tuple[candidates_lib.Search, candidates_lib.Search]:
  """Searches from the default alone, and with all arms.

  Args:
    target: what is searched.
    progress: called with a few words after each candidate.

  Returns:
    Both searches.

  Raises:
    CompileError: the target does not compile with the defaults.
  """
  search_options = functools.partial(
    joint.search,
    target,
    searcher=without_plugin.WithoutPlugin(may_cap=False),
    progress=progress,
  )
  return search_options(arms=()), search_options()


def recipes_ms(search: candidates_lib.Search) -> dict[str, float]:
  """What each published recipe that compiles comes to."""
  published = [arm for arm in search.arms if arm.source]
  found = {arm.name: search.found(arm.config) for arm in published}
  return {
    name: candidate.under_nccl_defaults.step_time_us / 1e3
    for name, candidate in found.items()
    if isinstance(candidate, candidates_lib.Candidate)
  }
