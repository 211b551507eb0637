# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""A candidate in JSON: what XLA got, what it came to, why it is not kept."""

from __future__ import annotations

from collections.abc import Mapping
import dataclasses

from lagom_xla import plan as plan_lib
from lagom_xla.compile import config as config_lib
from lagom_xla.costs import uncertainty
from lagom_xla.passes import combine
from lagom_xla.passes.program import form as form_lib
from lagom_xla.report.wording import compared
from lagom_xla.search.xla import candidates as candidates_lib


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Candidate:
  """What was tried for XLA, and what it came to; times are predicted.

  Times and gain are None where XLA refused it.

  Attributes:
    program: the form of the program.
    rewrites: what was rewritten for it, a sentence each.
    left_alone: what was not.
    xla_options: XLA option -> value.
    combine_groups: labels of the collectives that XLA combines, group by group;
      None leaves it to XLA.
    has_scheduler_profile: whether XLA schedules by costs of ours.
    reordered: computations that run in an order of ours.
    failure: why it was refused; None where it was not.
    step_time_us: under NCCL's own choices.
    tuned_step_time_us: with the NCCL settings found, or what a plan for
      --flags-only or --env-only sets of NCCL; None where none were searched, as
      the step is slower than today's without them.
    gain_us: what it gains over what runs today.
    obstacle: why it is not kept; "" for the one that is.
    num_trials: NCCL configurations that were tried for it.
  """

  program: form_lib.Form
  rewrites: tuple[str, ...]
  left_alone: tuple[form_lib.Refusal, ...]
  xla_options: Mapping[str, bool | int | float | str]
  combine_groups: combine.Groups | None
  has_scheduler_profile: bool
  reordered: tuple[str, ...]
  failure: str | None
  step_time_us: float | None
  tuned_step_time_us: float | None
  gain_us: plan_lib.Range | None
  obstacle: str
  num_trials: int


def of_search(search: candidates_lib.Search) -> tuple[Candidate, ...]:
  """All that was tried, what runs today first."""
  return tuple(
    _refused(found)
    if isinstance(found, candidates_lib.Refused)
    else _taken(found, search)
    for found in (search.default, *search.others)
  )


def _taken(
  found: candidates_lib.Candidate, search: candidates_lib.Search
) -> Candidate:
  gain = uncertainty.gain(search.default.default_times, found.tuned_times)
  return dataclasses.replace(
    _of_config(found.config),
    rewrites=tuple(found.outcome.actions),
    left_alone=tuple(found.outcome.refusals),
    step_time_us=found.under_nccl_defaults.step_time_us,
    tuned_step_time_us=compared.tuned_us(found),
    gain_us=plan_lib.Range(low_us=gain.low, high_us=gain.high),
    obstacle=search.obstacle(found),
    num_trials=found.num_trials,
  )


def _refused(refused: candidates_lib.Refused) -> Candidate:
  return dataclasses.replace(
    _of_config(refused.config), failure=refused.reason, obstacle="refused"
  )


def _of_config(config: config_lib.XlaConfig) -> Candidate:
  """What is known before it is compiled."""
  return Candidate(
    program=config.program,
    rewrites=(),
    left_alone=(),
    xla_options=config.options,
    combine_groups=config.combine_groups,
    has_scheduler_profile=config.scheduler_profile is not None,
    reordered=tuple(sorted(config.orders)),
    failure=None,
    step_time_us=None,
    tuned_step_time_us=None,
    gain_us=None,
    obstacle="",
    num_trials=0,
  )
