# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""What a joint search tries: XLA options with the best NCCL settings for them.

A candidate is believed only as compiled: XLA schedules the target with its
options, the NCCL settings of that schedule are searched, and the whole step is
replayed. XLA's defaults are always a candidate, and a set of options that XLA
refuses is a result like any other.
"""

from __future__ import annotations

from collections.abc import Mapping
import dataclasses

from lagom_xla import errors
from lagom_xla.compile import compiler as compile_lib
from lagom_xla.compile import target as target_lib
from lagom_xla.costs import step as step_lib
from lagom_xla.costs.replay import timeline
from lagom_xla.passes import combine
from lagom_xla.passes import overlap as overlap_lib
from lagom_xla.search.nccl import settings

# A predicted gain below this share of the step is within the model's error, and
# no reason to leave XLA's defaults.
LEAST_GAIN = 1e-3

XlaOptions = Mapping[str, bool | int | str]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Candidate:
  """One set of XLA options with the best NCCL settings found for it.

  Attributes:
    options: XLA options on top of the defaults.
    groups: collectives that travel together, by their labels; None where XLA's
      combiners decide.
    profile: costs that XLA's scheduler gets (`apply/xla/fdo.py`); None leaves
      it its own.
    step: the step as scheduled under them.
    configuration: the searched NCCL settings.
    default: the replay under NCCL's own choices.
    tuned: the replay under `configuration`.
    num_trials: trials that the NCCL search took.
  """

  options: XlaOptions
  groups: combine.Groups | None = None
  profile: bytes | None = None
  step: step_lib.Step
  configuration: step_lib.Configuration
  default: timeline.Timeline
  tuned: timeline.Timeline
  num_trials: int


@dataclasses.dataclass(frozen=True, kw_only=True)
class Refused:
  """A set of XLA options that XLA refused or no GPU can hold, and why."""

  options: XlaOptions
  groups: combine.Groups | None = None
  profile: bytes | None = None
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
    *and* no longer under NCCL's defaults: not everybody who applies the options
    can load a tuner plugin.
    """
    kept = self.default
    for candidate in self.others:
      if isinstance(candidate, Candidate) and self._improves(candidate, kept):
        kept = candidate
    return kept

  def with_(self, candidate: Candidate | Refused) -> Search:
    """The search with one more candidate tried."""
    return dataclasses.replace(self, others=(*self.others, candidate))

  @property
  def best_for_launchers(self) -> Candidate:
    """The candidate to keep where XLA can be told options and nothing else."""
    others = tuple(
      c for c in self.others if c.groups is None and c.profile is None
    )
    return dataclasses.replace(self, others=others).best

  def refused(self, candidate: Candidate, reason: str) -> Search:
    """The search with a candidate turned down after all, and why."""
    refused = Refused(
      options=candidate.options,
      groups=candidate.groups,
      profile=candidate.profile,
      reason=reason,
    )
    return dataclasses.replace(
      self,
      others=tuple(refused if c is candidate else c for c in self.others),
    )

  def _improves(self, candidate: Candidate, kept: Candidate) -> bool:
    enough_us = kept.tuned.step_time_us * (1 - LEAST_GAIN)
    return (
      candidate.tuned.step_time_us < enough_us
      and candidate.default.step_time_us <= self.default.default.step_time_us
    )


def evaluate(
  target: target_lib.Target,
  options: XlaOptions,
  groups: combine.Groups | None = None,
  profile: bytes | None = None,
) -> Candidate | Refused:
  """Schedules the target as told and searches its settings."""
  try:
    return _evaluate(target, options, groups, profile)
  except (errors.CompileError, errors.CombineError) as error:
    return Refused(
      options=options, groups=groups, profile=profile, reason=str(error)
    )


def evaluate_default(target: target_lib.Target) -> Candidate:
  """Schedules the target with XLA's defaults and searches its settings.

  Raises:
    CompileError: XLA refused the target itself.
  """
  return _evaluate(target, {}, None, None)


def schedule(
  target: target_lib.Target,
  options: XlaOptions,
  groups: combine.Groups | None = None,
  profile: bytes | None = None,
) -> step_lib.Step:
  """The target as XLA schedules it when told so, with its costs.

  Raises:
    CompileError: XLA refused.
    CombineError: the module cannot have these groups.
  """
  told = {**compiler_options(options, profile), **compile_lib.COST_ESTIMATES}
  if groups is None:
    module = target.schedule(told)
  else:
    module = target.schedule(told, groups)
  return step_lib.Step(overlap_lib.analyze(module), target.cluster)


def compiler_options(
  options: XlaOptions, profile: bytes | None
) -> compile_lib.Options:
  """What a compile is told besides groups."""
  return dict(options) if not profile else {**options, "fdo_profile": profile}


def _evaluate(
  target: target_lib.Target,
  options: XlaOptions,
  groups: combine.Groups | None,
  profile: bytes | None,
) -> Candidate:
  step = schedule(target, options, groups, profile)
  found = settings.search(step)
  return Candidate(
    options=options,
    groups=groups,
    profile=profile,
    step=step,
    configuration=found.configuration,
    default=step.timeline(step.default),
    tuned=step.timeline(found.configuration),
    num_trials=found.num_trials,
  )
