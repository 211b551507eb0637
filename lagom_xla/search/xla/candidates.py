# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Candidates: XLA configs, each with the best NCCL settings for it.

A candidate is judged as compiled: XLA schedules the target with its config, the
NCCL settings of that schedule are searched, and the whole step is replayed.
XLA's defaults are always a candidate. A config that XLA refuses is recorded
with the reason.
"""

from __future__ import annotations

from collections.abc import Callable
import dataclasses

from lagom_xla import errors
from lagom_xla.compile import config as config_lib
from lagom_xla.compile import target as target_lib
from lagom_xla.costs import step as step_lib
from lagom_xla.costs.replay import timeline
from lagom_xla.search.nccl import searcher as searcher_lib
from lagom_xla.search.nccl import settings as settings_lib

# A predicted gain below this share of the step is within the model's error, and
# no reason to leave XLA's defaults.
LEAST_GAIN = 1e-3

Progress = Callable[[str], None]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Candidate:
  """An XLA config, with the best NCCL settings found for it.

  Attributes:
    config: the XLA config.
    step: the step as scheduled under it.
    settings: the searched NCCL settings, by tuning key.
    under_nccl_defaults: the replay under NCCL's own choices.
    tuned: the replay under `settings`.
    num_trials: trials that the NCCL search took.
  """

  config: config_lib.XlaConfig
  step: step_lib.Step
  settings: step_lib.Configuration
  under_nccl_defaults: timeline.Timeline
  tuned: timeline.Timeline
  num_trials: int


@dataclasses.dataclass(frozen=True, kw_only=True)
class Refused:
  """A config that XLA refused or no GPU can hold, and why."""

  config: config_lib.XlaConfig
  reason: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class Search:
  """What a search tried.

  Attributes:
    default: the candidate with XLA's defaults.
    others: all others, in the order in which they were tried.
    num_predicted: schedules that were predicted without compiling them.
  """

  default: Candidate
  others: tuple[Candidate | Refused, ...] = ()
  num_predicted: int = 0

  @property
  def best(self) -> Candidate:
    """The candidate to keep.

    One that makes the step shorter by `LEAST_GAIN` under the searched settings
    *and* no longer under NCCL's defaults: not every job that applies the
    options can load a tuner plugin.
    """
    kept = self.default
    for candidate in self.others:
      if isinstance(candidate, Candidate) and self._improves(candidate, kept):
        kept = candidate
    return kept

  def with_candidate(self, candidate: Candidate | Refused) -> Search:
    """The search with one more candidate tried."""
    return dataclasses.replace(self, others=(*self.others, candidate))

  @property
  def best_for_launchers(self) -> Candidate:
    """The candidate to keep where XLA can be given options and nothing else."""
    others = tuple(c for c in self.others if not c.config.needs_process)
    return dataclasses.replace(self, others=others).best

  def refused(self, candidate: Candidate, reason: str) -> Search:
    """The search with a candidate turned down after all, and why."""
    refused = Refused(config=candidate.config, reason=reason)
    return dataclasses.replace(
      self,
      others=tuple(refused if c is candidate else c for c in self.others),
    )

  def _improves(self, candidate: Candidate, kept: Candidate) -> bool:
    enough_us = kept.tuned.step_time_us * (1 - LEAST_GAIN)
    before_us = self.default.under_nccl_defaults.step_time_us
    return (
      candidate.tuned.step_time_us < enough_us
      and candidate.under_nccl_defaults.step_time_us <= before_us
    )


Evaluate = Callable[[config_lib.XlaConfig], Candidate | Refused]


def evaluate(
  config: config_lib.XlaConfig,
  *,
  target: target_lib.Target,
  searcher: searcher_lib.Searcher,
) -> Candidate | Refused:
  """Schedules a target with a config and searches its NCCL settings."""
  try:
    return evaluate_or_raise(config, target=target, searcher=searcher)
  except (errors.CompileError, errors.CombineError) as error:
    return Refused(config=config, reason=str(error))


def evaluate_or_raise(
  config: config_lib.XlaConfig,
  *,
  target: target_lib.Target,
  searcher: searcher_lib.Searcher,
) -> Candidate:
  """The same, for a config without which there is nothing to search.

  Raises:
    CompileError: XLA refused.
    CombineError: the module cannot have these combine groups.
  """
  step = step_lib.of_module(target.schedule(config), target.cluster)
  found = settings_lib.search(step, searcher)
  return Candidate(
    config=config,
    step=step,
    settings=found.configuration,
    under_nccl_defaults=step.timeline(step.default),
    tuned=step.timeline(found.configuration),
    num_trials=found.num_trials,
  )
