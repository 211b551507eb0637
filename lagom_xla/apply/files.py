# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Writes a plan's folder: the plan, and what starts a job with it.

    plan.json        the plan itself
    env.sh           sourced by whatever starts each process: all of the plan
    slurm.sh         the lines of a batch script that do so
    kubernetes.yaml  the same for a pod
    xla_flags.sh     a part: export XLA_FLAGS=...
    nccl_env.sh      a part: export NCCL_...=..., for the whole process
    nccl_table.bin   what our NCCL tuner plugin reads: settings per tuning key

The folder appears complete or not at all.
"""

from __future__ import annotations

import json
import pathlib
import tempfile

from lagom_xla import errors
from lagom_xla import plan as plan_lib
from lagom_xla.apply import launchers
from lagom_xla.apply import nccl_env
from lagom_xla.apply.nccl import layout
from lagom_xla.apply.nccl import rules as rules_lib
from lagom_xla.apply.nccl import table as table_lib
from lagom_xla.flags import options as xla_options

_NAMES = frozenset(
  [
    "plan.json",
    "env.sh",
    "slurm.sh",
    "kubernetes.yaml",
    "xla_flags.sh",
    "nccl_env.sh",
    launchers.TABLE,
    "nccl_tuner.csv",
    "nccl_settings.csv",  # What lagom_xla 0.1.0 wrote for a plugin to come.
  ]
)


def contents(plan: plan_lib.Plan) -> dict[str, bytes]:
  """File name -> what is in it."""
  rules = rules_lib.of_settings(plan.nccl_settings)
  checksum = layout.checksum(rules) if rules else None
  header = (
    f"# lagom_xla plan for {plan.module_name} on {plan.cluster.name}.\n"
    "# Set this on every process of the job, before it starts.\n"
  )
  texts = {
    "plan.json": json.dumps(plan.to_dict(), indent=2) + "\n",
    "xla_flags.sh": header + xla_options.export_line(plan.xla_options) + "\n",
    "nccl_env.sh": header + nccl_env.export_lines(plan.nccl_env) + "\n",
    "env.sh": launchers.env_script(plan, table_checksum=checksum),
    "slurm.sh": launchers.slurm_script(plan),
    "kubernetes.yaml": launchers.kubernetes_manifest(
      plan, table_checksum=checksum
    ),
  }
  return {
    **{name: text.encode() for name, text in texts.items()},
    launchers.TABLE: layout.encode(rules),
  }


def check(folder: pathlib.Path) -> None:
  """Checks that a plan may be written to a folder, before any work is done.

  Raises:
    PlanError: the folder holds something else.
  """
  if folder.exists() and not _is_plan(folder):
    raise errors.PlanError(
      f"{folder} exists and holds something else than a plan; name another"
      " folder with --out, or remove it."
    )


def check_table(plan: plan_lib.Plan, path: str | pathlib.Path) -> None:
  """Checks that a plan's folder has the NCCL table of the plan.

  Args:
    plan: the plan.
    path: its folder; of a lone plan.json there is nothing to check.

  Raises:
    PlanError: the table is missing, damaged, or another one.
  """
  folder = pathlib.Path(path)
  if not folder.is_dir():
    return
  rules = rules_lib.of_settings(plan.nccl_settings)
  try:
    found = table_lib.read(folder / launchers.TABLE)
  except errors.TableError as error:
    raise errors.PlanError(f"{error} Make the plan again.") from error
  if layout.checksum(found.rules) != layout.checksum(rules):
    raise errors.PlanError(
      f"{folder / launchers.TABLE} holds other settings than"
      f" {folder / 'plan.json'}: it was switched or exchanged. Make the plan"
      " again."
    )


def write(plan: plan_lib.Plan, folder: pathlib.Path) -> list[pathlib.Path]:
  """Writes a plan's folder, replacing an older plan there.

  Returns:
    The files.

  Raises:
    PlanError: the folder holds something else, or cannot be written.
  """
  check(folder)
  files = contents(plan)
  place = folder.resolve()  # Behind a link, not in its stead.
  try:
    place.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(
      prefix=f".{place.name}-", dir=place.parent
    ) as scratch:
      fresh = pathlib.Path(scratch) / "fresh"
      fresh.mkdir()
      for name, content in files.items():
        (fresh / name).write_bytes(content)
      _replace(place, fresh, pathlib.Path(scratch) / "old")
  except OSError as error:
    raise errors.PlanError(
      f"Cannot write {folder}: {error.strerror or error}."
    ) from error
  return [folder / name for name in files]


def _replace(
  folder: pathlib.Path, fresh: pathlib.Path, old: pathlib.Path
) -> None:
  """Puts `fresh` where `folder` is, and what is there, if any, at `old`."""
  if not folder.exists():
    fresh.rename(folder)
    return
  folder.rename(old)
  try:
    fresh.rename(folder)
  except OSError:
    old.rename(folder)
    raise


def _is_plan(folder: pathlib.Path) -> bool:
  """Whether replacing a folder loses nothing but a plan."""
  if not folder.is_dir():
    return False
  names = {path.name for path in folder.iterdir()}
  return not names or ("plan.json" in names and names <= _NAMES)
