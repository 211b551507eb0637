# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""XLA options outside, NCCL settings inside.

Which collectives exist, and what runs beside them, is up to XLA's combiners. So
for each candidate set of XLA options the module is scheduled again, its NCCL
settings are searched anew, and the whole step is replayed.

First version: the three combine thresholds, one after the other, the kind of
collective that is exposed most first. A threshold is kept when the step becomes
shorter by a tenth of a percent under the searched settings *and* no longer
under NCCL's defaults: not everybody who applies the options can load a tuner
plugin.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
import dataclasses

from lagom_xla import compile as compile_lib
from lagom_xla import target as target_lib
from lagom_xla.costs import nccl
from lagom_xla.costs import step as step_lib
from lagom_xla.costs import timeline
from lagom_xla.passes import overlap as overlap_lib
from lagom_xla.search import channel_cap
from lagom_xla.search import combining
from lagom_xla.search import lagom
from lagom_xla.search import problem as problem_lib
from lagom_xla.search import searcher

_MIB = 2**20
# A predicted gain below this share of the step is within the model's error, and
# no reason to leave XLA's defaults.
_LEAST_GAIN = 1e-3
# What the default settings that a plan keeps may cost, as a share of the step.
_SAME = 1e-4

Progress = Callable[[str], None]
XlaOptions = Mapping[str, bool | int | str]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Candidate:
  """One set of XLA options with the best NCCL settings found for it.

  Attributes:
    options: XLA options on top of the defaults.
    step: the step as scheduled under them.
    configuration: the searched NCCL settings.
    default: the replay under NCCL's own choices.
    tuned: the replay under `configuration`.
    num_trials: trials that the NCCL search took.
  """

  options: XlaOptions
  step: step_lib.Step
  configuration: problem_lib.Configuration
  default: timeline.Timeline
  tuned: timeline.Timeline
  num_trials: int


@dataclasses.dataclass(frozen=True, kw_only=True)
class Refused:
  """A set of XLA options that XLA refused, and why."""

  options: XlaOptions
  reason: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class Search:
  """What a search tried.

  Attributes:
    default: the candidate with XLA's defaults.
    others: all others, in the order in which they were tried.
  """

  default: Candidate
  others: tuple[Candidate | Refused, ...] = ()

  @property
  def best(self) -> Candidate:
    """The candidate to keep: see the module's docstring."""
    kept = self.default
    for candidate in self.others:
      if isinstance(candidate, Candidate) and self._improves(candidate, kept):
        kept = candidate
    return kept

  def without(self, candidate: Candidate) -> Search:
    """The search as if it had not tried a candidate."""
    return dataclasses.replace(
      self, others=tuple(c for c in self.others if c is not candidate)
    )

  def _improves(self, candidate: Candidate, kept: Candidate) -> bool:
    enough_us = kept.tuned.step_time_us * (1 - _LEAST_GAIN)
    return (
      candidate.tuned.step_time_us < enough_us
      and candidate.default.step_time_us <= self.default.default.step_time_us
    )


def num_candidates(target: target_lib.Target) -> int:
  """How many candidates a search looks at, at most."""
  if target.is_read_only:
    return 1
  kinds = len(combining.OPTIONS)
  return 1 + kinds * len(combining.CHOICES_BYTES)


def search(
  target: target_lib.Target, *, progress: Progress = lambda _: None
) -> Search:
  """Searches XLA options and NCCL settings together.

  Args:
    target: what to tune.
    progress: called with a few words after each candidate.

  Raises:
    compile_lib.CompileError: the target does not compile with the defaults.
  """
  found = Search(default=evaluate(target, {}))
  progress("XLA's defaults")
  if target.is_read_only:
    return found
  for kind in _by_exposure(found.default):
    incumbent = found.best
    for threshold in combining.worth_trying(
      incumbent.step.analysis.collectives, kind
    ):
      options = {**incumbent.options, combining.OPTIONS[kind]: threshold}
      candidate: Candidate | Refused
      try:
        candidate = evaluate(target, options)
      except compile_lib.CompileError as error:
        candidate = Refused(options=options, reason=str(error))
      found = dataclasses.replace(found, others=(*found.others, candidate))
      progress(f"{kind} combined up to {threshold // _MIB} MiB")
  return found


def evaluate(target: target_lib.Target, options: XlaOptions) -> Candidate:
  """Schedules the target with these options and searches its settings.

  Raises:
    compile_lib.CompileError: XLA refused the options.
  """
  module = target.schedule({**options, **compile_lib.COST_ESTIMATES})
  step = step_lib.Step(overlap_lib.analyze(module), target.cluster)
  configuration, num_trials = search_settings(step)
  default = step.timeline(step.default)
  tuned = step.timeline(configuration)
  if tuned.step_time_us >= default.step_time_us:
    configuration, tuned = step.default, default
  return Candidate(
    options=options,
    step=step,
    configuration=configuration,
    default=default,
    tuned=tuned,
    num_trials=num_trials,
  )


def search_settings(
  step: step_lib.Step,
) -> tuple[problem_lib.Configuration, int]:
  """Searches the NCCL settings of all problems of a step.

  It starts from NCCL's defaults under the best channel cap, which is as good as
  it gets with one choice for all; sends and receives start from the defaults,
  which no setting per key changes. Keys for which NCCL's own choice is as good
  as what was found keep it: a plan should say only what matters.
  """
  capped = channel_cap.best(step).configuration
  start = {
    key: step.default[key] if key.kind in nccl.SEND_RECV else capped[key]
    for key in step.keys
  }
  step_time_us = step.timeline(step.default).step_time_us
  same_us = _SAME * step_time_us / max(len(step.keys), 1)
  configuration = dict(start)
  num_trials = 0
  for problem in problem_lib.problems(step):

    def profile(
      trial: problem_lib.Configuration, problem: problem_lib.Problem = problem
    ) -> problem_lib.Profile:
      return problem_lib.profile(step, problem, trial)

    found, trials = searcher.run(
      lagom, problem, step.cluster, start=start, profile=profile
    )
    found = dict(found)
    limit_us = profile(found).total_us + same_us * len(problem.keys)
    for key in problem.keys:
      reverted = {**found, key: step.default[key]}
      if profile(reverted).total_us <= limit_us:
        found = reverted
    configuration.update(found)
    num_trials += trials + len(problem.keys) + 1
  return configuration, num_trials


def _by_exposure(candidate: Candidate) -> list[str]:
  """The kinds that have a combiner, the most exposed first."""
  exposed = dict.fromkeys(combining.OPTIONS, 0.0)
  present = set()
  for collective in candidate.step.analysis.collectives:
    if collective.kind in exposed:
      present.add(collective.kind)
      exposed[collective.kind] += candidate.default.exposed_us.get(
        collective.name, 0.0
      )
  return sorted(present, key=lambda kind: (-exposed[kind], kind))
