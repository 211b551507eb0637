# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Options alone: the search for whoever sets XLA_FLAGS and no more.

Every candidate is judged as `lagom-xla tune --flags-only` does, with XLA's cap
on channels where one surely gains; or under NCCL's own choices, as recipes are.
Without this flag a plan may hold other options, which suit the settings that a
tuner plugin applies.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from lagom_xla import errors
from lagom_xla.compile import config as config_lib
from lagom_xla.compile import target as target_lib
from lagom_xla.costs import channel_limit
from lagom_xla.flags import nccl_channels
from lagom_xla.search.nccl import channel_cap
from lagom_xla.search.xla import arms as arms_lib
from lagom_xla.search.xla import as_run
from lagom_xla.search.xla import candidates as candidates_lib
from lagom_xla.search.xla import joint
from lagom_xla.search.xla import named


def search(
  target: target_lib.Target,
  *,
  arms: Sequence[arms_lib.Arm] | None = None,
  may_cap: bool = True,
  progress: candidates_lib.Progress = lambda _: None,
) -> candidates_lib.Search:
  """Searches the options of a target.

  Args:
    target: what is searched.
    arms: what to begin with; by default all that is known of.
    may_cap: whether XLA may cap the channels of all collectives together.
    progress: called with a few words after each candidate.

  Raises:
    CompileError: the target does not compile with the defaults.
  """
  limit = channel_limit.by_option if may_cap else None
  searcher = channel_cap.WithoutPlugin(limit=limit)
  found = joint.search(target, searcher=searcher, arms=arms, progress=progress)
  # What is kept is judged from the beginning, as `tune` does.
  while True:
    best = found.best
    judged = named.candidate(best, target=target, searcher=searcher)
    found = found.judged_again(best, judged)
    if found.best is judged:
      return found


def options(candidate: candidates_lib.Candidate) -> dict[str, object]:
  """What a plan for --flags-only sets to have a candidate."""
  cap = channel_cap.surest(candidate.runs, channel_limit.by_option)
  found: dict[str, object] = dict(candidate.config.options)
  if cap.max_channels is not None:
    found[nccl_channels.OPTION] = cap.max_channels
  return found


def step_ms(
  target: target_lib.Target, options: Mapping[str, bool | int | float | str]
) -> float | None:
  """A step's time with these options; None where XLA refuses them."""
  config = config_lib.XlaConfig(options=options)
  try:
    step = as_run.scheduled(target, config)
    runs = as_run.step(target, config, step)
  except errors.CompileError:
    return None
  return runs.timeline(runs.default).step_time_us / 1e3


def recipes_ms(search: candidates_lib.Search) -> dict[str, float]:
  """What each published recipe that compiles comes to."""
  published = [arm for arm in search.arms if arm.source]
  found = {arm.name: search.found(arm.config) for arm in published}
  return {
    name: candidate.under_nccl_defaults.step_time_us / 1e3
    for name, candidate in found.items()
    if isinstance(candidate, candidates_lib.Candidate)
  }
