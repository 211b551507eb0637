# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Options alone: the search for whoever sets XLA_FLAGS and no more.

Every candidate is judged under NCCL's own choices, as recipes are. The search
of `lagom-xla tune` judges by the settings that it finds for each, which only a
tuner plugin can apply, and may keep other options for them.
"""

from __future__ import annotations

import dataclasses
import functools

from lagom_xla.compile import config as config_lib
from lagom_xla.compile import target as target_lib
from lagom_xla.search import nccl
from lagom_xla.search.xla import arms as arms_lib
from lagom_xla.search.xla import candidates as candidates_lib
from lagom_xla.search.xla import digests
from lagom_xla.search.xla import evaluation
from lagom_xla.search.xla import options
from lagom_xla.search.xla import starts
from lagom_xla.search.xla import turns

_SEARCHER = nccl.SEARCHERS[nccl.DEFAULT_SEARCHER]


def search(
  target: target_lib.Target,
  *,
  progress: candidates_lib.Progress = lambda _: None,
) -> tuple[candidates_lib.Search, candidates_lib.Search]:
  """Searches from the default alone, then with all arms.

  Args:
    target: what is searched.
    progress: called with a few words after each candidate.

  Returns:
    Both searches.

  Raises:
    CompileError: the target does not compile with the defaults.
  """
  tuned = evaluation.evaluate_or_raise(
    config_lib.DEFAULT, target=target, searcher=_SEARCHER
  )
  default = _untuned(tuned)
  known = {digests.of(tuned.step.analysis.module): tuned}
  in_turn = turns.ahead(target, is_to_the_end=default.peak_bytes is not None)

  def evaluate(
    config: config_lib.XlaConfig,
    fastest: candidates_lib.Candidate | None = None,
  ) -> candidates_lib.Candidate | candidates_lib.Refused:
    found = evaluation.evaluate(
      config,
      target=target,
      searcher=_SEARCHER,
      default=default,
      fastest=fastest,
      known=known,
    )
    if isinstance(found, candidates_lib.Refused):
      return found
    return _untuned(found)

  alone = candidates_lib.Search(default=default)
  from_default = options.search(
    alone, evaluate, in_turn=in_turn, progress=progress
  )
  return from_default, starts.search(
    alone,
    lambda fastest: functools.partial(evaluate, fastest=fastest),
    arms_lib.known(target.cluster).arms,
    in_turn=in_turn,
    progress=progress,
  )


def recipes_ms(search: candidates_lib.Search) -> dict[str, float]:
  """What each published recipe that compiles comes to."""
  published = [arm for arm in search.arms if arm.source]
  found = {arm.name: search.found(arm.config) for arm in published}
  return {
    name: candidate.under_nccl_defaults.step_time_us / 1e3
    for name, candidate in found.items()
    if isinstance(candidate, candidates_lib.Candidate)
  }


def _untuned(candidate: candidates_lib.Candidate) -> candidates_lib.Candidate:
  return dataclasses.replace(
    candidate,
    settings=candidate.runs.default,
    tuned=candidate.under_nccl_defaults,
    tuned_times=candidate.default_times,
  )
