# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Tables of a tuning: its candidates, each knob's effect, and the gains."""

from __future__ import annotations

from collections.abc import Sequence

import rich.table

from lagom_xla import plan as plan_lib
from lagom_xla import tuner
from lagom_xla.compile import config as config_lib
from lagom_xla.report import table as table_lib
from lagom_xla.search.xla import candidates as candidates_lib
from lagom_xla.verify import effects as effects_lib


def candidates(tuning: tuner.Tuning) -> rich.table.Table:
  """All configs that were tried, with their predicted step times."""
  table = table_lib.new(
    f"XLA options tried, with {tuning.search.num_predicted:,} more schedules"
    f" predicted and {tuning.num_trials:,} NCCL trials (predicted ms)",
    "options",
    "NCCL defaults",
    "NCCL tuned",
    "",
  )
  table.columns[-1].justify = "left"
  for candidate in tuning.candidates:
    if isinstance(candidate, candidates_lib.Refused):
      table.add_row(
        _config(candidate.config), "-", "-", f"refused: {candidate.reason}"
      )
      continue
    table.add_row(
      _config(candidate.config),
      f"{candidate.under_nccl_defaults.step_time_us / 1e3:,.2f}",
      f"{candidate.tuned.step_time_us / 1e3:,.2f}",
      "kept" if candidate is tuning.kept else "",
    )
  return table


def _config(config: config_lib.XlaConfig) -> str:
  parts = [
    f"{name.removeprefix('xla_gpu_').removesuffix('_bytes')}={value}"
    for name, value in config.options.items()
  ]
  if config.combine_groups is not None:
    parts.append(f"{len(config.combine_groups)} combine groups")
  if config.scheduler_profile is not None:
    parts.append("scheduler profile")
  return ", ".join(parts) or "XLA's defaults"


def effects(effects: Sequence[effects_lib.Effect]) -> rich.table.Table:
  """What each knob of a plan did."""
  table = table_lib.new(
    "What each knob does, as seen in the schedule with and without it",
    "knob",
    "value",
    "effect",
  )
  table.columns[0].no_wrap = True
  for column in table.columns[1:]:
    column.justify = "left"
  for effect in effects:
    table.add_row(effect.knob, effect.value, effect.evidence)
  if not effects:
    table.add_row("nothing", "", "the defaults are the best that was found")
  return table


def gains(plan: plan_lib.Plan) -> rich.table.Table:
  """Before and after, by how much of the plan is applied."""
  prediction = plan.prediction
  table = table_lib.new(
    "Predicted step time, by what is applied (not measured)",
    "applied",
    "ms",
    "speed-up",
  )
  everything = "after: env.sh, with the NCCL tuner plugin"
  if plan.needs_process:
    everything += " and lagom_xla.tune(plan=...)"
  rows = (
    ("before: all defaults", prediction.default_us),
    ("XLA_FLAGS", prediction.xla_us),
    ("XLA_FLAGS and NCCL_MAX_CTAS", prediction.nccl_env_us),
    (everything, prediction.nccl_settings_us),
  )
  for label, time_us in rows:
    table.add_row(
      label,
      f"{time_us / 1e3:,.2f}",
      f"{prediction.default_us / time_us:.4f}x" if time_us else "-",
    )
  return table
