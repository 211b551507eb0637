# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Verifies a plan: compares the step with it and without each part of it.

    verification = verify.verification.verify(plan, target)
    for effect in verification.effects: ...

The effect of a part is what leaving it out changes, with the rest of the plan
in place. These comparisons leave out orders: they belong to one schedule, and
leaving out another part gives another schedule.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
import dataclasses

from lagom_xla.apply import checked
from lagom_xla.compile import config as config_lib
from lagom_xla.compile import rewriting
from lagom_xla.compile import scheduler_profile
from lagom_xla.compile import target as target_lib
from lagom_xla.costs import in_words
from lagom_xla.costs import step as step_lib
from lagom_xla.costs import uncertainty
from lagom_xla.flags import environment
from lagom_xla.flags import nccl_channels
from lagom_xla.passes import combine
from lagom_xla.plan import plan as plan_lib
from lagom_xla.search.nccl import channel_cap
from lagom_xla.search.xla import arms as arms_lib
from lagom_xla.search.xla import evaluation
from lagom_xla.search.xla import knobs
from lagom_xla.verify import effects as effects_lib

PROGRAM = "program"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Part:
  """A part of a config, as two configs that differ only in it.

  `both_lack` names what both leave out of the whole config; "" for nothing.
  """

  knob: str
  value: str
  with_it: config_lib.XlaConfig
  without: config_lib.XlaConfig
  both_lack: str = ""


def parts(config: config_lib.XlaConfig) -> Iterator[Part]:
  """The parts of a config, except a cap on channels and orders."""
  config = dataclasses.replace(config, orders={})
  groups, profile = config.combine_groups, config.scheduler_profile
  if not config.program.is_as_written:
    # Combine groups and scheduler profiles are for the rewritten program.
    alone = config_lib.XlaConfig(options=config.options)
    yield Part(
      knob=PROGRAM,
      value=rewriting.in_words(config.program),
      with_it=dataclasses.replace(alone, program=config.program),
      without=alone,
    )
  for name in config.options:
    if name != nccl_channels.OPTION:
      # Combine groups overrule thresholds, which are for launchers that cannot
      # set groups. So thresholds are compared in the config without groups.
      is_overruled = name in combine.OPTIONS and groups is not None
      with_it = config
      if is_overruled:
        with_it = dataclasses.replace(config, combine_groups=None)
      yield Part(
        knob=name,
        value=str(config.options[name]),
        with_it=with_it,
        without=with_it.without_options([name]),
        both_lack="the combine groups" if is_overruled else "",
      )
  if groups is not None:
    yield Part(
      knob="combine groups",
      value=in_words.count(groups, "group"),
      with_it=config,
      without=dataclasses.replace(config, combine_groups=None),
    )
  if profile is not None:
    yield Part(
      knob="scheduler profile",
      value=f"{len(scheduler_profile.costs_us(profile))} costs",
      with_it=config,
      without=dataclasses.replace(config, scheduler_profile=None),
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Verification:
  """The checked effects of a plan, with step times for these compiles.

  Attributes:
    plan: the plan.
    default_us: predicted step time without the plan, but with its
      matrix-product libraries.
    planned_us: predicted step time with the whole plan.
    default_range_us: range of `default_us`.
    gain_us: range of the plan's gain.
    too_large: how much of a GPU's memory the step needs with the plan, if that
      is known to be too much and more than without it; else "".
    effects: the effect of each knob.
    differs_in_env: names of XLA flags and variables that the plan's env.sh does
      not set as the plan does.
  """

  plan: plan_lib.Plan
  default_us: float
  planned_us: float
  default_range_us: plan_lib.Range
  gain_us: plan_lib.Range
  too_large: str
  effects: tuple[effects_lib.Effect, ...]
  differs_in_env: tuple[str, ...] = ()

  @property
  def all_acted(self) -> bool:
    """Whether every knob of the plan was seen to act."""
    return all(effect.acted for effect in self.effects)

  @property
  def is_good(self) -> bool:
    """Whether all of it acts, and the step fits and does not get longer."""
    is_bad = self.loses or self.too_large or self.differs_in_env
    return self.all_acted and not is_bad

  @property
  def loses(self) -> bool:
    """Whether the step is predicted to be longer with the plan."""
    return self.planned_us > self.default_us


def verify(plan: plan_lib.Plan, target: target_lib.Target) -> Verification:
  """Schedules a target with and without a plan, and checks each part's effect.

  Times are of the step that runs, as in the plan: a step that is short of
  memory is compiled fully. Every compile starts from the program, as the job's
  do.

  Raises:
    PlanError: the plan is for another module, cluster or version.
    CompileError: XLA refuses the target or the plan.
  """
  with environment.beside(environment.of_compile(target.handed)):
    return _verify(plan, target)


def _verify(plan: plan_lib.Plan, target: target_lib.Target) -> Verification:
  checked.check_target(plan, target)
  target = target.from_the_beginning()
  lost = _lost(plan)
  given = plan
  plan = dataclasses.replace(plan, xla=plan.xla.without_options(lost))
  todays = arms_lib.todays(plan.xla)
  with checked.parts(), target.started([todays, _compiled(plan.xla)]):
    steps = evaluation.Steps(target)
    default, planned = (_step(steps, c) for c in (todays, plan.xla))
  before = uncertainty.times(default, default.default)
  after = uncertainty.times(planned, _settings(plan, planned))
  needed_bytes, least_bytes = (
    steps.running(_compiled(c)).peak_bytes for c in (plan.xla, todays)
  )
  return Verification(
    plan=given,
    default_us=before.mean_us,
    planned_us=after.mean_us,
    default_range_us=plan_lib.Range.of(uncertainty.step_time(before)),
    gain_us=plan_lib.Range.of(uncertainty.gain(before, after)),
    too_large=evaluation.too_large(target, needed_bytes, least_bytes),
    effects=(*effects(plan, default, planned, steps), *_beaten(lost)),
  )


def _lost(plan: plan_lib.Plan) -> dict[str, object]:
  """Options of a plan for launchers that launchers cannot set for this step."""
  fixed = {} if plan.needs_process else environment.unchangeable()
  return {n: v for n, v in plan.xla.options.items() if n in fixed}


def _beaten(lost: Mapping[str, object]) -> Iterator[effects_lib.Effect]:
  for name, value in lost.items():
    yield effects_lib.Effect(
      knob=name,
      value=str(value),
      acted=False,
      evidence=f"no effect through env.sh: {environment.BEATS}; set it there",
      replaces=str(environment.unchangeable()[name]),
    )


def effects(
  plan: plan_lib.Plan,
  default: step_lib.Step,
  planned: step_lib.Step,
  steps: evaluation.Steps,
) -> tuple[effects_lib.Effect, ...]:
  """The effect of each part of a plan.

  Args:
    plan: the plan.
    default: the step that runs today.
    planned: the step that runs with the whole plan.
    steps: steps of the target.
  """
  todays = arms_lib.todays(plan.xla)
  known = (todays, _compiled(plan.xla))
  wanted = [c for c in configs(plan) if c not in known]
  config = dataclasses.replace(plan.xla, orders={})
  with steps.target.started(wanted):
    unordered = _step(steps, config) if plan.xla.orders else planned

    def step_of(wanted: config_lib.XlaConfig) -> step_lib.Step:
      if wanted == todays:
        return default
      return unordered if wanted == config else _step(steps, wanted)

    found = [
      _effect(
        part,
        plan,
        steps.target,
        default,
        step_of(part.without),
        step_of(part.with_it),
      )
      for part in parts(config)
    ]
  if plan.xla.orders:
    configuration = _settings(plan, planned)
    found.append(
      effects_lib.of_orders(plan.xla.orders, configuration, unordered, planned)
    )
  found += effects_lib.of_option(plan.xla.options, planned)
  found += effects_lib.of_environment(plan.nccl_env, planned)
  found += effects_lib.of_settings(plan.nccl_settings, planned)
  return tuple(found)


def configs(plan: plan_lib.Plan) -> list[config_lib.XlaConfig]:
  """All configs that `verify` may compile: with the plan, and without parts."""
  wanted = [
    arms_lib.todays(plan.xla),
    plan.xla,
    dataclasses.replace(plan.xla, orders={}),
  ]
  for part in parts(plan.xla):
    wanted += (part.with_it, part.without)
  found: list[config_lib.XlaConfig] = []
  for config in map(_compiled, wanted):
    if config not in found:
      found.append(config)
  return found


def _effect(
  part: Part,
  plan: plan_lib.Plan,
  target: target_lib.Target,
  default: step_lib.Step,
  without: step_lib.Step,
  with_it: step_lib.Step,
) -> effects_lib.Effect:
  """The effect of one part."""
  effect = effects_lib.of_difference(
    part.knob, part.value, without.analysis, with_it.analysis
  )
  if part.knob == PROGRAM:
    outcome = target.outcome(part.with_it.program)
    return effects_lib.with_program_outcome(effect, outcome, without, with_it)
  effect = effects_lib.with_routes(effect, without, with_it)
  times = (step.timeline(_settings(plan, step)) for step in (without, with_it))
  effect = effects_lib.timed(effect, *times)
  if part.both_lack:
    evidence = f"without {part.both_lack}: {effect.evidence}"
    effect = dataclasses.replace(effect, evidence=evidence)
  if part.knob in part.with_it.options:
    replaces = effects_lib.replaced_value(part.knob)
    if part.knob == knobs.SCHEDULER:  # XLA may have decided.
      replaces = str(knobs.is_latency_hiding(default.analysis.module))
    effect = dataclasses.replace(effect, replaces=replaces)
    is_kept = part.knob == knobs.SCHEDULER and effect.is_as_today
    if is_kept and part.with_it.options.get(knobs.ESTIMATES) is False:
      evidence = f"needed, as {knobs.ESTIMATES}=false switches it off"
      evidence += f"; {effect.evidence}"
      effect = dataclasses.replace(effect, evidence=evidence)
  return effect


def _settings(
  plan: plan_lib.Plan, step: step_lib.Step
) -> step_lib.Configuration:
  """A plan's settings for a step's keys, and NCCL's own for the other keys.

  A cap acts only in plans without settings.
  """
  cap = plan.nccl_env.get(nccl_channels.VARIABLE)
  has_settings = plan.nccl_settings or plan.needs_process
  if cap is not None and not has_settings:
    return channel_cap.capped(step, int(cap))
  return {
    **step.default,
    **{
      entry.key: entry.setting
      for entry in plan.nccl_settings
      if entry.key in step.default and not effects_lib.is_ruled_out(entry)
    },
  }


def _step(
  steps: evaluation.Steps, config: config_lib.XlaConfig
) -> step_lib.Step:
  most = nccl_channels.most(config.options)
  step = steps.running(_compiled(config)).step.capped(most)
  return step.asking(evaluation.asked(config.options))


def _compiled(config: config_lib.XlaConfig) -> config_lib.XlaConfig:
  """The config that is compiled; a cap on channels changes no module."""
  return config.without_options([nccl_channels.OPTION])
