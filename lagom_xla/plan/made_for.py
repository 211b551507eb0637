# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""The module, cluster and versions of a plan, checked against a target.

A plan holds for the module, cluster and versions that it was made with. For
anything else it is refused, with the difference named: its settings would at
best do nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
import contextlib

import jax
import jaxlib

from lagom_xla import errors
from lagom_xla import plan as plan_lib
from lagom_xla.compile import target as target_lib

# What a compile raises for a part that the step cannot have, and that part.
_PARTS: Mapping[type[errors.LagomError], str] = {
  errors.CombineError: "combine groups are",
  errors.ProgramError: "form is",
  errors.ScheduleError: "orders are",
}


def check(plan: plan_lib.Plan, target: target_lib.Target) -> None:
  """Checks that a plan was made for a target, with the installed JAX.

  Raises:
    PlanError: it was not; the message names what differs.
    CompileError: XLA refuses the target.
  """
  check_versions(plan)
  _check_cluster(plan, target)
  _check_module(plan, target)


def check_versions(plan: plan_lib.Plan) -> None:
  """Checks that a plan was made with the installed JAX.

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


def versions() -> str:
  """The installed versions of the packages that a plan records."""
  return f"jax {jax.__version__}, jaxlib {jaxlib.__version__}"


@contextlib.contextmanager
def parts() -> Iterator[None]:
  """Has errors of compiles inside name the part of the plan that is at fault.

  Raises:
    PlanError: the step cannot have a part of the plan.
  """
  try:
    yield
  except tuple(_PARTS) as error:
    part = next(p for kind, p in _PARTS.items() if isinstance(error, kind))
    raise errors.PlanError(
      f"The plan's {part} not for this step: {error}"
    ) from error


def _check_cluster(plan: plan_lib.Plan, target: target_lib.Target) -> None:
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


def _check_module(plan: plan_lib.Plan, target: target_lib.Target) -> None:
  module = target.identity()
  fingerprint = plan_lib.fingerprint(module)
  if fingerprint != plan.module_fingerprint:
    raise errors.PlanError(
      f"The plan was made for {plan.module_name}, whose fingerprint is"
      f" {plan.module_fingerprint}; this is {module.name} with {fingerprint}."
      " The step, its shapes or its shardings changed: make the plan again."
    )


def _flat(raw: object, prefix: str = "") -> dict[str, object]:
  """The leaves of a JSON value, by dotted name."""
  if not isinstance(raw, Mapping):
    return {prefix: raw}
  leaves: dict[str, object] = {}
  for name, value in raw.items():
    leaves |= _flat(value, f"{prefix}.{name}" if prefix else str(name))
  return leaves
