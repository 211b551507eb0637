# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Everything of a report, table by table, as `-v` shows it.

Every time shown is predicted, and says so: nothing here has run on a GPU.
"""

from __future__ import annotations

import math

import rich.console

from lagom_xla import cluster as cluster_lib
from lagom_xla.costs import in_words
from lagom_xla.costs import step as step_lib
from lagom_xla.costs import uncertainty
from lagom_xla.report.tables import arms
from lagom_xla.report.tables import program_tables
from lagom_xla.report.tables import step_tables
from lagom_xla.report.tables import tuning_tables
from lagom_xla.tuner import tuning as tuning_lib


def of_step(console: rich.console.Console, step: step_lib.Step) -> None:
  """Shows which collectives overlap which kernels, and what that costs."""
  replayed = step.timeline(step.default)
  module = step.analysis.module
  console.print(
    f"{module.name} on {step.cluster.name}:"
    f" {in_words.count(module.num_instructions, 'instruction')},"
    f" {in_words.count(step.analysis.kernels, 'kernel')},"
    f" {in_words.count(step.analysis.collectives, 'collective')},"
    f" {_tflop(step.analysis.gemm_flops)} TFLOP of matrix"
    " products and convolutions per GPU and step"
  )
  console.print(step_tables.totals(step))
  console.print(step_tables.collectives(step))
  if step.analysis.host_copies:
    console.print(step_tables.host_copies(step, replayed))
  console.print(step_tables.times(step, replayed))
  console.print(_known(step.cluster))
  losses = step_tables.slowdowns(replayed)
  if losses.row_count:
    console.print(losses)


def _tflop(flops: int) -> str:
  """In three digits, but all of a larger number."""
  tflop = flops / 1e12
  return f"{tflop:,.0f}" if tflop >= 100 else f"{tflop:.3g}"


def _known(cluster: cluster_lib.Cluster) -> str:
  """How well collectives are known where most of them run."""
  is_between_nodes = cluster.num_nodes > 1
  where = f"over {cluster.node.fabric}" if is_between_nodes else "within a node"
  spread = uncertainty.of_collectives(
    cluster, is_between_nodes=is_between_nodes
  )
  return (
    f"Collectives {where}: {spread.n:,} measured ones take"
    f" {math.exp(spread.low):.2f} to {math.exp(spread.high):.2f} times what is"
    f" predicted, 9 in 10 of them ({'; '.join(spread.groups)})"
  )


def of_tuning(console: rich.console.Console, tuning: tuning_lib.Tuning) -> None:
  """Shows what tuning found, whether it acts, and what it should gain."""
  of_step(console, tuning.before)
  console.print(tuning_tables.candidates(tuning))
  if tuning.search.arms:
    console.print(arms.table(tuning.search, tuning.plan.applied))
    for note in arms.notes(tuning.search):
      console.print(note, highlight=False)
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
