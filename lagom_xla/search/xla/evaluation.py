# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Evaluation: what a config makes of a target, as a candidate.

A candidate is judged as compiled: XLA schedules the target with its config (and
compiles it to the end where memory is short), the NCCL settings are searched,
and the whole step is replayed, as predicted and in each scenario of what the
model may be wrong about (costs/uncertainty.py). One that the device's memory
does not hold is refused.
"""

from __future__ import annotations

from collections.abc import MutableMapping
import dataclasses
import functools

from lagom_xla import errors
from lagom_xla.compile import config as config_lib
from lagom_xla.compile import target as target_lib
from lagom_xla.costs import step as step_lib
from lagom_xla.costs import uncertainty
from lagom_xla.flags import nccl_channels
from lagom_xla.passes import hlo
from lagom_xla.passes.schedule import digest
from lagom_xla.search.nccl import channel_cap
from lagom_xla.search.nccl import searcher as searcher_lib
from lagom_xla.search.nccl import settings as settings_lib
from lagom_xla.search.xla import as_run
from lagom_xla.search.xla import unknown_loops
from lagom_xla.search.xla.candidates import Candidate
from lagom_xla.search.xla.candidates import Refused


def evaluate(
  config: config_lib.XlaConfig,
  *,
  target: target_lib.Target,
  searcher: searcher_lib.Searcher,
  default: Candidate | None = None,
  fastest: Candidate | None = None,
  known: MutableMapping[str, Candidate] | None = None,
  scheduled: as_run.Scheduled | None = None,
) -> Candidate | Refused:
  """Schedules a target with a config and searches its NCCL settings.

  Args:
    config: the config.
    target: what XLA schedules with it.
    searcher: of the NCCL settings.
    default: what it is compared with. A schedule with a loop of unknown length
      that this one has not is refused: such a loop is counted once, so that the
      time of the schedule is not known. Nor are NCCL's settings searched for
      options that make the step slower than this one under NCCL's own choices:
      they are never kept (`Search.best`).
    fastest: another one that nothing is kept beside which it is slower under
      NCCL's own choices. So where the schedule alone is slower, it is not
      compiled to the end either: what XLA computes again only adds to it.
    known: candidates by their `looks`. One that looks like another is as good
      as that one; others are added.
    scheduled: gives the step as XLA schedules it; None to have it made.
  """
  scheduled = scheduled or functools.partial(as_run.scheduled, target)
  try:
    step = scheduled(config)
    module = step.analysis.module
    like = "" if known is None else looks(module, config)
    alike = None if known is None else known.get(like)
    step = alike.step if alike else step
    slower = _if_slower(
      config, step, step, target=target, searcher=searcher, than=fastest
    )
    if slower is not None:
      return slower
    run = as_run.run(target, config, step)
  except (
    errors.CompileError,
    errors.CombineError,
    errors.ProgramError,
    errors.ScheduleError,
  ) as error:
    return Refused(config=config, reason=str(error))
  least_bytes = None if default is None else default.peak_bytes
  if reason := too_large(target, run.peak_bytes, least_bytes):
    return Refused(config=config, reason=reason, is_too_large=True)
  if reason := _unknown(module, default):
    return Refused(config=config, reason=reason)
  runs = run.step
  if alike is not None and alike.runs is runs:
    outcome = target.outcome(config.program)
    return dataclasses.replace(
      alike, config=config, num_trials=0, outcome=outcome
    )
  rival = fastest or default
  found = _if_slower(
    config, step, runs, target=target, searcher=searcher, than=rival
  )
  if found is None:
    found = searched(config, step, runs, target=target, searcher=searcher)
  found = dataclasses.replace(found, peak_bytes=run.peak_bytes)
  if known is not None:
    known.setdefault(like, found)
  return found


def _unknown(module: hlo.Module, default: Candidate | None) -> str:
  """Why the time of a schedule is not known; "" if it is, as the default's."""
  if default is None:
    return ""
  name = unknown_loops.new_in(module, default.step.analysis.module)
  if name is None:
    return ""
  return (
    f"How often its loop {name} runs cannot be read from the schedule, so that"
    " its time is not known."
  )


def looks(module: hlo.Module, config: config_lib.XlaConfig) -> str:
  """What configs share that make the same step: schedule, cap on channels."""
  return f"{digest.of(module.proto)} {nccl_channels.most(config.options)}"


def too_large(
  target: target_lib.Target, peak_bytes: int | None, least_bytes: int | None
) -> str:
  """Why the device does not hold a step; "" where it may.

  Args:
    target: what is compiled.
    peak_bytes: what the step needs; None where that is not known.
    least_bytes: what it needs by default: no more is never too much.
  """
  hbm_bytes = target.cluster.gpu.hbm_bytes
  if peak_bytes is None or peak_bytes <= max(hbm_bytes, least_bytes or 0):
    return ""
  return f"It needs {peak_bytes / 1e9:.1f} GB of {hbm_bytes / 1e9:.1f} GB."


def _if_slower(
  config: config_lib.XlaConfig,
  step: step_lib.Step,
  runs: step_lib.Step,
  *,
  target: target_lib.Target,
  searcher: searcher_lib.Searcher,
  than: Candidate | None,
) -> Candidate | None:
  """The candidate under NCCL's own choices, if those rule it out.

  That is if it is slower under them; where a cap goes with it, if it would be
  even if collectives took nothing from kernels, which is all that a cap gains.
  Nothing rules out what only the process that compiles can set.
  """
  if than is None or config.needs_process:
    return None
  timeline = runs.timeline(runs.default)
  least_us = timeline.step_time_us
  if channel_cap.chooses_cap(searcher):
    least_us -= timeline.total_slowdown_us
  if least_us <= than.launched_us:
    return None
  times = uncertainty.times(runs, runs.default)
  return Candidate(
    config=config,
    step=step,
    runs=runs,
    settings={**step.default, **runs.default},
    under_nccl_defaults=timeline,
    tuned=timeline,
    default_times=times,
    tuned_times=times,
    num_trials=0,
    outcome=target.outcome(config.program),
    capped=timeline if channel_cap.chooses_cap(searcher) else None,
  )


def evaluate_or_raise(
  config: config_lib.XlaConfig,
  *,
  target: target_lib.Target,
  searcher: searcher_lib.Searcher,
) -> Candidate:
  """The same, for a config without which there is nothing to search.

  Raises:
    CompileError: XLA refused.
    CombineError: the module cannot have these combine groups.
    ProgramError: the program cannot have this form.
    ScheduleError: the schedule cannot have these orders.
  """
  step = as_run.scheduled(target, config)
  run = as_run.run(target, config, step)
  found = searched(config, step, run.step, target=target, searcher=searcher)
  return dataclasses.replace(found, peak_bytes=run.peak_bytes)


def searched(
  config: config_lib.XlaConfig,
  step: step_lib.Step,
  runs: step_lib.Step,
  *,
  target: target_lib.Target,
  searcher: searcher_lib.Searcher,
) -> Candidate:
  """The candidate of a config, with the best settings for the step that runs.

  Args:
    config: the config.
    step: as scheduled under it.
    runs: the step that runs.
    target: what the step is of.
    searcher: of the NCCL settings.
  """
  found = settings_lib.search(runs, searcher)
  settings = found.configuration
  if runs is not step:  # XLA may have combined what the schedule has apart.
    settings = {**step.default, **settings}
  tuned = runs.timeline(found.configuration)
  return Candidate(
    config=config,
    step=step,
    runs=runs,
    settings=settings,
    under_nccl_defaults=runs.timeline(runs.default),
    tuned=tuned,
    default_times=found.default_times,
    tuned_times=found.tuned_times,
    num_trials=found.num_trials,
    outcome=target.outcome(config.program),
    capped=tuned if channel_cap.chooses_cap(searcher) else None,
  )
