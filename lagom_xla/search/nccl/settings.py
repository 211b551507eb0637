# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""The best NCCL settings for a schedule that is fixed.

What a search finds is cleaned, because a plan should say only what matters,
and only what can act: keys for which NCCL's own choice is as good keep it, and
so do those whose calls NCCL cannot tell from another key's; where channels gain
nothing one is enough.
"""

from __future__ import annotations

import dataclasses

from lagom_xla.costs import step as step_lib
from lagom_xla.search.nccl import DEFAULT_SEARCHER
from lagom_xla.search.nccl import SEARCHERS
from lagom_xla.search.nccl import lockstep
from lagom_xla.search.nccl import problem as problem_lib
from lagom_xla.search.nccl import searcher as searcher_lib

# What cleaning may cost in all, as a share of the step; twice that where
# channels are taken away, too.
_SAME = 1e-4


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Result:
  """What a search found.

  Attributes:
    configuration: the best settings; NCCL's own where none are better.
    num_trials: configurations that were profiled.
  """

  configuration: step_lib.Configuration
  num_trials: int


def search(
  step: step_lib.Step,
  searcher: searcher_lib.Searcher = SEARCHERS[DEFAULT_SEARCHER],
) -> Result:
  """Searches the NCCL settings of all problems of a step.

  Args:
    step: what is searched.
    searcher: how, such as `Lagom()`.
  """
  history = lockstep.run_step(searcher, step)
  configuration = dict(history.configuration)
  num_trials = history.num_trials
  default_us = step.timeline(step.default).step_time_us
  same_us = _SAME * default_us / max(len(step.keys), 1)
  for problem in problem_lib.problems(step):
    kept, trials = _cleaned(step, problem, configuration, same_us)
    configuration.update(kept)
    num_trials += trials
  if step.timeline(configuration).step_time_us >= default_us:
    configuration = dict(step.default)
  return Result(configuration=configuration, num_trials=num_trials)


def _cleaned(
  step: step_lib.Step,
  problem: problem_lib.Problem,
  configuration: step_lib.Configuration,
  same_us: float,
) -> tuple[step_lib.Configuration, int]:
  """What matters of a configuration: see the module's docstring."""
  profile = problem_lib.Predictor(step, problem)
  kept = {key: configuration[key] for key in problem.keys}
  kept_us = profile(kept).total_us
  num_trials = 1
  for key in problem.keys:
    reverted = {**kept, key: step.default[key]}
    reverted_us = profile(reverted).total_us
    num_trials += 1
    if reverted_us <= kept_us + same_us or not step.calls[key]:
      kept, kept_us = reverted, reverted_us
      continue
    fewest = dataclasses.replace(kept[key], num_channels=1)
    fewer = {**kept, key: fewest}
    num_trials += 1
    fewer_us = profile(fewer).total_us
    if fewer_us <= kept_us + same_us:
      kept, kept_us = fewer, fewer_us
  return kept, num_trials
