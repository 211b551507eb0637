# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Suspects: options that hardly act, to go by what a schedule shows.

A recipe is written for many programs, so a good part of it says nothing about
this one. Whether that is so only a compile can tell; but one compile without
all suspects together tells it of each, where it makes the same schedule.
"""

from __future__ import annotations

from collections.abc import Iterable

from lagom_xla import errors
from lagom_xla.compile import config as config_lib
from lagom_xla.flags import debug_options
from lagom_xla.passes import overlap
from lagom_xla.passes.combine import table
from lagom_xla.search.xla import knobs
from lagom_xla.search.xla.knobs import thresholds
from lagom_xla.xla_schedule import latency_hiding

# What XLA reads after it has scheduled, and for what.
AFTER_THE_SCHEDULE = {
  "xla_gpu_enable_command_buffer": "how kernels are launched",
  "xla_disable_hlo_passes": "which passes run",
}


def of(
  config: config_lib.XlaConfig,
  names: Iterable[str],
  scheduled: overlap.Analysis,
  by_default: overlap.Analysis,
) -> tuple[str, ...]:
  """Those of a config's options that are likely to do nothing.

  Args:
    config: with the options.
    names: those of the options to look at.
    scheduled: the schedule under the config.
    by_default: the schedule under XLA's defaults.
  """
  without_object = _without_object(scheduled) | _out_of_reach(config, scheduled)
  # Most programs have it without being asked; recipes ask for all.
  is_on = latency_hiding.made(by_default.module) and (
    config.options.get(latency_hiding.ESTIMATES, True) is True
  )
  return tuple(
    name
    for name in names
    if name in AFTER_THE_SCHEDULE
    or name in without_object
    or (name == latency_hiding.SCHEDULER and is_on)
    or _is_default(name, config.options[name])
  )


def _without_object(scheduled: overlap.Analysis) -> set[str]:
  """Options for kinds of collectives that the schedule has none or one of."""
  num_moved = dict.fromkeys(thresholds.OPTIONS, 0)
  in_loops = set()
  for collective in scheduled.collectives:
    kind = collective.kind
    if kind in num_moved:
      num_moved[kind] += collective.num_operands
    if collective.executions > 1:
      in_loops.update(knobs.PIPELINED_AS.get(kind, (kind,)))
  found = {thresholds.OPTIONS[k] for k, num in num_moved.items() if num < 2}
  return found | {o for k, o in knobs.PIPELINED.items() if k not in in_loops}


def _out_of_reach(
  config: config_lib.XlaConfig, scheduled: overlap.Analysis
) -> set[str]:
  """Thresholds that are raised, and combined nothing for it.

  All that is combined of their kinds fits under the default, too.
  """
  reached = {
    c.kind
    for c in scheduled.collectives
    if c.num_operands > 1
    and c.kind in table.COMBINERS
    and table.combined_bytes(c) > table.COMBINERS[c.kind].default_bytes
  }
  return {
    option
    for kind, option in thresholds.OPTIONS.items()
    if kind not in reached
    and option in config.options
    and int(config.options[option]) >= table.COMBINERS[kind].default_bytes
  }


def _is_default(name: str, value: object) -> bool:
  """Whether jaxlib sets this by itself, as far as can be asked."""
  try:
    option = debug_options.find(name)
  except errors.OptionsError:
    return False
  return option is not None and option.default == value
