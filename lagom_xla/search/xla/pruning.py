# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Pruning: removes the options of a config that have no effect.

A recipe is written for many programs, and a search keeps a set of options as a
whole. An option has an effect if the schedule differs without it or, when
memory is short, the compiled step does. A plan has only options with an effect,
so that users see where the gain comes from.

Each option is left out alone, then all inert ones together. A search has
compiled most of these schedules already (`options.drops`). They also show what
each option of the plan does (`verify/`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
import dataclasses

from lagom_xla import errors
from lagom_xla.compile import config as config_lib
from lagom_xla.compile import target as target_lib
from lagom_xla.costs import step as step_lib
from lagom_xla.flags import collective_routes
from lagom_xla.flags import nccl_channels
from lagom_xla.flags import xla_kernels
from lagom_xla.passes import combine
from lagom_xla.passes.schedule import digest
from lagom_xla.search.xla import candidates
from lagom_xla.search.xla import evaluation

# Options that XLA reads after scheduling -> what they set.
AFTER_THE_SCHEDULE = {
  "xla_gpu_enable_command_buffer": "how kernels are launched",
  "xla_disable_hlo_passes": "which passes run",
  **dict.fromkeys(xla_kernels.UNSEEN, "how ragged-all-to-alls run"),
  collective_routes.CONNECTED: "the communicators of permutes",
  collective_routes.LOCAL_COPIES: "how permutes and all-to-alls run",
}


def pruned(
  candidate: candidates.Candidate, steps: evaluation.Steps
) -> config_lib.XlaConfig:
  """A candidate's config without its inert options.

  Args:
    candidate: the candidate.
    steps: steps of the candidate's target.
  """
  config = candidate.config
  if not config.options:
    return config
  made = _Made(config=config, step=candidate.step, runs=candidate.runs)
  if config.orders:  # They belong to one schedule, which other options change.
    unordered = dataclasses.replace(config, orders={})
    made = _Made(
      config=unordered,
      step=steps(unordered),
      runs=steps.running(unordered).step,
    )

  def is_same(without: config_lib.XlaConfig) -> bool:
    return _makes(without, made, steps)

  names = _names(config)
  configs = [_without(config, [name]) for name in names]
  with evaluation.Turns(target=steps.target).begun(configs):
    inert = [n for n, c in zip(names, configs, strict=True) if is_same(c)]
  if len(inert) <= 1 or is_same(_without(config, inert)):
    return config.without_options(inert)
  dropped: list[str] = []
  for name in inert:  # Two options may have the same effect.
    if is_same(_without(config, [*dropped, name])):
      dropped.append(name)
  return config.without_options(dropped)


def without_each(
  config: config_lib.XlaConfig,
) -> Iterator[config_lib.XlaConfig]:
  """The configs without each option that may be left out of a config."""
  for name in _names(config):
    yield _without(config, [name])


def _names(config: config_lib.XlaConfig) -> list[str]:
  """The options that may be left out of a config."""
  # Groups override thresholds, which the config has for launchers.
  is_grouped = config.combine_groups is not None
  return [
    name
    for name in config.options
    # The options below do not affect the schedule.
    if name
    not in (
      nccl_channels.OPTION,
      *xla_kernels.UNSEEN,
      collective_routes.CONNECTED,
      *collective_routes.OF_PROCESS,
      collective_routes.LOCAL_COPIES,
    )
    and not (is_grouped and name in combine.OPTIONS)
  ]


def _without(
  config: config_lib.XlaConfig, names: Collection[str]
) -> config_lib.XlaConfig:
  return dataclasses.replace(config.without_options(names), orders={})


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Made:
  """The steps that a config makes of a target.

  Attributes:
    config: the config.
    step: the step as scheduled.
    runs: the step that runs.
  """

  config: config_lib.XlaConfig
  step: step_lib.Step
  runs: step_lib.Step


def _makes(
  config: config_lib.XlaConfig, wanted: _Made, steps: evaluation.Steps
) -> bool:
  """Whether a config compiles to the same step as another."""
  try:
    step = steps(config)
    if not _is_scheduled_alike(steps.target, config, step, wanted):
      return False  # This saves the full compile.
    runs = steps.running(config).step
  except errors.LagomError:
    return False
  if runs is step and wanted.runs is wanted.step:
    return True
  return _digest(runs) == _digest(wanted.runs)


def _is_scheduled_alike(
  target: target_lib.Target,
  config: config_lib.XlaConfig,
  step: step_lib.Step,
  wanted: _Made,
) -> bool:
  """Whether XLA makes the same schedule with a config as with another.

  A schedule made from a fused module may differ although the options have no
  effect; then both are compiled from the beginning.
  """
  if _digest(step) == _digest(wanted.step):
    return True
  beginning = target.from_the_beginning()
  if beginning is target or not _may_be_alike(step, wanted.step):
    return False
  ours, theirs = (
    evaluation.scheduled_step(beginning, c) for c in (config, wanted.config)
  )
  return _digest(ours) == _digest(theirs)


def _may_be_alike(one: step_lib.Step, other: step_lib.Step) -> bool:
  """Whether both run the same work, in any order, in about the same time."""
  short_us, long_us = sorted(
    step.timeline(step.default).step_time_us for step in (one, other)
  )
  if long_us - short_us >= candidates.LEAST_GAIN * long_us:
    return False  # This is quicker than comparing contents.
  contents = {
    digest.of_content(step.analysis.module.proto) for step in (one, other)
  }
  return len(contents) == 1


def _digest(step: step_lib.Step) -> str:
  analysis = step.analysis
  return f"{digest.of(analysis.module.proto)} {analysis.num_streams}"
