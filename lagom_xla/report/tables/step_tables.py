# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Tables of one step: its collectives, how well they hide, what they slow."""

from __future__ import annotations

import rich.table

from lagom_xla.costs import in_words
from lagom_xla.costs import lower_bound
from lagom_xla.costs import step as step_lib
from lagom_xla.costs import uncertainty
from lagom_xla.costs.replay import timeline
from lagom_xla.explain import explaining
from lagom_xla.passes import collectives as collectives_lib
from lagom_xla.report.printed import collectives as printed_collectives
from lagom_xla.report.tables import table as table_lib
from lagom_xla.report.wording import instructions as instructions_lib
from lagom_xla.report.wording import today

# Shares of a collective's time that are covered by kernels, from which on it
# counts as hidden, and up to which as exposed (xprof's async overlap analysis).
_HIDDEN_FROM = 0.9
_EXPOSED_UP_TO = 0.1

_MOST_ROWS = 24


def totals(step: step_lib.Step) -> rich.table.Table:
  """Bytes and runs of collectives, by kind."""
  table = table_lib.new(
    "Collectives per GPU and step",
    "kind",
    "instructions",
    "executions",
    "operands MB",
    "results MB",
  )
  for kind, total in printed_collectives.totals(step.analysis).items():
    table.add_row(
      kind,
      f"{total.num_instructions:,}",
      f"{total.num_executions:,}",
      in_words.mb(total.operand_bytes),
      in_words.mb(total.result_bytes),
    )
  return table


def collectives(step: step_lib.Step) -> rich.table.Table:
  """The collectives that take longest, and how well they hide."""
  explained = explaining.of_run(step, step.default)
  by_name = {
    collective.name: collective for collective in explained.collectives
  }

  def cost_us(collective: collectives_lib.Collective) -> float:
    return by_name[collective.name].lone_us

  ranked = sorted(step.analysis.collectives, key=cost_us, reverse=True)
  table = table_lib.new(
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
  told = instructions_lib.of_step(step)
  for collective in ranked[:_MOST_ROWS]:
    frames = told[collective.name].source.frames
    beside = step.analysis.kernels_beside[collective.start_id]
    total_us = cost_us(collective)
    exposed_us = by_name[collective.name].exposed_us
    key = step.key_of[collective.name]
    table.add_row(
      "\n  ".join([collective.name, *map(str, frames[:1])]),
      collective.form,
      str(collective.executions),
      in_words.mb(collective.nccl_bytes),
      str(sum(kernel.category == "gemm" for kernel in beside)),
      str(len(beside)),
      str(step.default[key].num_channels),
      in_words.ms(total_us),
      in_words.ms(exposed_us),
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


def host_copies(
  step: step_lib.Step, replayed: timeline.Timeline
) -> rich.table.Table:
  """The copies to and from the host's memory that take longest."""
  link = step.cluster.node.link_to_host
  table = table_lib.new(
    "Copies to and from the host's memory (predicted per step,"
    f" {link.effective_gbps:g} GB/s each way)",
    "copy",
    "to",
    "times",
    "MB",
    "ms",
    "wait",
    "",
  )
  ranked = sorted(
    step.analysis.host_copies,
    key=lambda c: c.executions * c.num_bytes,
    reverse=True,
  )
  for copy in ranked[:_MOST_ROWS]:
    total_us = copy.executions * step.copy_cost(copy).time_us
    wait_us = replayed.copy_wait_us.get(copy.name, 0.0)
    table.add_row(
      copy.name,
      "host" if copy.to_host else "GPU",
      str(copy.executions),
      in_words.mb(copy.num_bytes),
      in_words.ms(total_us),
      in_words.ms(wait_us),
      _hiding(total_us, wait_us),
    )
  if len(ranked) > _MOST_ROWS:
    table.caption = f"and {len(ranked) - _MOST_ROWS} shorter ones"
  return table


def times(step: step_lib.Step, replayed: timeline.Timeline) -> rich.table.Table:
  """What the step time is made of."""
  table = table_lib.new(
    f"Predicted step, {today.words()} (docs/cost_model.md: how far off)",
    "part",
    "ms",
  )
  table.add_row("kernels alone", in_words.ms(replayed.kernel_us))
  table.add_row(
    "+ kernels slowed by collectives",
    in_words.ms(replayed.total_slowdown_us),
  )
  table.add_row(
    "+ waits for collectives", in_words.ms(replayed.total_exposed_us)
  )
  if step.analysis.copies:
    table.add_row(
      "+ kernels slowed by copies",
      in_words.ms(replayed.total_copy_slowdown_us),
    )
    table.add_row(
      "+ waits for copies", in_words.ms(replayed.total_copy_wait_us)
    )
  table.add_row("= step", in_words.ms(replayed.step_time_us))
  known = uncertainty.step_time(uncertainty.times(step, step.default))
  table.add_row(
    "9 times in 10 between",
    in_words.ms_range(known.low, known.high, " and "),
  )
  table.add_row("lower bound", in_words.ms(lower_bound.us(step)))
  table.add_row(
    "collectives slowed by kernels", in_words.ms(replayed.total_delay_us)
  )
  return table


def slowdowns(replayed: timeline.Timeline) -> rich.table.Table:
  """Who slows whom most."""
  table = table_lib.new(
    "Kernels slowed most (predicted)", "kernel", "by collective", "ms/step"
  )
  ranked = sorted(
    replayed.slowdown_us.items(), key=lambda item: item[1], reverse=True
  )
  for (kernel, collective), lost_us in ranked[:5]:
    table.add_row(kernel, collective, in_words.ms(lost_us))
  return table
