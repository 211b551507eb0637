# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Writes a plan's folder: the plan, and what a launcher sources.

    plan.json           the plan itself
    xla_flags.sh        export XLA_FLAGS=...
    nccl_env.sh         export NCCL_...=..., for the whole process
    nccl_settings.csv   a setting per tuning key, for a tuner plugin

The folder appears complete or not at all.
"""

from __future__ import annotations

import csv
import io
import json
import os
import pathlib
import shutil
import tempfile

from lagom_xla import plan as plan_lib
from lagom_xla.apply import nccl_env
from lagom_xla.apply import xla_options

_COLUMNS = (
  "collective",
  "num_ranks",
  "num_nodes",
  "num_bytes",
  "algorithm",
  "protocol",
  "num_channels",
  "chunk_bytes",
)


def contents(plan: plan_lib.Plan) -> dict[str, str]:
  """File name -> text."""
  header = (
    f"# lagom_xla plan for {plan.module_name} on {plan.cluster.name}.\n"
    "# Set this on every process of the job, before it starts.\n"
  )
  return {
    "plan.json": json.dumps(plan.to_dict(), indent=2) + "\n",
    "xla_flags.sh": (header + xla_options.export_line(plan.xla_options) + "\n"),
    "nccl_env.sh": header + nccl_env.export_lines(plan.nccl_env) + "\n",
    "nccl_settings.csv": _settings(plan),
  }


def check(folder: pathlib.Path) -> None:
  """Checks that a plan may be written to a folder, before any work is done.

  Raises:
    plan_lib.PlanError: the folder holds something else.
  """
  if folder.exists() and not _is_plan(folder):
    raise plan_lib.PlanError(
      f"{folder} exists and is not a plan's folder; name another with --out,"
      " or remove it."
    )


def write(plan: plan_lib.Plan, folder: pathlib.Path) -> list[pathlib.Path]:
  """Writes a plan's folder, replacing an older plan there.

  Returns:
    The files.

  Raises:
    plan_lib.PlanError: the folder holds something else, or cannot be written.
  """
  check(folder)
  files = contents(plan)
  try:
    folder.parent.mkdir(parents=True, exist_ok=True)
    fresh = pathlib.Path(
      tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent)
    )
    try:
      for name, text in files.items():
        (fresh / name).write_text(text)
      fresh.chmod(0o777 & ~_umask())
      if folder.exists():
        shutil.rmtree(folder)
      fresh.rename(folder)
    finally:
      shutil.rmtree(fresh, ignore_errors=True)
  except OSError as error:
    raise plan_lib.PlanError(
      f"Cannot write {folder}: {error.strerror}."
    ) from error
  return [folder / name for name in files]


def _is_plan(folder: pathlib.Path) -> bool:
  return folder.is_dir() and (
    (folder / "plan.json").exists() or not any(folder.iterdir())
  )


def _umask() -> int:
  mask = os.umask(0)
  os.umask(mask)
  return mask


def _settings(plan: plan_lib.Plan) -> str:
  text = io.StringIO()
  writer = csv.writer(text, lineterminator="\n")
  writer.writerow(_COLUMNS)
  for entry in plan.nccl_settings:
    key, setting = entry.key, entry.setting
    writer.writerow(
      [
        key.kind,
        key.num_ranks,
        key.num_nodes,
        key.num_bytes,
        setting.algorithm,
        setting.protocol,
        setting.num_channels,
        setting.chunk_bytes,
      ]
    )
  return text.getvalue()
