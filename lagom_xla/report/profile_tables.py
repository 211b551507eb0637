# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Reports of a profile: the overlaps of a run as they were measured."""

from __future__ import annotations

from collections.abc import Iterator
import dataclasses
from typing import Any

import rich.console
import rich.table

from lagom_xla.profiling import overlaps as overlaps_lib
from lagom_xla.profiling import profile as profile_lib
from lagom_xla.report import table as table_lib

_MOST_ROWS = 24
_MOST_SLOWDOWNS = 10


def show(console: rich.console.Console, profile: profile_lib.Profile) -> None:
  """Shows who waited for whom, who slowed whom, and which rank is late."""
  overlaps = overlaps_lib.of_profile(profile)
  console.print(
    f"{profile.analysis.module.name}, measured:"
    f" {len(profile.whole_steps)} whole steps on"
    f" {len(profile.trace.devices)} {profile.trace.platform}s of"
    f" {len(profile.trace.processes)} processes",
    highlight=False,
  )
  console.print(_times(overlaps))
  if overlaps.collectives:
    console.print(_collectives(overlaps))
  if overlaps.slowdowns:
    console.print(_slowdowns(overlaps))
  console.print(_devices(overlaps))
  for note in notes(profile):
    console.print(note, style="yellow", highlight=False)


def as_json(profile: profile_lib.Profile) -> dict[str, Any]:
  """What `lagom-xla profile --format=json` prints."""
  overlaps = overlaps_lib.of_profile(profile)
  return {
    "module": profile.analysis.module.name,
    "platform": profile.trace.platform,
    "num_steps": len(profile.whole_steps),
    **dataclasses.asdict(overlaps),
    "processes": [
      {"name": process.name, "offset_us": offset_us}
      for process, offset_us in zip(
        profile.trace.processes, profile.offsets_us, strict=True
      )
    ],
    "notes": list(notes(profile)),
  }


def notes(profile: profile_lib.Profile) -> Iterator[str]:
  """What a trace lacks, in sentences."""
  trace = profile.trace
  for process, problems in trace.problems.items():
    yield f"{process}: the profiler says: {'; '.join(problems)}"
  if trace.num_left_out:
    yield (
      f"{trace.num_left_out:,} launches of later steps are not read: the trace"
      " has more than it takes to tell what a step costs. Trace fewer steps."
    )
  if trace.num_other_files:
    yield (
      f"{trace.num_other_files:,} older profiles of other runs are left"
      " out: name their own folder to see them."
    )
  if trace.platform == "CPU":
    yield (
      "Devices of one host share its cores: an instruction takes longest where"
      " others run beside it, on whatever device."
    )
  ran = {e.name for s in profile.steps for e in (*s.kernels, *s.collectives)}
  missing = [n for n in profile.kernels if n not in ran]
  if missing:
    reason = "branches that were not taken"
    if trace.platform == "GPU":
      reason += (
        ", or command buffers, which hide their kernels"
        " (--xla_gpu_enable_command_buffer=)"
      )
    yield (
      f"{len(missing):,} of {len(profile.kernels):,} kernels are not in the"
      f" trace, such as {missing[0]}: {reason}."
    )
  missing = [n for n in profile.collectives if n not in ran]
  if missing:
    yield (
      f"{len(missing):,} of {len(profile.collectives):,} collectives are not in"
      f" the trace, such as {missing[0]}."
    )
  alone = {i.name for i in profile.instances if not i.has_all_ranks}
  if alone:
    yield (
      f"{len(alone):,} collectives lack ranks in the trace: their own times"
      " may still have waits for those. Trace every process."
    )
  cut = len(profile.steps) - len(profile.whole_steps)
  if cut:
    yield (
      f"{cut:,} of {len(profile.steps):,} steps are not whole: the trace was"
      " begun or ended inside them, or lost events."
    )
  for device in trace.devices:
    if device.num_unnamed:
      yield (
        f"{device.name}: {device.num_unnamed:,} launches and copies"
        f" ({device.unnamed_us / 1e3:,.2f} ms) name no HLO instruction."
      )
  clockless = [p.name for p in trace.processes if not p.has_clock]
  if clockless and len(trace.processes) > 1:
    yield (
      f"{', '.join(clockless)}: the trace does not say when it began; its clock"
      " is set by the collectives alone."
    )


def _ms(us: float) -> str:
  return f"{us / 1e3:,.2f}"


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
  table = table_lib.new(
    "Kernels slowed most (measured)",
    "kernel",
    "alike",
    "by collective",
    "alone us",
    "beside us",
    "lost ms/step",
  )
  for row in overlaps.slowdowns[:_MOST_SLOWDOWNS]:
    table.add_row(
      row.kernel,
      str(row.num_kernels),
      row.collective,
      f"{row.lone_us:,.1f}",
      "" if row.beside_us is None else f"{row.beside_us:,.1f}",
      _ms(row.lost_us),
    )
  return table


def _devices(overlaps: overlaps_lib.Overlaps) -> rich.table.Table:
  table = table_lib.new(
    "Ranks (measured per step)",
    "device",
    "steps",
    "step ms",
    "came last",
    "kept others waiting ms",
  )
  for row in overlaps.devices:
    table.add_row(
      row.name,
      str(row.num_steps),
      _ms(row.step_us),
      f"{row.last:,.1f}",
      _ms(row.late_us),
    )
  return table
