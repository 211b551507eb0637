# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Tables for the terminal.

Every time shown is predicted, and says so: nothing here has run on a GPU.
"""

from __future__ import annotations

from collections.abc import Sequence
import pathlib

import rich.console
import rich.table

from lagom_xla import plan as plan_lib
from lagom_xla import tuner
from lagom_xla.compile import config as config_lib
from lagom_xla.costs import lower_bound
from lagom_xla.costs import step as step_lib
from lagom_xla.costs.replay import timeline
from lagom_xla.passes import collectives as collectives_lib
from lagom_xla.report import as_json
from lagom_xla.search.xla import candidates as candidates_lib
from lagom_xla.verify import effects as effects_lib
from lagom_xla.verify import verification as verification_lib

# Shares of a collective's time that are covered by kernels, from which on it
# counts as hidden, and up to which as exposed (xprof's async overlap analysis).
_HIDDEN_FROM = 0.9
_EXPOSED_UP_TO = 0.1

_MOST_ROWS = 24


def show_inspection(console: rich.console.Console, step: step_lib.Step) -> None:
  """Shows which collectives overlap which kernels, and what that costs."""
  replayed = step.timeline(step.default)
  module = step.analysis.module
  console.print(
    f"[bold]{module.name}[/bold] on {step.cluster.name}:"
    f" {module.num_instructions:,} instructions,"
    f" {len(step.analysis.kernels):,} kernels,"
    f" {len(step.analysis.collectives):,} collectives,"
    f" {as_json.gemm_flops(step.analysis) / 1e12:,.1f} TFLOP of matrix"
    " products per GPU and step"
  )
  if module.loops_of_unknown_length:
    console.print(
      "[yellow]Counted once, as their trip counts are not known:"
      f" {', '.join(module.loops_of_unknown_length)}[/yellow]"
    )
  console.print(_totals(step))
  console.print(_collectives(step, replayed))
  console.print(_times(step, replayed))
  losses = _slowdowns(replayed)
  if losses.row_count:
    console.print(losses)


def show_tuning(
  console: rich.console.Console,
  tuning: tuner.Tuning,
  files: list[pathlib.Path],
) -> None:
  """Shows what tuning found, whether it acts, and what it should gain."""
  show_inspection(console, tuning.before)
  console.print(_candidates(tuning))
  console.print(_effects(tuning.effects))
  console.print(_gains(tuning.plan))
  _show_memory(console, tuning)
  for path in files:
    console.print(f"Wrote {path}", highlight=False)


def _table(title: str, *columns: str) -> rich.table.Table:
  table = rich.table.Table(
    title=title,
    title_justify="left",
    box=None,
    pad_edge=False,
    padding=(0, 1, 0, 0),
  )
  for index, column in enumerate(columns):
    table.add_column(column, justify="left" if index == 0 else "right")
  return table


def _totals(step: step_lib.Step) -> rich.table.Table:
  table = _table(
    "Collectives per GPU and step",
    "kind",
    "instructions",
    "executions",
    "operands MB",
    "results MB",
  )
  for kind, total in as_json.totals(step.analysis).items():
    table.add_row(
      kind,
      f"{total['num_instructions']:,}",
      f"{total['num_executions']:,}",
      f"{total['operand_bytes'] / 1e6:,.1f}",
      f"{total['result_bytes'] / 1e6:,.1f}",
    )
  return table


def _collectives(
  step: step_lib.Step, replayed: timeline.Timeline
) -> rich.table.Table:
  """The collectives that take longest, and how well they hide."""

  def cost_us(collective: collectives_lib.Collective) -> float:
    key = step.key_of[collective.name]
    lone_us = step.predict(key, step.default[key]).time_us
    return lone_us * collective.executions

  ranked = sorted(step.analysis.collectives, key=cost_us, reverse=True)
  table = _table(
    "What runs beside each collective (predicted per step, NCCL's defaults)",
    "collective",
    "form",
    "times",
    "MB",
    "GEMMs",
    "kernels",
    "SMs",
    "ms",
    "wait",
    "",
  )
  table.columns[0].no_wrap = True
  for collective in ranked[:_MOST_ROWS]:
    beside = step.analysis.kernels_beside[collective.start_id]
    total_us = cost_us(collective)
    exposed_us = replayed.exposed_us.get(collective.name, 0.0)
    key = step.key_of[collective.name]
    table.add_row(
      collective.name,
      collective.form,
      str(collective.executions),
      f"{collective.nccl_bytes / 1e6:,.1f}",
      str(sum(kernel.category == "gemm" for kernel in beside)),
      str(len(beside)),
      str(step.default[key].num_channels),
      f"{total_us / 1e3:,.2f}",
      f"{exposed_us / 1e3:,.2f}",
      _hiding(total_us, exposed_us),
    )
  if len(ranked) > _MOST_ROWS:
    table.caption = f"and {len(ranked) - _MOST_ROWS} shorter ones"
  return table


def _hiding(total_us: float, exposed_us: float) -> str:
  covered = 1 - exposed_us / total_us if total_us else 1.0
  if covered >= _HIDDEN_FROM:
    return "hidden"
  return "exposed" if covered <= _EXPOSED_UP_TO else "partial"


def _times(
  step: step_lib.Step, replayed: timeline.Timeline
) -> rich.table.Table:
  table = _table(
    "Predicted step, all defaults (docs/cost_model.md: how far off)",
    "part",
    "ms",
  )
  table.add_row("kernels alone", f"{replayed.kernel_us / 1e3:,.2f}")
  table.add_row(
    "+ kernels slowed by collectives",
    f"{replayed.total_slowdown_us / 1e3:,.2f}",
  )
  table.add_row(
    "+ waits for collectives", f"{replayed.total_exposed_us / 1e3:,.2f}"
  )
  table.add_row("= step", f"{replayed.step_time_us / 1e3:,.2f}")
  table.add_row("what no tuning can beat", f"{lower_bound.us(step) / 1e3:,.2f}")
  table.add_row(
    "collectives slowed by kernels", f"{replayed.total_delay_us / 1e3:,.2f}"
  )
  return table


def _slowdowns(replayed: timeline.Timeline) -> rich.table.Table:
  """Who slows whom most."""
  table = _table(
    "Kernels slowed most (predicted)", "kernel", "by collective", "ms/step"
  )
  ranked = sorted(
    replayed.slowdown_us.items(), key=lambda item: item[1], reverse=True
  )
  for (kernel, collective), lost_us in ranked[:5]:
    table.add_row(kernel, collective, f"{lost_us / 1e3:,.2f}")
  return table


def show_verification(
  console: rich.console.Console, verification: verification_lib.Verification
) -> None:
  """Shows what each knob of a plan did, and what all of it should gain."""
  plan = verification.plan
  console.print(
    f"Plan for [bold]{plan.module_name}[/bold] on {plan.cluster.name}: module,"
    " cluster and versions are those that it was made for"
  )
  console.print(_effects(verification.effects))
  console.print(
    f"Predicted step: {verification.default_us / 1e3:,.2f} ms without the plan,"
    f" {verification.planned_us / 1e3:,.2f} ms with all of it"
  )


def _candidates(tuning: tuner.Tuning) -> rich.table.Table:
  table = _table(
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
        _choice(candidate.config), "-", "-", f"refused: {candidate.reason}"
      )
      continue
    table.add_row(
      _choice(candidate.config),
      f"{candidate.under_nccl_defaults.step_time_us / 1e3:,.2f}",
      f"{candidate.tuned.step_time_us / 1e3:,.2f}",
      "kept" if candidate is tuning.kept else "",
    )
  return table


def _choice(config: config_lib.XlaConfig) -> str:
  parts = [
    f"{name.removeprefix('xla_gpu_').removesuffix('_bytes')}={value}"
    for name, value in config.options.items()
  ]
  if config.combine_groups is not None:
    parts.append(f"{len(config.combine_groups)} combine groups")
  if config.scheduler_profile is not None:
    parts.append("scheduler profile")
  return ", ".join(parts) or "XLA's defaults"


def _effects(effects: Sequence[effects_lib.Effect]) -> rich.table.Table:
  table = _table(
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


def _gains(plan: plan_lib.Plan) -> rich.table.Table:
  """Before and after, by how much of the plan is applied."""
  prediction = plan.prediction
  table = _table(
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


def _show_memory(console: rich.console.Console, tuning: tuner.Tuning) -> None:
  if tuning.peak_bytes_before is None or tuning.peak_bytes_after is None:
    console.print(
      "Peak memory is not known: the target was not compiled to its end."
    )
    return
  console.print(
    "Peak memory per GPU, by XLA's buffer assignment:"
    f" {tuning.peak_bytes_before / 1e9:.2f} GB before,"
    f" {tuning.peak_bytes_after / 1e9:.2f} GB after, of"
    f" {tuning.plan.cluster.gpu.hbm_bytes / 1e9:.1f} GB"
  )
