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


@dataclasses.dataclass(frozen=True, kw_only=True)
class Candidate:
  """One set of XLA options with the best NCCL settings found for it.

  Attributes:
    options: XLA options on top of the defaults.
    step: the step as scheduled under them; None where XLA refused.
    configuration: the searched NCCL settings.
    default: the replay under NCCL's own choices.
    tuned: the replay under `configuration`.
    num_trials: trials that the NCCL search took.
    failure: why XLA refused, or None.
  """

  options: Mapping[str, bool | int | str]
  step: step_lib.Step | None
  configuration: problem_lib.Configuration
  default: timeline.Timeline | None
  tuned: timeline.Timeline | None
  num_trials: int
  failure: str | None = None


def num_candidates(target: target_lib.Target) -> int:
  """How many candidates a search looks at, at most."""
  if target.is_read_only:
    return 1
  kinds = len(combining.OPTIONS)
  return 1 + kinds * len(combining.CHOICES_BYTES)


def search(
  target: target_lib.Target, *, progress: Progress = lambda _: None
) -> list[Candidate]:
  """Searches XLA options and NCCL settings together.

  Args:
    target: what to tune.
    progress: called with a few words after each candidate.

  Returns:
    All candidates, those that failed too. The first is XLA's default; the last
    one that was kept is `best(candidates)`.

  Raises:
    compile_lib.CompileError: the target does not compile with the defaults.
  """
  first = evaluate(target, {})
  if first.failure is not None:
    raise compile_lib.CompileError(first.failure)
  progress("XLA's defaults")
  candidates = [first]
  if target.is_read_only:
    return candidates
  for kind in _by_exposure(first):
    option = combining.OPTIONS[kind]
    incumbent = best(candidates)
    assert incumbent.step is not None
    for threshold in combining.worth_trying(
      incumbent.step.analysis.collectives, kind
    ):
      candidate = evaluate(target, {**incumbent.options, option: threshold})
      candidates.append(candidate)
      progress(f"{kind} combined up to {threshold // _MIB} MiB")
  return candidates


def best(candidates: list[Candidate]) -> Candidate:
  """The candidate to keep: see the module's docstring."""
  default, *others = candidates
  kept = default
  for candidate in others:
    if candidate.failure is None and _improves(candidate, kept, default):
      kept = candidate
  return kept


def evaluate(
  target: target_lib.Target, options: Mapping[str, bool | int | str]
) -> Candidate:
  """Schedules the target with these options and searches its settings."""
  try:
    module = target.schedule({**options, **compile_lib.COST_ESTIMATES})
  except compile_lib.CompileError as error:
    return Candidate(
      options=options,
      step=None,
      configuration={},
      default=None,
      tuned=None,
      num_trials=0,
      failure=str(error),
    )
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


def _improves(
  candidate: Candidate, kept: Candidate, default: Candidate
) -> bool:
  assert candidate.tuned and kept.tuned
  assert candidate.default and default.default
  return (
    candidate.tuned.step_time_us < kept.tuned.step_time_us * (1 - _LEAST_GAIN)
    and candidate.default.step_time_us <= default.default.step_time_us
  )


def _by_exposure(candidate: Candidate) -> list[str]:
  """The kinds that have a combiner, the most exposed first."""
  assert candidate.step is not None and candidate.default is not None
  exposed = dict.fromkeys(combining.OPTIONS, 0.0)
  present = set()
  for collective in candidate.step.analysis.collectives:
    if collective.kind in exposed:
      present.add(collective.kind)
      exposed[collective.kind] += candidate.default.exposed_us.get(
        collective.name, 0.0
      )
  return sorted(present, key=lambda kind: (-exposed[kind], kind))
