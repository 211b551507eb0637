# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Proof that a plan acts: compiles with it and without each part of it.

    verification = verify.verify(plan, target)
    for effect in verification.effects: ...

A plan holds for the module, cluster and versions that it was made with. For
anything else it is refused, with the difference named: its settings would at
best do nothing. What a setting did is told by leaving it out, and it alone, of
everything else that the plan sets.
"""

from __future__ import annotations

from collections.abc import Mapping
import dataclasses

import jax
import jaxlib

from lagom_xla import errors
from lagom_xla import plan as plan_lib
from lagom_xla.compile import compiler as compile_lib
from lagom_xla.compile import scheduler_profile
from lagom_xla.compile import target as target_lib
from lagom_xla.costs import step as step_lib
from lagom_xla.passes import combine
from lagom_xla.passes import hlo
from lagom_xla.search.xla import candidates
from lagom_xla.verify import effects as effects_lib


@dataclasses.dataclass(frozen=True, kw_only=True)
class Verification:
  """What a plan was seen to do.

  Attributes:
    plan: the plan.
    default_us: predicted step time without it, on this compile.
    planned_us: predicted step time with all of it, on this compile.
    effects: what each knob did.
  """

  plan: plan_lib.Plan
  default_us: float
  planned_us: float
  effects: tuple[effects_lib.Effect, ...]

  @property
  def all_acted(self) -> bool:
    """Whether every knob of the plan was seen to act."""
    return all(effect.acted for effect in self.effects)


def verify(plan: plan_lib.Plan, target: target_lib.Target) -> Verification:
  """Compiles a target with and without a plan, and says what each knob did.

  Raises:
    PlanError: the plan is for something else.
    CompileError: XLA refuses the target or the plan.
  """
  check_versions(plan)
  check_cluster(plan, target)
  check_module(plan, target)
  default = candidates.schedule(target, {})
  try:
    planned = candidates.schedule(
      target, plan.xla_options, plan.combine_groups, _profile(plan)
    )
  except errors.CombineError as error:
    raise errors.PlanError(
      f"The plan's combine groups are not for this step: {error}"
    ) from error
  settings = {
    **planned.default,
    **{
      entry.key: entry.setting
      for entry in plan.nccl_settings
      if entry.key in planned.default
    },
  }
  return Verification(
    plan=plan,
    default_us=default.timeline(default.default).step_time_us,
    planned_us=planned.timeline(settings).step_time_us,
    effects=effects(plan, target, default, planned),
  )


def compile_with(
  plan: plan_lib.Plan, target: target_lib.Target
) -> compile_lib.Compilation | None:
  """Compiles a target with a plan that is for it.

  Returns:
    The full compile; None where the target cannot be compiled to its end.

  Raises:
    PlanError: the plan is for something else.
    CompileError: XLA refuses the target or the plan.
  """
  check_versions(plan)
  check_cluster(plan, target)
  check_module(plan, target)
  if target.compile is None or target.cluster.gpu.compile_obstacle:
    return None
  profile = _profile(plan)
  if profile is not None:
    scheduler_profile.check_reaches_xla()
    profile = scheduler_profile.with_plan_hash(profile, plan.hash)
  options = candidates.compiler_options(plan.xla_options, profile)
  return compile_fully(target, options, plan.combine_groups)


def compile_fully(
  target: target_lib.Target,
  options: compile_lib.Options,
  groups: combine.Groups | None,
) -> compile_lib.Compilation:
  """Compiles a target that can be compiled to its end.

  Raises:
    CompileError: XLA refused; or it took the options that go with combine
      groups, and did not run the pass that makes them.
  """
  assert target.compile is not None
  if groups is None:
    return target.compile(options)
  compilation = target.compile(options, groups)
  if not combine.labels(compilation.module, groups):
    raise errors.CompileError(
      f"XLA compiled {target.name} without running the pass that sets combine"
      " groups; make the plan without them."
    )
  return compilation


def effects(
  plan: plan_lib.Plan,
  target: target_lib.Target,
  default: step_lib.Step,
  planned: step_lib.Step,
) -> tuple[effects_lib.Effect, ...]:
  """What each knob of a plan did.

  Args:
    plan: the plan.
    target: what it is for.
    default: the target as scheduled without the plan.
    planned: the target as scheduled with all of it.
  """
  groups, profile = plan.combine_groups, _profile(plan)
  found = [
    _effect_of_option(name, plan, target, default, planned)
    for name in plan.xla_options
  ]
  if groups is not None:
    without = candidates.schedule(target, plan.xla_options, None, profile)
    found.append(
      effects_lib.of_difference(
        "combine groups",
        f"{len(groups)} groups",
        without.analysis,
        planned.analysis,
      )
    )
  if profile is not None:
    without = candidates.schedule(target, plan.xla_options, groups)
    found.append(
      effects_lib.of_difference(
        "scheduler profile",
        f"{len(scheduler_profile.costs_us(profile))} costs",
        without.analysis,
        planned.analysis,
      )
    )
  found += effects_lib.of_environment(plan.nccl_env, planned)
  found += effects_lib.of_settings(plan.nccl_settings, planned)
  return tuple(found)


def _effect_of_option(
  name: str,
  plan: plan_lib.Plan,
  target: target_lib.Target,
  default: step_lib.Step,
  planned: step_lib.Step,
) -> effects_lib.Effect:
  """What leaving an option out changes.

  Combine groups overrule thresholds, which are there for who cannot set groups;
  so what a threshold does is told without groups.
  """
  groups, profile = plan.combine_groups, _profile(plan)
  is_overruled = groups is not None and name in combine.OPTIONS
  if is_overruled:
    groups = None
    planned = candidates.schedule(target, plan.xla_options, None, profile)
  others = {n: v for n, v in plan.xla_options.items() if n != name}
  is_default = not others and groups is None and profile is None
  without = (
    default
    if is_default
    else candidates.schedule(target, others, groups, profile)
  )
  effect = effects_lib.of_difference(
    name, str(plan.xla_options[name]), without.analysis, planned.analysis
  )
  if not is_overruled:
    return effect
  return dataclasses.replace(
    effect, evidence=f"without the combine groups: {effect.evidence}"
  )


def _profile(plan: plan_lib.Plan) -> bytes | None:
  text = plan.scheduler_profile
  return None if text is None else text.encode()


def check_versions(plan: plan_lib.Plan) -> None:
  """Checks that the plan was made with the installed JAX.

  Raises:
    PlanError: it was not.
  """
  for package, made_with, installed in (
    ("jax", plan.jax_version, jax.__version__),
    ("jaxlib", plan.jaxlib_version, jaxlib.__version__),
  ):
    if made_with != installed:
      raise errors.PlanError(
        f"The plan was made with {package} {made_with}, and {installed} is"
        " installed, whose XLA schedules differently: make the plan again."
      )


def check_cluster(plan: plan_lib.Plan, target: target_lib.Target) -> None:
  """Checks that the plan was made for the target's cluster.

  Raises:
    PlanError: it was not; the message names a figure that differs.
  """
  made_for = _flat(plan.cluster.to_dict())
  asked_for = _flat(target.cluster.to_dict())
  for name in {**made_for, **asked_for}:
    # The same cluster may have another name in another file.
    if name != "name" and made_for.get(name) != asked_for.get(name):
      raise errors.PlanError(
        f"The plan was made for {plan.cluster.name}, not for"
        f" {target.cluster.name}: {name} is {made_for.get(name)} there and"
        f" {asked_for.get(name)} here. Make a plan for this cluster."
      )


def check_module(plan: plan_lib.Plan, target: target_lib.Target) -> None:
  """Checks that the plan was made for the target's module.

  Raises:
    PlanError: it was made for another one.
  """
  module = recognized_by(target)
  fingerprint = plan_lib.fingerprint(module)
  if fingerprint != plan.module_fingerprint:
    raise errors.PlanError(
      f"The plan was made for {plan.module_name}, whose fingerprint is"
      f" {plan.module_fingerprint}; this is {module.name} with {fingerprint}."
      " The step, its shapes or its shardings changed: make the plan again."
    )


def recognized_by(target: target_lib.Target) -> hlo.Module:
  """The module whose fingerprint a plan has.

  It is the one from before XLA combines and schedules, where that can be had:
  later, what XLA does depends on whether it can time kernels on a GPU.
  """
  if target.unscheduled is not None:
    return target.unscheduled({})
  return target.schedule({})


def _flat(raw: object, prefix: str = "") -> dict[str, object]:
  """The leaves of a JSON value, by dotted name."""
  if not isinstance(raw, Mapping):
    return {prefix: raw}
  leaves: dict[str, object] = {}
  for name, value in raw.items():
    leaves |= _flat(value, f"{prefix}.{name}" if prefix else str(name))
  return leaves
