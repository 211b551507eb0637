# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""A plan's folder: the plan, and files that start a job with it.

    plan.json        the plan itself
    env.sh           for your launcher to source before each process starts
    nccl_table.bin   NCCL settings per tuning key, for lagom_xla's tuner plugin

The folder is written atomically. docs/launchers.md shows how to start a job
with it.
"""

from __future__ import annotations

import json
import pathlib

from lagom_xla import errors
from lagom_xla import plan as plan_lib
from lagom_xla.apply import env
from lagom_xla.apply.nccl import table as table_lib
from lagom_xla.plan import beside
from lagom_xla.validation import whole_files

_ENV = "env.sh"
# A folder with only these files is a plan, which may be replaced.
_NAMES = frozenset([beside.PLAN, _ENV, env.TABLE, *beside.NAMES])


def contents(plan: plan_lib.Plan) -> dict[str, bytes]:
  """The files of a plan's folder: name -> content.

  Raises:
    RuleError, TableError: the plan's NCCL settings are no valid table.
  """
  rules = table_lib.rules_of(plan.nccl_settings)
  checksum = table_lib.checksum(rules) if rules else None
  return {
    beside.PLAN: (json.dumps(plan.to_dict(), indent=2) + "\n").encode(),
    _ENV: env.script(plan, table_checksum=checksum).encode(),
    env.TABLE: table_lib.encode(rules),
  }


def check(folder: pathlib.Path) -> None:
  """Checks that a plan may be written to a folder, before any work.

  Raises:
    PlanError: the folder holds something else, or cannot be created.
  """
  try:
    if folder.exists() and not _is_plan(folder):
      raise errors.PlanError(
        f"{folder} exists and is not a plan; name another folder with --out, or"
        " remove it."
      )
    whole_files.check_can_make(folder.resolve())
  except OSError as error:
    raise _cannot_write(folder, error) from error


def _cannot_write(folder: pathlib.Path, error: OSError) -> errors.PlanError:
  return errors.PlanError(f"Cannot write {folder}: {error.strerror or error}.")


def check_table(plan: plan_lib.Plan, path: str | pathlib.Path) -> None:
  """Checks that a plan's folder has the plan's NCCL table.

  A plan.json alone has no table.

  Raises:
    PlanError: the table is missing or damaged, or is not the plan's.
  """
  folder = pathlib.Path(path)
  if not folder.is_dir():
    return
  rules = table_lib.rules_of(plan.nccl_settings)
  try:
    found = table_lib.read(folder / env.TABLE)
  except errors.TableError as error:
    raise errors.PlanError(f"{error} Make the plan again.") from error
  if table_lib.checksum(found.rules) != table_lib.checksum(rules):
    raise errors.PlanError(
      f"{folder / env.TABLE} does not match {folder / beside.PLAN}: one of"
      " them was replaced or changed. Make the plan again."
    )


def differs_in_env(
  plan: plan_lib.Plan, path: str | pathlib.Path
) -> tuple[str, ...]:
  """XLA flags and variables that env.sh beside a plan does not set as it does.

  Empty without an env.sh, which a plan.json alone does not need.

  Raises:
    RuleError, TableError: the plan's NCCL settings are no valid table.
  """
  path = pathlib.Path(path)
  folder = path.parent if path.name == beside.PLAN else path
  try:
    found = (folder / _ENV).read_text(errors="replace")
  except OSError:
    return ()
  return env.differences(found, contents(plan)[_ENV].decode())


def write(plan: plan_lib.Plan, folder: pathlib.Path) -> list[pathlib.Path]:
  """Writes a plan's folder, replacing an older plan there; returns its files.

  Raises:
    PlanError: the folder holds something else, or cannot be written.
    RuleError, TableError: the plan's NCCL settings make no table.
  """
  check(folder)
  files = contents(plan)
  place = folder.resolve()  # Keeps a link and replaces its target.
  try:
    with whole_files.scratch(place) as scratch:
      fresh, old = scratch / "fresh", scratch / "old"
      fresh.mkdir()
      for name, content in files.items():
        (fresh / name).write_bytes(content)
      if place.exists():
        place.rename(old)
      try:
        fresh.rename(place)
      except OSError:
        if old.exists():
          old.rename(place)
        raise
  except OSError as error:
    raise _cannot_write(folder, error) from error
  return [folder / name for name in files]


def _is_plan(folder: pathlib.Path) -> bool:
  """Whether a folder has only the files of a plan."""
  if not folder.is_dir():
    return False
  names = {path.name for path in folder.iterdir()}
  return not names or (beside.PLAN in names and names <= _NAMES)
