# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""The telling of a story: of a tuning, or of an inspection.

story = telling.of_tuning(tuning, folder="plan")
"""

from __future__ import annotations

from collections.abc import Iterator
import shlex

from lagom_xla.costs import in_words
from lagom_xla.costs import lower_bound
from lagom_xla.costs import step as step_lib
from lagom_xla.costs import uncertainty
from lagom_xla.costs.replay import recorder
from lagom_xla.plan import made_for
from lagom_xla.report.page import drawing
from lagom_xla.report.page import losses
from lagom_xla.report.page import settings as settings_lib
from lagom_xla.report.page import story as story_lib
from lagom_xla.report.wording import compared
from lagom_xla.report.wording import instructions as instructions_lib
from lagom_xla.report.wording import step_notes
from lagom_xla.search.xla import arms as arms_lib
from lagom_xla.search.xla import candidates as candidates_lib
from lagom_xla.tuner import tuning as tuning_lib

_estimate = story_lib.Estimate.of
_PictureOf = tuple[story_lib.Picture, tuple[story_lib.Collective, ...]]


def of_inspection(
  step: step_lib.Step, *, measured_us: float | None = None
) -> story_lib.Story:
  """What a page tells of a step as it runs today.

  Args:
    step: the step.
    measured_us: what it takes by a profile, if there is one.
  """
  drawn, collectives = _drawn("before", step, step.default)
  before = uncertainty.times(step, step.default)
  return story_lib.Story(
    module_name=step.analysis.module.name,
    cluster=step.cluster.name,
    made_with=made_for.versions(),
    basis=step.basis,
    before=_estimate(uncertainty.step_time(before)),
    measured_us=measured_us,
    after=None,
    gain=None,
    lower_bound_us=lower_bound.us(step),
    notes=tuple(step_notes.of_step(step)),
    pictures=(drawn,),
    collectives_before=collectives,
    collectives_after=(),
    settings=(),
    tried=(),
    commands=(),
  )


def of_tuning(
  tuning: tuning_lib.Tuning, *, folder: str, measured_us: float | None = None
) -> story_lib.Story:
  """What a page tells of a tuning.

  Args:
    tuning: what was found.
    folder: where its plan is.
    measured_us: what the step takes by a profile, if there is one.
  """
  default, kept = tuning.search.default, tuning.kept
  step = default.runs
  before, collectives_before = _drawn("before", step, step.default)
  after, collectives_after = _drawn("after", kept.runs, kept.settings)
  return story_lib.Story(
    module_name=tuning.plan.module_name,
    cluster=tuning.plan.cluster.name,
    made_with=made_for.versions(),
    basis=step.basis,
    before=_estimate(uncertainty.step_time(default.default_times)),
    measured_us=measured_us,
    after=_estimate(uncertainty.step_time(kept.tuned_times)),
    gain=_estimate(uncertainty.gain(default.default_times, kept.tuned_times)),
    lower_bound_us=tuning.lower_bound_us,
    notes=(*step_notes.of_step(step), *_notes_on_plan(tuning)),
    pictures=(before, after),
    collectives_before=collectives_before,
    collectives_after=collectives_after,
    settings=settings_lib.of_tuning(tuning),
    tried=tuple(_tried(tuning, candidate) for candidate in tuning.candidates),
    commands=tuple(_commands(tuning, folder)),
  )


def _drawn(
  name: str, step: step_lib.Step, configuration: step_lib.Configuration
) -> _PictureOf:
  replayed = step.timeline(configuration)
  recorded = recorder.record(step.program, step.costs(configuration))
  instructions = instructions_lib.of_step(step)
  return (
    drawing.picture(name, recorded, replayed, instructions),
    losses.of_step(step, configuration, instructions),
  )


def _notes_on_plan(tuning: tuning_lib.Tuning) -> Iterator[str]:
  if rests_on := arms_lib.rests_on(tuning.plan.xla.options):
    yield rests_on
  if tuning.stopped is not None:
    yield (
      f"The search was stopped by {tuning.stopped.reason}: the plan is the best"
      f" of {in_words.count(tuning.candidates, 'candidate')}, and whether its"
      " parts act was not checked."
    )
  before, after = tuning.peak_bytes_before, tuning.peak_bytes_after
  if before is not None and after is not None:
    yield (
      "Peak memory per GPU, by XLA's buffer assignment:"
      f" {in_words.gigabytes(before)} before, {in_words.gigabytes(after)}"
      f" after, of {in_words.gigabytes(tuning.plan.cluster.gpu.hbm_bytes)}."
    )
  if predicted := tuning.search.num_predicted:
    yield f"Schedules predicted without compiling them: {predicted:,}."
  if replayed := tuning.num_trials:
    yield f"NCCL configurations replayed: {replayed:,}."


def _tried(
  tuning: tuning_lib.Tuning,
  candidate: candidates_lib.Candidate | candidates_lib.Refused,
) -> story_lib.Tried:
  name = settings_lib.config_in_words(candidate.config)
  if isinstance(candidate, candidates_lib.Refused):
    return story_lib.Tried(
      name=name, us=None, tuned_us=None, verdict=compared.refusal(candidate)
    )
  return story_lib.Tried(
    name=name,
    us=candidate.under_nccl_defaults.step_time_us,
    tuned_us=compared.tuned_us(candidate),
    verdict=tuning.search.obstacle(candidate) or "kept",
  )


def _commands(
  tuning: tuning_lib.Tuning, folder: str
) -> Iterator[story_lib.Command]:
  plan = tuning.plan
  if plan.is_default:
    yield story_lib.Command(
      words="Nothing is to be set: what runs today is the best that was found.",
      text="",
    )
    return
  place = shlex.quote(folder)
  yield story_lib.Command(
    words="In the script that starts each process, on every node, before it"
    " starts Python:",
    text=f"source {place}/env.sh",
  )
  if plan.needs_process:
    yield story_lib.Command(
      words="Around the step, as a part of the plan acts in the process only:",
      text=f"train_step = lagom_xla.tune(plan={folder!r})(train_step)",
    )
  yield story_lib.Command(
    words="Before a job of some length, to see that each setting still acts"
    " (TARGET is what was tuned):",
    text=f"lagom-xla verify {place} TARGET --cluster={plan.cluster.name}",
  )
