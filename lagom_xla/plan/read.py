# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Plans read back from JSON, or refused in a sentence."""

from __future__ import annotations

import pathlib
from typing import Any

from lagom_xla import errors
from lagom_xla import validation
from lagom_xla.plan import beside
from lagom_xla.plan.plan import FORMAT_VERSION
from lagom_xla.plan.plan import Plan


def from_dict(raw: Any, *, where: str) -> Plan:
  """Reads a plan back.

  Args:
    raw: what `Plan.to_dict` wrote.
    where: what to call it in errors.

  Raises:
    PlanError: it is not a plan, or one of another format version.
  """
  if not isinstance(raw, dict) or "format_version" not in raw:
    raise errors.PlanError(f"{where} is not a lagom_xla plan.")
  if raw["format_version"] != FORMAT_VERSION:
    raise errors.PlanError(
      f"{where} has format version {validation.show(raw['format_version'])};"
      f" this lagom_xla reads {FORMAT_VERSION}. Make the plan again."
    )
  try:
    # Plans that are older than the field were all predicted.
    return validation.read(Plan, {"profile": None, **raw})
  except validation.InvalidError as error:
    raise errors.PlanError(
      f"{where} is not a usable plan: {error}. Make the plan again."
    ) from error


def load(path: str | pathlib.Path) -> Plan:
  """Reads a plan from its folder or its plan.json.

  Raises:
    PlanError: there is no readable plan.
  """
  path = pathlib.Path(path)
  path = path / beside.PLAN if path.is_dir() else path
  try:
    raw = validation.read_file(path)
  except validation.InvalidError as error:
    raise errors.PlanError(f"{path} {error}.") from error
  return from_dict(raw, where=str(path))


def schema() -> dict[str, Any]:
  """The JSON schema of plan.json."""
  return validation.schema(Plan)
