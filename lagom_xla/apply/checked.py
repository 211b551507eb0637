# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Reads a plan for use, and checks all its parts, JAX's version and its table.

This finds errors of plans that were edited by hand, or copied from another
machine, before a job starts: NCCL and XLA would hang, abort or ignore them. A
plan is valid only for the module, cluster and versions that it was made with.
For others it is refused, and the message names the difference.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
import contextlib
import pathlib

import jax
import jaxlib

from lagom_xla import errors
from lagom_xla import plan as plan_lib
from lagom_xla import validation
from lagom_xla.apply import files
from lagom_xla.apply.nccl import table
from lagom_xla.compile import lowered as lowered_lib
from lagom_xla.compile import scheduler_profile
from lagom_xla.compile import target as target_lib
from lagom_xla.flags import collective_routes
from lagom_xla.flags import nccl_channels
from lagom_xla.flags import options as xla_options

_NUMBER = f"it must be a whole number from 1 to {table.MAX_CHANNELS}"


def load(path: str | pathlib.Path) -> plan_lib.Plan:
  """Reads a plan from its folder or its plan.json, and checks all of it.

  Raises:
    PlanError: there is no readable plan; it is for another JAX; XLA or NCCL
      rejects one of its settings; or its folder has another table.
    OptionsError: the options of the installed jaxlib cannot be read.
  """
  plan = plan_lib.load(path)
  check(plan, path)
  return plan


def check(plan: plan_lib.Plan, path: str | pathlib.Path) -> None:
  """Checks all of a plan that was read from its folder or plan.json.

  Raises:
    PlanError, OptionsError: as of `load`.
  """
  _check_versions(plan)
  problem = (
    _in_options(plan.xla.options)
    or _in_variables(plan.nccl_env)
    or _in_settings(plan)
  )
  if problem:
    raise errors.PlanError(
      f"{path} is not a usable plan: {problem} Make the plan again."
    )
  files.check_table(plan, path)


def _check_versions(plan: plan_lib.Plan) -> None:
  for package, made_with, installed in (
    ("jax", plan.jax_version, jax.__version__),
    ("jaxlib", plan.jaxlib_version, jaxlib.__version__),
  ):
    if made_with != installed:
      raise errors.PlanError(
        f"The plan was made with {package} {made_with}, but {installed} is"
        " installed, whose XLA may schedule differently. Make the plan again."
      )


def versions() -> str:
  """The installed versions of the packages that a plan records."""
  return f"jax {jax.__version__}, jaxlib {jaxlib.__version__}"


def _in_options(options: Mapping[str, object]) -> str:
  """What is wrong with the XLA options, for the installed jaxlib."""
  for name, value in options.items():
    translated = xla_options.translate(name, value)
    if isinstance(translated, str):
      return f"xla.options has an unusable entry: {translated}"
    is_number = str(value) == "0" or _is_number_of_channels(str(value))
    if name == nccl_channels.OPTION and not is_number:
      return (
        f"xla.options.{name} is {validation.show(value)}; {_NUMBER}, or 0 for"
        " NCCL's choice."
      )
  return ""


def _is_number_of_channels(text: str) -> bool:
  return text.isdecimal() and 1 <= int(text) <= table.MAX_CHANNELS


def _in_variables(variables: Mapping[str, str]) -> str:
  """What is wrong with NCCL's variables; a plan has at most one."""
  for name, value in variables.items():
    if name != nccl_channels.VARIABLE:
      return f"nccl_env has {name}; only {nccl_channels.VARIABLE} is allowed."
    if not _is_number_of_channels(value):
      return f"nccl_env.{name} is {validation.show(value)}; {_NUMBER}."
  return ""


def _in_settings(plan: plan_lib.Plan) -> str:
  """What is wrong with the NCCL settings."""
  for index, entry in enumerate(plan.nccl_settings):
    num_channels = entry.setting.num_channels
    if num_channels > table.MAX_CHANNELS:
      return (
        f"nccl_settings[{index}].setting.num_channels is {num_channels}; it"
        f" must be {table.MAX_CHANNELS} at most."
      )
  try:
    table.rules_of(plan.nccl_settings)
  except errors.RuleError as error:
    return f"nccl_settings: {error}"
  return ""


def check_target(plan: plan_lib.Plan, target: target_lib.Target) -> None:
  """Checks that a plan was made for a target, with the installed JAX.

  Raises:
    PlanError: it was not; the message names the difference.
    CompileError: XLA rejects the target.
  """
  _check_versions(plan)
  made_for = _flat(plan.cluster.to_dict())
  asked_for = _flat(target.cluster.to_dict())
  for name in {**made_for, **asked_for}:
    if name not in _UNCHECKED and made_for.get(name) != asked_for.get(name):
      raise errors.PlanError(
        f"The plan was made for {plan.cluster.name}, not for"
        f" {target.cluster.name}: {name} is {made_for.get(name)} there and"
        f" {asked_for.get(name)} here. Make a plan for this cluster."
      )
  module = target.identity()
  fingerprint = plan_lib.fingerprint(module)
  if fingerprint != plan.module_fingerprint:
    raise errors.PlanError(
      f"The plan was made for {plan.module_name} with fingerprint"
      f" {plan.module_fingerprint}, but this is {module.name} with"
      f" {fingerprint}. The step, its shapes or its shardings changed: make the"
      " plan again."
    )


# These may differ: they do not affect compiles.
_UNCHECKED = ("name", "processes_per_node")


def _flat(raw: object, prefix: str = "") -> dict[str, object]:
  """The leaves of a JSON value, by dotted name."""
  if not isinstance(raw, Mapping):
    return {prefix: raw}
  leaves: dict[str, object] = {}
  for name, value in raw.items():
    leaves |= _flat(value, f"{prefix}.{name}" if prefix else str(name))
  return leaves


# Compile errors -> the part of the plan that does not fit the step.
_PARTS: Mapping[type[errors.LagomError], str] = {
  errors.CombineError: "combine groups are",
  errors.ProgramError: "form is",
  errors.ScheduleError: "orders are",
}


@contextlib.contextmanager
def parts() -> Iterator[None]:
  """Turns compile errors inside into errors that name the part of the plan.

  Raises:
    PlanError: the step cannot have a part of the plan.
  """
  try:
    yield
  except tuple(_PARTS) as error:
    part = next(p for kind, p in _PARTS.items() if isinstance(error, kind))
    raise errors.PlanError(
      f"The plan's {part} for another step: {error}"
    ) from error


# Options that act only in XLA_FLAGS.
OF_PROCESS = (nccl_channels.OPTION, *collective_routes.OF_PROCESS)


def compile_with(
  plan: plan_lib.Plan, target: target_lib.Target
) -> lowered_lib.Compilation:
  """Compiles a target fully with a plan that was made for it.

  Leaves out the options that belong in XLA_FLAGS, because NCCL's communicators
  keep those of the first executable: the cap on channels, and windows.

  Raises:
    PlanError: the plan, or a part of it, was made for something else.
    ProfileError: JAX is set to replace the plan's scheduler profile.
    CompileError: XLA rejects the target or the plan.
  """
  check_target(plan, target)
  if plan.xla.scheduler_profile is not None:
    scheduler_profile.check_reaches_xla()
  with parts():
    return target.compile(plan.xla.without_options(OF_PROCESS))
