# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Notes on a profile: what its trace lacks."""

from __future__ import annotations

from collections.abc import Iterator

from lagom_xla.costs import in_words
from lagom_xla.profiling import profile as profile_lib
from lagom_xla.profiling import trace as trace_lib


def of_profile(profile: profile_lib.Profile) -> Iterator[str]:
  """What a trace lacks, in sentences."""
  yield from _not_read(profile.trace)
  yield from _not_run(profile)
  alone = {i.name for i in profile.instances if not i.has_all_ranks}
  if alone:
    yield (
      f"Of {in_words.count(alone, 'collective')} the trace lacks ranks: own"
      " times may still have waits for those. Trace every process."
    )
  cut = len(profile.steps) - len(profile.whole_steps)
  if cut:
    yield (
      f"Not whole: {cut:,} of {in_words.count(profile.steps, 'step')}, as the"
      " trace was begun or ended inside, or lost events."
    )
  yield from _not_known(profile.trace)


def _not_read(trace: trace_lib.Trace) -> Iterator[str]:
  """What was left out of the trace, by the profiler or by its reader."""
  for process, problems in trace.problems.items():
    yield f"{process}: the profiler says: {in_words.first_of(problems, 3)}"
  if trace.num_left_out:
    yield (
      f"{trace.num_left_out:,} launches of later steps are not read: the trace"
      " has more than it takes to tell what a step costs. Trace fewer steps."
    )
  if trace.num_other_files:
    others = in_words.count(trace.num_other_files, "older profile")
    yield f"Left out, as of other runs: {others}. Name a folder to see it."
  if trace.unread:
    yield f"An older profile is left out. {in_words.first_of(trace.unread, 1)}"
  if trace.platform == "CPU":
    yield (
      "Devices of one host share its cores: an instruction takes longest where"
      " others run beside it, on whatever device."
    )


def _not_run(profile: profile_lib.Profile) -> Iterator[str]:
  """Kernels and collectives of the module that the trace does not have."""
  ran = {e.name for s in profile.steps for e in (*s.kernels, *s.collectives)}
  reason = ": branches that were not taken"
  if profile.trace.platform == "GPU":
    reason += (
      ", or command buffers, which hide their kernels"
      " (--xla_gpu_enable_command_buffer=)"
    )
  for what, names, why in (
    ("kernels", profile.kernels, reason),
    ("collectives", profile.collectives, ""),
  ):
    missing = [name for name in names if name not in ran]
    if missing:
      yield (
        f"{len(missing):,} of {len(names):,} {what} are not in the trace, such"
        f" as {missing[0]}{why}."
      )


def _not_known(trace: trace_lib.Trace) -> Iterator[str]:
  """What does not say of which instruction it is, or when it began."""
  for device in trace.devices:
    if device.num_unnamed:
      yield (
        f"{device.name}: {device.num_unnamed:,} launches and copies"
        f" ({in_words.milliseconds(device.unnamed_us)}) name no HLO"
        " instruction."
      )
  clockless = [p.name for p in trace.processes if not p.has_clock]
  if clockless and len(trace.processes) > 1:
    yield (
      f"{', '.join(clockless)}: the trace does not say when it began; its clock"
      " is set by the collectives alone."
    )
