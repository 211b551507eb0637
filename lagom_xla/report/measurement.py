# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Reports of a profile: who waited for whom in a run, and what that costs.

A profile is shown as it was measured; where steps are priced by one, reports
say how far off predictions were, and what the profile lacks.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
import pathlib

import rich.console
import rich.table

from lagom_xla.costs import in_words
from lagom_xla.costs import step as step_lib
from lagom_xla.profiling import costing as costing_lib
from lagom_xla.profiling import overlaps as overlaps_lib
from lagom_xla.profiling import profile as profile_lib
from lagom_xla.report import instructions as instructions_lib
from lagom_xla.report import layout
from lagom_xla.report import notes

_ms = in_words.ms
_MOST_ROWS = 24
_MOST_SLOWDOWNS = 10


def show_profile(
  console: rich.console.Console,
  profile: profile_lib.Profile,
  files: Sequence[pathlib.Path] = (),
  *,
  is_verbose: bool = False,
) -> None:
  """Shows who waited for whom, who slowed whom, and which rank is late."""
  overlaps = overlaps_lib.of_profile(profile)
  layout.show(
    console,
    (
      _verdict(profile, overlaps),
      _waited_for(profile, overlaps),
      layout.notes(notes.profile_notes(profile)),
      None if is_verbose else layout.Section(head=("-v: every table",)),
    ),
    files,
    _tables(overlaps) if is_verbose else None,
  )


def _verdict(
  profile: profile_lib.Profile, overlaps: overlaps_lib.Overlaps
) -> layout.Section:
  """How long kernels waited in the run, for whom, and who was late."""
  ms, count = in_words.milliseconds, in_words.count
  trace = profile.trace
  late_us = sum(row.late_ranks_us for row in overlaps.collectives)
  late = max(overlaps.devices, key=lambda row: row.late_us, default=None)
  latest = ""
  if late is not None and late.late_us:
    latest = f"; {late.name} keeps others waiting longest, {ms(late.late_us)}"
  return layout.Section(
    head=(
      *layout.wrapped(
        f"{profile.analysis.module.name}, measured: kernels wait"
        f" {ms(overlaps.exposed_us)} for collectives and lose"
        f" {ms(overlaps.slowdown_us)} beside them, of a step of"
        f" {ms(overlaps.step_us)}."
      ),
      *layout.wrapped(
        f"Of the waits {ms(late_us)} pass while a rank has not come{latest}.",
        indent=2,
      ),
      *layout.wrapped(
        f"{count(profile.whole_steps, 'whole step')} on"
        f" {count(trace.devices, trace.platform)} of"
        f" {count(trace.processes, 'process', 'processes')}; means of devices"
        " and steps.",
        indent=2,
      ),
    )
  )


def _waited_for(
  profile: profile_lib.Profile, overlaps: overlaps_lib.Overlaps
) -> layout.Section | None:
  """The collectives that cost most, as measured, with their lines."""
  if not overlaps.collectives:
    return None
  instructions = instructions_lib.of_analysis(
    profile.analysis, profile.trace.platform
  )
  items = []
  for row in sorted(
    overlaps.collectives, key=lambda row: -(row.exposed_us + row.slowdown_us)
  ):
    known = instructions.get(row.name)
    what = f"{row.name}: {known.what}" if known else row.name
    source = str(known.source) if known else ""
    times_us = (row.exposed_us, row.late_ranks_us, row.slowdown_us)
    times = "".join(f"{_ms(us):>9}" for us in times_us)
    first = layout.wrapped(f"{times}  {what}", more=29)
    items.append((*first, *layout.wrapped(source, indent=29, more=0)))
  head = (
    "     wait  of late     lose  ms per step (names of the module that ran)"
  )
  return layout.Section(head=(head,), items=tuple(items), least=1)


def _tables(overlaps: overlaps_lib.Overlaps) -> Iterator[rich.table.Table]:
  late_us = sum(row.late_ranks_us for row in overlaps.collectives)
  total_us = overlaps.kernel_us + overlaps.exposed_us + overlaps.gap_us
  yield layout.table(
    "Measured step, mean of devices and steps",
    ("part", "ms"),
    (
      ("kernels", _ms(overlaps.kernel_us)),
      ("  lost to collectives", _ms(overlaps.slowdown_us)),
      ("+ waits for collectives", _ms(overlaps.exposed_us)),
      ("  while a rank had not come", _ms(late_us)),
      ("+ gaps", _ms(overlaps.gap_us)),
      ("= step", _ms(total_us)),
      ("median step", _ms(overlaps.step_us)),
    ),
  )
  if overlaps.collectives:
    left = len(overlaps.collectives) - _MOST_ROWS
    columns = ("times", "SMs", "ran", "own", "wait", "late ranks", "slows")
    table = layout.table(
      "Who waited for whom (measured, ms per step)",
      ("collective", *columns),
      (
        (
          row.name,
          f"{row.runs:g}",
          "" if row.num_channels is None else str(row.num_channels),
          _ms(row.ran_us),
          ("" if row.has_all_ranks else "≤ ") + _ms(row.own_us * row.runs),
          _ms(row.exposed_us),
          _ms(row.late_ranks_us),
          _ms(row.slowdown_us),
        )
        for row in overlaps.collectives[:_MOST_ROWS]
      ),
      caption=f"and {left} that were waited for less" if left > 0 else None,
    )
    table.columns[0].no_wrap = True
    yield table
  if overlaps.slowdowns:
    columns = ("kernel", "alike", "by collective", "alone us", "beside us")
    yield layout.table(
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
  yield layout.table(
    "Ranks (measured per step)",
    ("device", "steps", "step ms", "came last", "kept others waiting ms"),
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


def ratios(costed: costing_lib.Costing) -> rich.table.Table:
  """How far off the model was from the costs that a step is priced by."""
  columns = ("number", "measured ms", "predicted ms", "least", "median", "most")
  return layout.table(
    "Measured over predicted, alone (without ranks' waits)",
    ("kind", *columns),
    (
      (
        ratio.kind,
        f"{ratio.n:,}",
        _ms(ratio.measured_us),
        _ms(ratio.predicted_us),
        f"{ratio.low:.2f}",
        f"{ratio.median:.2f}",
        f"{ratio.high:.2f}",
      )
      for ratio in costed.ratios
    ),
  )


def cost_notes(
  step: step_lib.Step, costed: costing_lib.Costing | None
) -> Iterator[str]:
  """What is measured of a step, and what its trace lacks, in sentences."""
  if costed is None:
    return
  by_name, by_work, scaled = costing_lib.num_priced(costed, step)
  num_kernels = by_name + by_work + scaled
  yield (
    f"Of {in_words.count(num_kernels, 'kernel')} {by_name:,} cost what the"
    f" profile measured alone, {by_work:,} what kernels of equal work did, and"
    f" {scaled:,} what is predicted, times the median of their kind"
  )
  if losses := costed.measured.losses:
    yield (
      f"{len(losses):,} pairs of a kernel's work and a collective lose what"
      f" they lost in the profile, {min(losses.values()):.2f} to"
      f" {max(losses.values()):.2f} times what the model says"
    )
  # How sure measured costs are, as far as the run tells.
  measured = costed.measured
  for what, factors in (
    ("lone kernels take", measured.kernel_factors),
    ("collectives take", measured.collective_factors),
    ("whole steps take over their replay", measured.step_factors),
  ):
    if factors is None:
      yield (
        f"The run does not tell how sure it is of what {what}: the model's"
        " range stays"
      )
    else:
      high, low = factors
      yield (
        f"From step to step {what} {low:.3f} to {high:.3f} times what they cost"
        " here, 9 times in 10"
      )
  for names, what in (
    (costed.never_alone, "never ran alone in the profile, and are predicted"),
    (costed.not_run, "of the profile's module are not in its trace"),
    (costed.has_waits, "may take less, as the trace lacks ranks they wait for"),
  ):
    if names:
      yield f"{len(names):,} {what}, such as {names[0]}"
