# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Names: a candidate with the schedule that XLA makes from the beginning.

A search tells schedules apart by what runs beside what, and may have them made
from a fused module, in which instructions have other names. Scheduler profiles
and orders go by names, and a user looks for those that XLA writes down.
"""

from __future__ import annotations

import dataclasses

from lagom_xla.compile import lowered
from lagom_xla.compile import target as target_lib
from lagom_xla.costs import step as step_lib
from lagom_xla.costs import uncertainty
from lagom_xla.passes.schedule import digest
from lagom_xla.search.nccl import searcher as searcher_lib
from lagom_xla.search.xla import as_run
from lagom_xla.search.xla import candidates
from lagom_xla.search.xla import evaluation


def candidate(
  found: candidates.Candidate,
  *,
  target: target_lib.Target,
  searcher: searcher_lib.Searcher,
  compiled: lowered.Compilation | None = None,
) -> candidates.Candidate:
  """A candidate, judged by its compiles from the beginning.

  Args:
    found: the candidate.
    target: what it is of.
    searcher: of the NCCL settings, which are searched again if something else
      runs.
    compiled: it, from the beginning to the end, where that is done.

  Raises:
    LagomError: XLA does not make that schedule.
  """
  beginning = target.from_the_beginning()
  if beginning is target:
    return found
  module = beginning.schedule(found.config)
  if module.proto == found.step.analysis.module.proto:
    return found
  step = as_run.of_schedule(module, target, found.config)
  runs = _runs(found, step, compiled)
  if _digest(runs) != _digest(found.runs):
    judged = evaluation.searched(
      found.config, step, runs, target=target, searcher=searcher
    )
    return dataclasses.replace(judged, peak_bytes=found.peak_bytes)
  settings = {key: found.settings[key] for key in runs.keys}
  under_nccl_defaults = runs.timeline(runs.default)
  is_searched = found.is_searched
  tuned = runs.timeline(settings) if is_searched else under_nccl_defaults
  return dataclasses.replace(
    found,
    step=step,
    runs=runs,
    under_nccl_defaults=under_nccl_defaults,
    tuned=tuned,
    default_times=uncertainty.times(runs, runs.default),
    tuned_times=uncertainty.times(runs, settings),
    capped=found.capped if found.takes_plugin else tuned,
  )


def _runs(
  found: candidates.Candidate,
  step: step_lib.Step,
  compiled: lowered.Compilation | None,
) -> step_lib.Step:
  """The step that runs of what is scheduled like this."""
  if compiled is not None:
    return as_run.of_compiled(step, compiled.module)
  return step if found.runs is found.step else found.runs


def _digest(step: step_lib.Step) -> str:
  return digest.of(step.analysis.module.proto)
