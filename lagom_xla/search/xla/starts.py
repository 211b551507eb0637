# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Starts: the search over options from the best arm, not from XLA's default.

A search by small steps ends where no step gains, and where that is depends on
where it began. So every arm is compiled, and the options are searched again
from the fastest of them that the default is not.
"""

from __future__ import annotations

from collections.abc import Sequence
import dataclasses

from lagom_xla.search.xla import arms as arms_lib
from lagom_xla.search.xla import candidates
from lagom_xla.search.xla import options

# Sets of options that are compiled from the best arm, beside the arms.
MAX_COMPILES = 8


def search(
  so_far: candidates.Search,
  evaluate: candidates.Evaluate,
  arms: Sequence[arms_lib.Arm],
  *,
  max_compiles: int = MAX_COMPILES,
  progress: candidates.Progress = lambda _: None,
) -> candidates.Search:
  """Goes on from a search that began with the default.

  Args:
    so_far: what was tried so far.
    evaluate: schedules and searches a config.
    arms: what else to begin with.
    max_compiles: how many candidates may be compiled beside the arms.
    progress: called with a few words after each candidate.
  """
  so_far = dataclasses.replace(so_far, arms=tuple(arms))
  for arm in arms:
    if so_far.found(arm.config) is None:
      so_far = so_far.with_candidate(evaluate(arm.config))
      progress(arm.name)
  found = [so_far.found(arm.config) for arm in arms]
  started = [c for c in found if isinstance(c, candidates.Candidate)]
  if not started:
    return so_far
  start = min(started, key=lambda c: c.tuned.step_time_us)
  if start.tuned.kernel_us >= so_far.best.tuned.step_time_us:
    return so_far  # Its kernels alone take longer than the best step.
  more = options.search(
    candidates.Search(default=start),
    evaluate,
    max_compiles=1 + max_compiles,
    progress=progress,
  )
  return dataclasses.replace(
    so_far,
    others=(*so_far.others, *more.others),
    num_predicted=so_far.num_predicted + more.num_predicted,
  )
