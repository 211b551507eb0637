# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""A plan read to be used: sound in every part, for this JAX, with its table.

Whoever edits a plan by hand, or brings it from another machine, hears of it
before a job starts: NCCL and XLA would hang, abort or take no notice.
"""

from __future__ import annotations

from collections.abc import Mapping
import pathlib

from lagom_xla import errors
from lagom_xla import plan as plan_lib
from lagom_xla import validation
from lagom_xla.apply import files
from lagom_xla.apply.nccl import table
from lagom_xla.compile import lowered as lowered_lib
from lagom_xla.compile import scheduler_profile
from lagom_xla.compile import target as target_lib
from lagom_xla.flags import nccl_channels
from lagom_xla.flags import options as xla_options
from lagom_xla.plan import made_for

_NUMBER = f"it must be a whole number from 1 to {table.MAX_CHANNELS}"


def load(path: str | pathlib.Path) -> plan_lib.Plan:
  """Reads a plan from its folder or its plan.json, and checks all of it.

  Raises:
    PlanError: there is no readable plan; it is for another JAX; XLA or NCCL
      cannot have one of its settings; or its folder has another table.
    OptionsError: the installed jaxlib does not show its options.
  """
  plan = plan_lib.load(path)
  check(plan, path)
  return plan


def check(plan: plan_lib.Plan, path: str | pathlib.Path) -> None:
  """Checks all of a plan that was read.

  Args:
    plan: the plan.
    path: its folder or its plan.json.

  Raises:
    PlanError, OptionsError: as of `load`.
  """
  made_for.check_versions(plan)
  for problem in (
    _in_options(plan.xla.options),
    _in_variables(plan.nccl_env),
    _in_settings(plan),
  ):
    if problem is not None:
      raise errors.PlanError(
        f"{path} is not a usable plan: {problem} Make the plan again."
      )
  files.check_table(plan, path)


def _in_options(options: Mapping[str, object]) -> str | None:
  """What is wrong with the XLA options, which are those of this jaxlib."""
  for name, value in options.items():
    translated = xla_options.translate(name, value)
    if isinstance(translated, str):
      return f"xla.options has what XLA does not take: {translated}"
    is_number = str(value) == "0" or _is_number_of_channels(str(value))
    if name == nccl_channels.OPTION and not is_number:
      return (
        f"xla.options.{name} is {validation.show(value)}; {_NUMBER}, or 0 for"
        " NCCL's own."
      )
  return None


def _is_number_of_channels(text: str) -> bool:
  return text.isdecimal() and 1 <= int(text) <= table.MAX_CHANNELS


def _in_variables(variables: Mapping[str, str]) -> str | None:
  """What is wrong with NCCL's variables, of which a plan has one at most."""
  for name, value in variables.items():
    if name != nccl_channels.VARIABLE:
      return f"nccl_env has {name}; a plan sets {nccl_channels.VARIABLE} alone."
    if not _is_number_of_channels(value):
      return f"nccl_env.{name} is {validation.show(value)}; {_NUMBER}."
  return None


def _in_settings(plan: plan_lib.Plan) -> str | None:
  """What is wrong with the NCCL settings."""
  for index, entry in enumerate(plan.nccl_settings):
    num_channels = entry.setting.num_channels
    if num_channels > table.MAX_CHANNELS:
      return (
        f"nccl_settings[{index}].setting.num_channels is {num_channels}; NCCL"
        f" has {table.MAX_CHANNELS} at most."
      )
  try:
    table.rules_of(plan.nccl_settings)
  except errors.RuleError as error:
    return f"nccl_settings: {error}"
  return None


def compile_with(
  plan: plan_lib.Plan, target: target_lib.Target
) -> lowered_lib.Compilation:
  """Compiles a target, to the end, with a plan that is for it, less its cap.

  NCCL's communicators keep the cap on channels of the executable that is the
  first to use them, so it is for XLA_FLAGS.

  Raises:
    PlanError: the plan is for something else, or a part of it is.
    ProfileError: JAX is set to replace the plan's scheduler profile.
    CompileError: XLA refuses the target or the plan.
  """
  made_for.check(plan, target)
  if plan.xla.scheduler_profile is not None:
    scheduler_profile.check_reaches_xla()
  with made_for.parts():
    return target.compile(plan.xla.without_options([nccl_channels.OPTION]))
