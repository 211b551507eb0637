# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Pruning: a config without the options that do nothing.

A recipe is written for many programs, and a search keeps a set of options as a
whole. An option acts if without it the schedule is another one, or the step
that runs, where XLA computes values again for want of memory. A plan holds only
what acts, so that a user sees what the gain rests on.

What hardly acts, to go by what the schedule shows, goes at once, if the
schedule is the same then; each other option is left out alone. Those are the
schedules that tell what each option of the plan does (`verify/`), which finds
them compiled.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
import dataclasses
import functools

from lagom_xla import errors
from lagom_xla.compile import config as config_lib
from lagom_xla.compile import target as target_lib
from lagom_xla.costs import step as step_lib
from lagom_xla.flags import debug_options
from lagom_xla.flags import nccl_channels
from lagom_xla.passes import combine
from lagom_xla.passes import overlap
from lagom_xla.passes.combine import table
from lagom_xla.passes.schedule import digest
from lagom_xla.search.xla import candidates
from lagom_xla.search.xla import evaluation
from lagom_xla.search.xla import knobs

# What XLA reads after it has scheduled, and for what.
AFTER_THE_SCHEDULE = {
  "xla_gpu_enable_command_buffer": "how kernels are launched",
  "xla_disable_hlo_passes": "which passes run",
}


def inert_to_go_by_schedules(
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
  is_on = knobs.is_latency_hiding(by_default.module) and (
    config.options.get(knobs.ESTIMATES, True) is True
  )
  return tuple(
    name
    for name in names
    if name in AFTER_THE_SCHEDULE
    or name in without_object
    or (name == knobs.SCHEDULER and is_on)
    or _is_default(name, config.options[name])
  )


def _without_object(scheduled: overlap.Analysis) -> set[str]:
  """Options for kinds of collectives that the schedule has none or one of."""
  num_moved = dict.fromkeys(knobs.OPTIONS, 0)
  in_loops = set()
  for collective in scheduled.collectives:
    kind = collective.kind
    if kind in num_moved:
      num_moved[kind] += collective.num_operands
    if collective.executions > 1:
      in_loops.update(knobs.PIPELINED_AS.get(kind, (kind,)))
  found = {knobs.OPTIONS[k] for k, num in num_moved.items() if num < 2}
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
    and table.combined_bytes(c) > table.DEFAULT_BYTES
  }
  return {
    option
    for kind, option in knobs.OPTIONS.items()
    if kind not in reached
    and option in config.options
    and int(config.options[option]) >= table.DEFAULT_BYTES
  }


def _is_default(name: str, value: object) -> bool:
  """Whether jaxlib sets this by itself, as far as can be asked."""
  try:
    option = debug_options.find(name)
  except errors.OptionsError:
    return False
  return option is not None and option.default == value


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Made:
  """What a config makes of a target.

  Attributes:
    config: the config.
    step: as scheduled.
    runs: the step that runs.
  """

  config: config_lib.XlaConfig
  step: step_lib.Step
  runs: step_lib.Step

  @functools.cached_property
  def digest(self) -> str:
    """What it shares with what is scheduled alike."""
    return _digest(self.step)


def pruned(
  target: target_lib.Target,
  kept: candidates.Candidate,
  default: candidates.Candidate,
  *,
  scheduled: evaluation.Scheduled | None = None,
) -> config_lib.XlaConfig:
  """A candidate's config, less the options that do nothing in it.

  Args:
    target: what the candidate is of.
    kept: the candidate, as it was evaluated.
    default: what it is compared with.
    scheduled: gives steps as XLA schedules them; None to have them made.
  """
  config = kept.config
  if not config.options:
    return config
  scheduled = scheduled or evaluation.Steps(target)
  wanted = _Made(config=config, step=kept.step, runs=kept.runs)
  if config.orders:  # They are those of one schedule; the rest makes another.
    wanted = _made(target, dataclasses.replace(config, orders={}))
  names = _names(config)
  suspects = _suspects(kept, default)
  others = [name for name in names if name not in suspects]
  if suspects:
    found = _pruned(target, config, wanted, suspects, others, scheduled)
    if found is not None:
      return found
  found = _pruned(target, config, wanted, (), names, scheduled)
  assert found is not None
  return found


def expected(
  kept: candidates.Candidate, default: candidates.Candidate
) -> config_lib.XlaConfig:
  """What `pruned` returns if all that hardly acts does nothing.

  Args:
    kept: the candidate, as it was evaluated.
    default: what it is compared with.
  """
  return kept.config.without_options(_suspects(kept, default))


def without_each(
  config: config_lib.XlaConfig,
) -> Iterator[config_lib.XlaConfig]:
  """A config without each of the options that may be left out of it."""
  for name in _names(config):
    yield _without(config, [name])


def _suspects(
  kept: candidates.Candidate, default: candidates.Candidate
) -> tuple[str, ...]:
  """The options that hardly act, to go by both schedules."""
  return inert_to_go_by_schedules(
    kept.config,
    _names(kept.config),
    kept.step.analysis,
    default.step.analysis,
  )


def _names(config: config_lib.XlaConfig) -> list[str]:
  """The options that may be left out of a config."""
  # Groups overrule thresholds, which are there for launchers.
  is_grouped = config.combine_groups is not None
  return [
    name
    for name in config.options
    if name != nccl_channels.OPTION  # No schedule shows it.
    and not (is_grouped and name in combine.OPTIONS)
  ]


def _pruned(
  target: target_lib.Target,
  config: config_lib.XlaConfig,
  wanted: _Made | None,
  suspects: Sequence[str],
  others: Sequence[str],
  scheduled: evaluation.Scheduled,
) -> config_lib.XlaConfig | None:
  """The config without suspects, and less what else does nothing.

  Returns:
    None where the suspects do something together.
  """

  def is_same(without: config_lib.XlaConfig) -> bool:
    return _makes(target, without, wanted, scheduled)

  alone = [_without(config, [*suspects, name]) for name in others]
  together = [_without(config, suspects)] if suspects else []
  with evaluation.Turns(target=target).begun([*together, *alone]):
    if together and not is_same(together[0]):
      return None
    config = config.without_options(suspects)
    inert = [n for n, c in zip(others, alone, strict=True) if is_same(c)]
  if len(inert) <= 1 or is_same(_without(config, inert)):
    return config.without_options(inert)
  gone: list[str] = []
  for name in inert:  # Some do what others do, too.
    if is_same(_without(config, [*gone, name])):
      gone.append(name)
  return config.without_options(gone)


def _without(
  config: config_lib.XlaConfig, names: Collection[str]
) -> config_lib.XlaConfig:
  return dataclasses.replace(config.without_options(names), orders={})


def _makes(
  target: target_lib.Target,
  config: config_lib.XlaConfig,
  wanted: _Made | None,
  scheduled: evaluation.Scheduled,
) -> bool:
  """Whether a config makes of a target what is wanted; None is nothing."""
  try:
    step = scheduled(config)
    if wanted is None or not _is_scheduled_alike(target, config, step, wanted):
      return False  # Then nothing is compiled to the end.
    runs = evaluation.step_that_runs(target, config, step)
  except errors.LagomError:
    return wanted is None
  if runs is step and wanted.runs is wanted.step:
    return True
  return _digest(runs) == _digest(wanted.runs)


def _is_scheduled_alike(
  target: target_lib.Target,
  config: config_lib.XlaConfig,
  step: step_lib.Step,
  wanted: _Made,
) -> bool:
  """Whether XLA schedules a config as it does what is wanted.

  Two schedules one of which was made from a fused module may differ though the
  configs do not; then both are made from the beginning.
  """
  if _digest(step) == wanted.digest:
    return True
  beginning = target.from_the_beginning()
  if beginning is target or not _may_be_alike(step, wanted.step):
    return False
  ours, theirs = (
    evaluation.scheduled_step(beginning, c) for c in (config, wanted.config)
  )
  return _digest(ours) == _digest(theirs)


def _may_be_alike(one: step_lib.Step, other: step_lib.Step) -> bool:
  """Whether the same runs in both, in another order, and hardly longer."""
  short_us, long_us = sorted(
    step.timeline(step.default).step_time_us for step in (one, other)
  )
  if long_us - short_us >= candidates.LEAST_GAIN * long_us:
    return False  # What runs in them takes longer to tell.
  contents = {
    digest.of_content(step.analysis.module.proto) for step in (one, other)
  }
  return len(contents) == 1


def _made(
  target: target_lib.Target, config: config_lib.XlaConfig
) -> _Made | None:
  """What a config makes of a target; None where it makes nothing."""
  try:
    step = evaluation.scheduled_step(target, config)
    runs = evaluation.step_that_runs(target, config, step)
  except errors.LagomError:
    return None
  return _Made(config=config, step=step, runs=runs)


def _digest(step: step_lib.Step) -> str:
  return digest.of(step.analysis.module.proto)
