# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""The summary of a profile: who waited for whom in a run, as measured."""

from __future__ import annotations

from lagom_xla.costs import in_words
from lagom_xla.profiling import overlaps as overlaps_lib
from lagom_xla.profiling import profile as profile_lib
from lagom_xla.report.terminal import screen
from lagom_xla.report.wording import instructions as instructions_lib


def verdict(
  profile: profile_lib.Profile, overlaps: overlaps_lib.Overlaps
) -> screen.Section:
  """How long kernels waited in the run, for whom, and who was late."""
  trace = profile.trace
  late = max(overlaps.devices, key=lambda row: row.late_us, default=None)
  words = (
    f"{profile.analysis.module.name}, measured: kernels wait"
    f" {in_words.milliseconds(overlaps.exposed_us)} for collectives and lose"
    f" {in_words.milliseconds(overlaps.slowdown_us)} beside them, of a step of"
    f" {in_words.milliseconds(overlaps.step_us)}."
  )
  late_us = sum(row.late_ranks_us for row in overlaps.collectives)
  waits = (
    f"Of the waits {in_words.milliseconds(late_us)} pass while a rank has not"
    " come"
  )
  if late is not None and late.late_us:
    waits += (
      f"; {late.name} keeps others waiting longest,"
      f" {in_words.milliseconds(late.late_us)}"
    )
  ran_on = (
    f"{in_words.count(profile.whole_steps, 'whole step')} on"
    f" {in_words.count(trace.devices, trace.platform)} of"
    f" {in_words.count(trace.processes, 'process', 'processes')}"
  )
  return screen.Section(
    head=(
      *screen.wrapped(words),
      *screen.wrapped(f"{waits}.", indent=2),
      *screen.wrapped(f"{ran_on}; means of devices and steps.", indent=2),
    )
  )


def waited_for(
  profile: profile_lib.Profile, overlaps: overlaps_lib.Overlaps
) -> screen.Section | None:
  """The collectives that cost most, as measured, with their lines."""
  instructions = instructions_lib.of_analysis(
    profile.analysis, profile.trace.platform
  )
  costly = sorted(
    overlaps.collectives, key=lambda row: -(row.exposed_us + row.slowdown_us)
  )
  items = []
  for row in costly:
    known = instructions.get(row.name)
    what, source = row.name, ""
    if known is not None:
      what = f"{row.name}: {known.what}"
      source = str(known.source)
    times = "".join(
      f"{in_words.ms(us):>9}"
      for us in (row.exposed_us, row.late_ranks_us, row.slowdown_us)
    )
    items.append(
      (
        *screen.wrapped(f"{times}  {what}", more=29),
        *screen.wrapped(source, indent=29, more=0),
      )
    )
  if not items:
    return None
  return screen.Section(
    head=(
      "     wait  of late     lose  ms per step (names of the module that ran)",
    ),
    items=tuple(items),
    least=1,
  )
