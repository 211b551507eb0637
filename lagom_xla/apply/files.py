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
import pathlib
import tempfile

from lagom_xla import plan as plan_lib
from lagom_xla.apply import nccl_env
from lagom_xla.apply import xla_options

_NAMES = frozenset(
  ["plan.json", "xla_flags.sh", "nccl_env.sh", "nccl_settings.csv"]
)
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
      f"{folder} exists and holds something else than a plan; name another"
      " folder with --out, or remove it."
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
  place = folder.resolve()  # Behind a link, not in its stead.
  try:
    place.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(
      prefix=f".{place.name}-", dir=place.parent
    ) as scratch:
      fresh = pathlib.Path(scratch) / "fresh"
      fresh.mkdir()
      for name, text in files.items():
        (fresh / name).write_text(text, encoding="utf-8")
      _replace(place, fresh, pathlib.Path(scratch) / "old")
  except OSError as error:
    raise plan_lib.PlanError(
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
