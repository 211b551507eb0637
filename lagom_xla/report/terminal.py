# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Reports for the terminal: of an inspection, a tuning, a verification.

Every time shown is predicted, and says so: nothing here has run on a GPU.
"""

from __future__ import annotations

import math
import pathlib

import rich.console

from lagom_xla import cluster as cluster_lib
from lagom_xla import tuner
from lagom_xla.costs import spread as spread_lib
from lagom_xla.costs import step as step_lib
from lagom_xla.flags import environment
from lagom_xla.passes import rematerialization
from lagom_xla.report import arms
from lagom_xla.report import as_json
from lagom_xla.report import program_tables
from lagom_xla.report import scatters
from lagom_xla.report import step_tables
from lagom_xla.report import today
from lagom_xla.report import tuning_tables
from lagom_xla.verify import verification as verification_lib


def show_inspection(console: rich.console.Console, step: step_lib.Step) -> None:
  """Shows which collectives overlap which kernels, and what that costs."""
  replayed = step.timeline(step.default)
  module = step.analysis.module
  console.print(
    f"{module.name} on {step.cluster.name}:"
    f" {module.num_instructions:,} instructions,"
    f" {len(step.analysis.kernels):,} kernels,"
    f" {len(step.analysis.collectives):,} collectives,"
    f" {_tflop(as_json.gemm_flops(step.analysis))} TFLOP of matrix"
    " products per GPU and step"
  )
  if today.note():
    console.print(today.note(), highlight=False, soft_wrap=True)
  if module.loops_of_unknown_length:
    console.print(
      "Counted once, as their trip counts are not known:"
      f" {', '.join(module.loops_of_unknown_length)}",
      style="yellow",
    )
  if count := len(rematerialization.recomputed(module)):
    console.print(
      f"{count:,} instructions run again, as memory is short: this is the"
      " compiled module, which XLA changed after its scheduler",
      style="yellow",
      highlight=False,
    )
  console.print(step_tables.totals(step))
  console.print(step_tables.collectives(step, replayed))
  if step.analysis.host_copies:
    console.print(step_tables.host_copies(step, replayed))
  console.print(step_tables.times(step, replayed))
  console.print(_known(step.cluster))
  losses = step_tables.slowdowns(replayed)
  if losses.row_count:
    console.print(losses)
  for note in scatters.notes(step, replayed.step_time_us):
    console.print(note, style="yellow", highlight=False)


def _tflop(flops: int) -> str:
  """In three digits, but all of a larger number."""
  tflop = flops / 1e12
  return f"{tflop:,.0f}" if tflop >= 100 else f"{tflop:.3g}"


def _known(cluster: cluster_lib.Cluster) -> str:
  """How well collectives are known where most of them run."""
  is_between_nodes = cluster.num_nodes > 1
  where = f"over {cluster.node.fabric}" if is_between_nodes else "within a node"
  spread = spread_lib.of_collectives(cluster, is_between_nodes=is_between_nodes)
  return (
    f"Collectives {where}: {spread.n:,} measured ones take"
    f" {math.exp(spread.low):.2f} to {math.exp(spread.high):.2f} times what is"
    f" predicted, 9 in 10 of them ({'; '.join(spread.groups)})"
  )


def show_tuning(
  console: rich.console.Console,
  tuning: tuner.Tuning,
  files: list[pathlib.Path],
) -> None:
  """Shows what tuning found, whether it acts, and what it should gain."""
  show_inspection(console, tuning.before)
  console.print(tuning_tables.candidates(tuning))
  if tuning.search.arms:
    applied = tuning.plan.applied
    console.print(arms.table(tuning.search, applied))
    for note in arms.notes(tuning.search, applied):
      console.print(note, highlight=False)
  if tuning.search.no_arms:
    console.print(
      f"No published XLA_FLAGS were tried: {tuning.search.no_arms}",
      style="yellow",
      highlight=False,
    )
  if program_tables.has_forms(tuning) and (
    why_none := program_tables.why_none(tuning)
  ):
    console.print(why_none, highlight=False)
  elif program_tables.has_forms(tuning):
    console.print(program_tables.forms(tuning))
  console.print(tuning_tables.effects(tuning.effects))
  tried, kept = tuning.kept.config.options, tuning.plan.xla.options
  if idle := [name for name in tried if name not in kept]:
    console.print(
      "Left out, as the schedule is the same without:",
      ", ".join(idle),
      highlight=False,
    )
  if tuning.plan.nccl_settings:
    console.print(tuning_tables.settings(tuning.plan))
  console.print(tuning_tables.gains(tuning.plan))
  if measured_run := tuning_tables.measured_run(tuning.plan):
    console.print(measured_run, highlight=False)
  if recomputed := tuning_tables.recomputed(tuning):
    console.print(recomputed, style="yellow", highlight=False)
  _show_memory(console, tuning)
  for path in files:
    console.print(f"Wrote {path}", highlight=False, soft_wrap=True)


def show_verification(
  console: rich.console.Console, verification: verification_lib.Verification
) -> None:
  """Shows what each knob of a plan did, and what all of it should gain."""
  plan = verification.plan
  console.print(
    f"Plan for {plan.module_name} on {plan.cluster.name}: module,"
    " cluster and versions are those that it was made for"
  )
  if (flags := environment.xla_flags()) != plan.xla_flags:
    console.print(
      f"XLA_FLAGS is {flags or 'not set'}; where the plan was made it was"
      f" {plan.xla_flags or 'not set'}",
      style="yellow",
      highlight=False,
    )
  console.print(tuning_tables.effects(verification.effects))
  console.print(
    f"Predicted step: {verification.default_us / 1e3:,.2f} ms without the plan,"
    f" {verification.planned_us / 1e3:,.2f} ms with all of it"
  )
  step, gain = plan.prediction.default_range_us, plan.gain_us
  console.print(
    f"By the plan, 9 times in 10: {step.low_us / 1e3:,.2f} to"
    f" {step.high_us / 1e3:,.2f} ms without it; gains"
    f" {tuning_tables.gain_ms(gain)} with all of it",
    highlight=False,
  )
  if measured_run := tuning_tables.measured_run(plan):
    console.print(measured_run, highlight=False)


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
