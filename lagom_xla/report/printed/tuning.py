# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""A tuning in JSON: the plan, the step before and after, all that was tried.

What `lagom-xla tune --format=json` prints.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from lagom_xla import plan as plan_lib
from lagom_xla import validation
from lagom_xla.passes.schedule import memory
from lagom_xla.profiling import costing as costing_lib
from lagom_xla.report.printed import arm as arm_lib
from lagom_xla.report.printed import candidate as candidate_lib
from lagom_xla.report.printed import measured_costs
from lagom_xla.report.printed import timeline as timeline_lib
from lagom_xla.search.xla import candidates as candidates_lib
from lagom_xla.tuner import tuning as tuning_lib
from lagom_xla.verify import effects as effects_lib


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Predicted:
  """The step without the plan and with it.

  Attributes:
    before: as it runs today: under all defaults, or with `XLA_FLAGS` where that
      is set.
    after: under the whole plan.
    lower_bound_us: step time that neither module can beat, without the plan and
      with it, in whatever order and with whatever settings of NCCL.
  """

  before: timeline_lib.Timeline
  after: timeline_lib.Timeline
  lower_bound_us: float


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class PeakBytes:
  """Device memory at the peak of a step, by XLA's buffer assignment.

  Attributes:
    before: as it runs today; None without a full compile.
    after: with the plan; None without a full compile.
  """

  before: int | None
  after: int | None


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Recomputed:
  """Instructions that XLA runs again because memory is short.

  Where there are any, times are those of the compiled module, else of the
  schedule.

  Attributes:
    before: as it runs today.
    after: with the plan.
  """

  before: int
  after: int


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Tuning:
  """A plan, what it should gain, and all that was tried for it.

  Attributes:
    plan: what `plan.json` holds; the `XLA_FLAGS` that "today" rests on are its
      `xla_flags`.
    predicted: the step without the plan and with it.
    peak_bytes: memory without the plan and with it.
    effects: which knobs of the plan visibly acted.
    arms: what could be run without a plan, what runs today first.
    candidates: all that was tried for XLA, what runs today first.
    recomputed: what XLA rematerializes.
    num_predicted: schedules that were predicted without compiling them.
    num_trials: NCCL configurations tried, over all candidates.
    stopped: what stopped the search before its end (`Ctrl-C`, `SIGTERM`, `the
      time budget of 120 s`); None if nothing did. Where it was stopped nothing
      was compiled fully: `peak_bytes` has None, and `effects` is empty.
    profile: the measured costs that the step is priced by; None without
      --profile.
  """

  __pydantic_config__ = validation.STRICT

  plan: plan_lib.Plan
  predicted: Predicted
  peak_bytes: PeakBytes
  effects: tuple[effects_lib.Effect, ...]
  arms: tuple[arm_lib.Arm, ...]
  candidates: tuple[candidate_lib.Candidate, ...]
  recomputed: Recomputed
  num_predicted: int
  num_trials: int
  stopped: str | None
  profile: measured_costs.MeasuredCosts | None


def of_tuning(
  tuned: tuning_lib.Tuning, costed: costing_lib.Costing | None = None
) -> Tuning:
  """What is to be said of what tuning found.

  Args:
    tuned: what it found.
    costed: the costs of a profile that steps are priced by, if they are.
  """
  before, kept = tuned.before, tuned.kept
  return Tuning(
    plan=tuned.plan,
    predicted=Predicted(
      before=timeline_lib.of_replay(tuned.timeline_before, before),
      after=timeline_lib.of_replay(tuned.timeline_after, kept.runs),
      lower_bound_us=tuned.lower_bound_us,
    ),
    peak_bytes=PeakBytes(
      before=tuned.peak_bytes_before, after=tuned.peak_bytes_after
    ),
    effects=tuned.effects,
    arms=arm_lib.of_search(tuned.search),
    candidates=candidate_lib.of_search(tuned.search),
    recomputed=Recomputed(
      before=_num_recomputed(tuned.search.default),
      after=_num_recomputed(kept),
    ),
    num_predicted=tuned.search.num_predicted,
    num_trials=tuned.num_trials,
    stopped=tuned.stopped.reason if tuned.stopped else None,
    profile=measured_costs.of_step(before, costed) if costed else None,
  )


def schema() -> dict[str, Any]:
  """The JSON schema of `lagom-xla tune --format=json`."""
  return validation.schema(Tuning)


def _num_recomputed(candidate: candidates_lib.Candidate) -> int:
  module = candidate.runs.analysis.module
  return len(memory.recomputed(module))
