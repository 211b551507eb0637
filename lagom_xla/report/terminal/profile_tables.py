# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Reports of a profile: the overlaps of a run as they were measured."""

from __future__ import annotations

from collections.abc import Sequence
import pathlib

import rich.console
import rich.table

from lagom_xla.costs import in_words
from lagom_xla.profiling import overlaps as overlaps_lib
from lagom_xla.profiling import profile as profile_lib
from lagom_xla.report.tables import table as table_lib
from lagom_xla.report.terminal import notes as notes_lib
from lagom_xla.report.terminal import profile_summary
from lagom_xla.report.terminal import screen
from lagom_xla.report.wording import profile_notes

_ms = in_words.ms

_MOST_ROWS = 24
_MOST_SLOWDOWNS = 10


def show(
  console: rich.console.Console,
  profile: profile_lib.Profile,
  files: Sequence[pathlib.Path] = (),
  *,
  is_verbose: bool = False,
) -> None:
  """Shows who waited for whom, who slowed whom, and which rank is late.

  Args:
    console: where.
    profile: of a run.
    files: that were written.
    is_verbose: whether to show every table, too.
  """
  overlaps = overlaps_lib.of_profile(profile)
  sections = (
    profile_summary.verdict(profile, overlaps),
    profile_summary.waited_for(profile, overlaps),
    notes_lib.section(profile_notes.of_profile(profile)),
    None if is_verbose else screen.Section(head=("-v: every table",)),
  )
  screen.show(console, sections, files, is_whole=is_verbose)
  if is_verbose:
    console.print(_times(overlaps))
    if overlaps.collectives:
      console.print(_collectives(overlaps))
    if overlaps.slowdowns:
      console.print(_slowdowns(overlaps))
    console.print(_devices(overlaps))
  screen.show_files(console, files)


def _times(overlaps: overlaps_lib.Overlaps) -> rich.table.Table:
  table = table_lib.new(
    "Measured step, mean of devices and steps", "part", "ms"
  )
  table.add_row("kernels", _ms(overlaps.kernel_us))
  table.add_row("  lost to collectives", _ms(overlaps.slowdown_us))
  table.add_row("+ waits for collectives", _ms(overlaps.exposed_us))
  late_us = sum(row.late_ranks_us for row in overlaps.collectives)
  table.add_row("  while a rank had not come", _ms(late_us))
  table.add_row("+ gaps", _ms(overlaps.gap_us))
  total_us = overlaps.kernel_us + overlaps.exposed_us + overlaps.gap_us
  table.add_row("= step", _ms(total_us))
  table.add_row("median step", _ms(overlaps.step_us))
  return table


def _collectives(overlaps: overlaps_lib.Overlaps) -> rich.table.Table:
  table = table_lib.new(
    "Who waited for whom (measured, ms per step)",
    "collective",
    "times",
    "SMs",
    "ran",
    "own",
    "wait",
    "late ranks",
    "slows",
  )
  table.columns[0].no_wrap = True
  for row in overlaps.collectives[:_MOST_ROWS]:
    table.add_row(
      row.name,
      f"{row.runs:g}",
      "" if row.num_channels is None else str(row.num_channels),
      _ms(row.ran_us),
      ("" if row.has_all_ranks else "≤ ") + _ms(row.own_us * row.runs),
      _ms(row.exposed_us),
      _ms(row.late_ranks_us),
      _ms(row.slowdown_us),
    )
  if len(overlaps.collectives) > _MOST_ROWS:
    num_more = len(overlaps.collectives) - _MOST_ROWS
    table.caption = f"and {num_more} that were waited for less"
  return table


def _slowdowns(overlaps: overlaps_lib.Overlaps) -> rich.table.Table:
  columns = ("kernel", "alike", "by collective", "alone us", "beside us")
  return table_lib.filled(
    "Kernels slowed most (measured)",
    (*columns, "lost ms/step"),
    (
      (
        row.kernel,
        str(row.num_kernels),
        row.collective,
        f"{row.lone_us:,.1f}",
        "" if row.beside_us is None else f"{row.beside_us:,.1f}",
        _ms(row.lost_us),
      )
      for row in overlaps.slowdowns[:_MOST_SLOWDOWNS]
    ),
  )


def _devices(overlaps: overlaps_lib.Overlaps) -> rich.table.Table:
  columns = ("device", "steps", "step ms", "came last")
  return table_lib.filled(
    "Ranks (measured per step)",
    (*columns, "kept others waiting ms"),
    (
      (
        row.name,
        str(row.num_steps),
        _ms(row.step_us),
        f"{row.last:,.1f}",
        _ms(row.late_us),
      )
      for row in overlaps.devices
    ),
  )
