# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""What a search tried: arms and candidates, with their predicted times.

Candidates are compared with NCCL tuned, too: with what a plan would set of it,
settings per collective or one cap, by what is applied of the plan.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
import dataclasses
from typing import TypedDict

from lagom_xla import plan as plan_lib
from lagom_xla.compile import config as config_lib
from lagom_xla.compile import rewriting
from lagom_xla.costs import in_words
from lagom_xla.costs import uncertainty
from lagom_xla.flags import environment
from lagom_xla.passes import combine
from lagom_xla.passes.program import form as form_lib
from lagom_xla.passes.schedule import orders as orders_lib
from lagom_xla.search.xla import arms as arms_lib
from lagom_xla.search.xla import candidates as candidates_lib


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Arm:
  """What could be run without a plan; times are predicted.

  Times are None where it was refused or not tried.

  Attributes:
    name: of what runs today, or of a recipe.
    source: where it is published; "" for what is not.
    notes: what else should be known of it, in sentences.
    xla_options: XLA option -> value.
    failure: why XLA refused it; None where it did not.
    step_time_us: under NCCL's own choices.
    tuned_step_time_us: with searched settings; None also where none were
      searched, as the step is slower than today's without them.
  """

  name: str
  source: str
  notes: tuple[str, ...]
  xla_options: Mapping[str, bool | int | float | str]
  failure: str | None
  step_time_us: float | None
  tuned_step_time_us: float | None


def arms(search: candidates_lib.Search) -> tuple[Arm, ...]:
  """All arms, what runs today first."""
  options = environment.options_in_words()
  name = options if environment.is_set() else f"today: {options}"
  today = arms_lib.Arm(name=name, config=search.default.config)
  return tuple(
    Arm(
      name=arm.name,
      source=arm.source,
      notes=tuple(arm.notes),
      xla_options=arm.config.options,
      **_outcome(search.found(arm.config)),
    )
    for arm in (today, *search.arms)
  )


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

  @property
  def verdict(self) -> str:
    """That it is kept, or why it is not."""
    if self.failure is not None:
      return refusal(self.failure)
    return self.obstacle or "kept"


def candidates(search: candidates_lib.Search) -> tuple[Candidate, ...]:
  """All that was tried, what runs today first."""
  return tuple(
    _candidate(found, search) for found in (search.default, *search.others)
  )


def _candidate(
  found: candidates_lib.Candidate | candidates_lib.Refused,
  search: candidates_lib.Search,
) -> Candidate:
  taken = found if isinstance(found, candidates_lib.Candidate) else None
  config, gain_us = found.config, None
  if taken is not None:
    gain = uncertainty.gain(search.default.default_times, taken.tuned_times)
    gain_us = plan_lib.Range(low_us=gain.low, high_us=gain.high)
  return Candidate(
    program=config.program,
    rewrites=tuple(taken.outcome.actions) if taken else (),
    left_alone=tuple(taken.outcome.refusals) if taken else (),
    xla_options=config.options,
    combine_groups=config.combine_groups,
    has_scheduler_profile=config.scheduler_profile is not None,
    reordered=tuple(sorted(config.orders)),
    gain_us=gain_us,
    obstacle=search.obstacle(taken) if taken else "refused",
    num_trials=taken.num_trials if taken else 0,
    **_outcome(found),
  )


class _Outcome(TypedDict):
  failure: str | None
  step_time_us: float | None
  tuned_step_time_us: float | None


def _outcome(
  found: candidates_lib.Candidate | candidates_lib.Refused | None,
) -> _Outcome:
  """What an arm and a candidate both have of what was found."""
  if not isinstance(found, candidates_lib.Candidate):
    failure = found.reason if found else None
    return _Outcome(failure=failure, step_time_us=None, tuned_step_time_us=None)
  tuned_us = found.tuned.step_time_us if found.is_searched else None
  return _Outcome(
    failure=None,
    step_time_us=found.under_nccl_defaults.step_time_us,
    tuned_step_time_us=tuned_us,
  )


def refusal(reason: str) -> str:
  """That XLA refused a config, and why, in a line."""
  first, *_ = reason.splitlines() or [""]
  return f"refused: {first}"


def parts(config: config_lib.XlaConfig) -> Iterator[tuple[str, str]]:
  """What a config sets beside options, each with its value, in words."""
  if not config.program.is_as_written:
    yield "program", rewriting.in_words(config.program)
  if config.combine_groups is not None:
    groups = in_words.count(config.combine_groups, "group")
    yield "combine groups", f"{groups} of ours"
  if config.scheduler_profile is not None:
    yield "scheduler profile", "costs with contention, for XLA's scheduler"
  if config.orders:
    yield "order", orders_lib.in_words(config.orders)


def config_in_words(
  config: config_lib.XlaConfig, arms: Sequence[arms_lib.Arm] = ()
) -> str:
  """What a config sets, in a line."""
  written = []
  for name, theirs in (("", {}), *((a.name, a.config.options) for a in arms)):
    own = config.options
    changed = [option for option in own if own[option] != theirs.get(option)]
    added = [f"{o}={in_words.option(o, str(own[o]))}" for o in changed]
    left_out = [f"no {option}" for option in theirs if option not in own]
    said = [text.replace("xla_gpu_", "", 1) for text in (*added, *left_out)]
    written.append([*filter(None, [name]), *said])
  words = [*min(written, key=len), *(value for _, value in parts(config))]
  return ", ".join(words) or "as it runs today"
