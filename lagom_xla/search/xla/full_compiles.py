# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Full compiles: whether a candidate fits in memory, and what really runs.

They conclude a search, and start from the program, not from a module that was
fused before. Besides memory, they show which values XLA rematerializes. That
changes a candidate's time and may change which candidate is best.

Options are searched with NCCL settings, which need the tuner plugin. Without
it, env.sh sets one cap on channels instead. Some options gain only with a cap:
they are slower under NCCL's own choices, so their settings were never searched.
So at the end every compiled candidate is also evaluated under caps. A faster
plan is kept, with NCCL settings if they are faster still.
"""

from __future__ import annotations

from collections.abc import Iterable
import dataclasses
import functools

from lagom_xla import errors
from lagom_xla.compile import config as config_lib
from lagom_xla.compile import lowered
from lagom_xla.compile import target as target_lib
from lagom_xla.costs import uncertainty
from lagom_xla.search.nccl import channel_cap
from lagom_xla.search.nccl import settings as settings_lib
from lagom_xla.search.xla import candidates
from lagom_xla.search.xla import evaluation
from lagom_xla.search.xla import pruning


def capped_if_ahead(
  search: candidates.Search, by_cap: channel_cap.WithoutPlugin
) -> candidates.Search | None:
  """The search under caps if its best is faster; else None.

  Args:
    search: the search under settings.
    by_cap: chooses a step's cap.
  """
  kept_us = search.best.tuned.step_time_us
  # In most searches no schedule is faster under a cap.
  if not any(_is_ahead(c, kept_us, by_cap) for c in search.scheduled):
    return None
  capped = dataclasses.replace(
    search,
    default=_capped(search.default, by_cap),
    others=tuple(
      _capped(c, by_cap) if isinstance(c, candidates.Candidate) else c
      for c in search.others
    ),
    pruned=None,
  )
  return capped if capped.best.tuned.step_time_us < kept_us else None


def capped_with_settings(
  search: candidates.Search, without_plugin: channel_cap.WithoutPlugin | None
) -> candidates.Search:
  """The search under caps, with settings for its best if they are faster.

  Args:
    search: the search under caps.
    without_plugin: what a job without the tuner plugin sets; None if the job
      loads the plugin.
  """
  kept = search.best
  found = settings_lib.search(kept.runs, without_plugin)
  more = dataclasses.replace(
    kept,
    settings={**kept.step.default, **found.configuration},
    tuned=kept.runs.timeline(found.configuration),
    tuned_times=found.tuned_times,
    num_trials=found.num_trials,
  )
  if more.tuned.step_time_us >= kept.tuned.step_time_us:
    return search
  settled = search.judged_again(kept, more)
  return settled if settled.best is more else search


def _is_ahead(
  candidate: candidates.Candidate,
  kept_us: float,
  by_cap: channel_cap.WithoutPlugin,
) -> bool:
  """Whether a candidate under its cap takes less than `kept_us`.

  The cheapest test comes first: a cap only removes slowdowns, and the surest
  cap is never faster than the best one.
  """
  own = candidate.under_nccl_defaults
  return (
    own.step_time_us - own.total_slowdown_us < kept_us
    and channel_cap.best(candidate.runs).step_time_us < kept_us
    and _capped(candidate, by_cap).tuned.step_time_us < kept_us
  )


def _capped(
  candidate: candidates.Candidate, by_cap: channel_cap.WithoutPlugin
) -> candidates.Candidate:
  """A candidate with its surest cap instead of its settings."""
  runs = candidate.runs
  configuration = by_cap.configuration(runs)
  tuned = runs.timeline(configuration)
  return dataclasses.replace(
    candidate,
    settings={**candidate.step.default, **configuration},
    tuned=tuned,
    tuned_times=uncertainty.times(runs, configuration),
    capped=tuned,
  )


_Result = tuple[candidates.Search, lowered.Compilation | None]
_Checked = tuple[
  candidates.Search, lowered.Compilation | None, candidates.Search | None
]


def num_expected(search: candidates.Search) -> tuple[int, int]:
  """The numbers of schedules and of full compiles that `of_best` may need."""
  best = min(search.scheduled, key=candidates.tuned_us)
  if best is search.default:
    return 0, 0
  return len(best.config.options), 1  # One schedule without each option.


def of_default(
  target: target_lib.Target,
  search: candidates.Search,
  *,
  without_plugin: channel_cap.WithoutPlugin | None,
) -> _Result:
  """The search with its default judged by a full compile, and that compile.

  Args:
    target: what was tuned.
    search: the search.
    without_plugin: what a job without the tuner plugin sets; None if the job
      loads the plugin.

  Raises:
    CompileError: XLA cannot compile the default fully.
  """
  default = search.default
  compiled = _compile(target, default.config)
  return _judged(target, search, default, compiled, without_plugin), compiled


def of_best(
  target: target_lib.Target,
  search: candidates.Search,
  compiled_default: lowered.Compilation | None,
  *,
  without_plugin: channel_cap.WithoutPlugin | None,
  by_cap: channel_cap.WithoutPlugin | None = None,
  steps: evaluation.Steps | None = None,
) -> _Result:
  """The search once its best candidate compiles, fits and stays the best.

  The best is compiled with its inert options, because arms may already be
  compiled with them. It is also compared with itself without each other option.

  Args:
    target: what was tuned.
    search: the search, its default already judged.
    compiled_default: the full compile of its default.
    without_plugin: what a job without the tuner plugin sets; None if the job
      loads the plugin.
    by_cap: chooses caps instead of settings; the best under caps is kept if it
      is faster. None to consider only settings.
    steps: known steps of the target.

  Returns:
    The search, and the full compile of its best.
  """
  checked = functools.partial(
    _checked,
    target,
    compiled_default=compiled_default,
    steps=steps or evaluation.Steps(target),
  )
  by_cap = None if by_cap is without_plugin else by_cap
  search, compiled, capped = checked(
    search, without_plugin=without_plugin, by_cap=by_cap
  )
  if capped is None:
    return search, compiled
  assert by_cap is not None
  found, compiled, _ = checked(capped, without_plugin=by_cap)
  if candidates.tuned_us(found.best) < candidates.tuned_us(search.best):
    return capped_with_settings(found, without_plugin), compiled
  search, compiled, _ = checked(search, without_plugin=without_plugin)
  return search, compiled


def _checked(
  target: target_lib.Target,
  search: candidates.Search,
  *,
  compiled_default: lowered.Compilation | None,
  without_plugin: channel_cap.WithoutPlugin | None,
  steps: evaluation.Steps,
  by_cap: channel_cap.WithoutPlugin | None = None,
) -> _Checked:
  """Like `of_best`, but if caps are faster, also returns their search."""

  def if_ahead() -> candidates.Search | None:
    return capped_if_ahead(search, by_cap) if by_cap else None

  beginning = target.from_the_beginning()
  evaluate = functools.partial(
    evaluation.evaluate,
    target=target,
    without_plugin=without_plugin,
    default=search.default,
    fastest=search.fastest_arm,
    steps=steps,
  )
  in_turn = evaluation.Turns(target=target).ahead
  while search.best is not search.default:
    candidate = search.best
    try:
      with beginning.compiling(candidate.config):
        pruned = pruning.pruned(candidate, steps)
        with_less = _without_each(search, pruned, evaluate, in_turn=in_turn)
        search = _with_better(search, with_less)
        if search.best is not candidate:
          continue
        if capped := if_ahead():  # The compile runs meanwhile.
          return search, None, capped
        compiled = _compile(beginning, candidate.config)
        named = evaluation.from_the_beginning(
          candidate,
          target=target,
          without_plugin=without_plugin,
          compiled=compiled,
        )
    except errors.CompileError as error:
      search = search.refused(candidate, str(error))
      continue
    reason = evaluation.too_large(
      target, _peak_bytes(compiled), _peak_bytes(compiled_default)
    )
    if reason:
      search = search.refused(candidate, reason)
      continue
    search = search.judged_again(candidate, named)
    search = _judged(target, search, named, compiled, without_plugin)
    search = _with_better(search, with_less)
    if search.best.config == candidate.config:
      capped = None if search.best is candidate else if_ahead()
      return dataclasses.replace(search, pruned=pruned), compiled, capped
  return search, compiled_default, if_ahead()


def _judged(
  target: target_lib.Target,
  search: candidates.Search,
  candidate: candidates.Candidate,
  compiled: lowered.Compilation | None,
  without_plugin: channel_cap.WithoutPlugin | None,
) -> candidates.Search:
  """The search with a candidate judged by its compiled module.

  If its schedule was short of memory, that was done before.
  """
  if compiled is None or candidate.runs is not candidate.step:
    return search
  runs = evaluation.of_compiled(candidate.step, compiled.module)
  if runs is candidate.step:
    return search
  judged = evaluation.searched(
    candidate.config,
    candidate.step,
    runs,
    target=target,
    without_plugin=without_plugin,
  )
  return search.judged_again(candidate, judged)


def _peak_bytes(compiled: lowered.Compilation | None) -> int | None:
  return None if compiled is None else compiled.peak_bytes


def _compile(
  target: target_lib.Target, config: config_lib.XlaConfig
) -> lowered.Compilation | None:
  return None if target.obstacle else target.compile(config)


def _without_each(
  so_far: candidates.Search,
  planned: config_lib.XlaConfig,
  evaluate: candidates.Evaluate,
  *,
  in_turn: evaluation.InTurn = evaluation.one_by_one,
) -> list[candidates.Candidate | candidates.Refused]:
  """Evaluates a plan's config without each option, unless tried before.

  Args:
    so_far: the search.
    planned: the plan's config, without inert options.
    evaluate: schedules a config and searches its NCCL settings.
    in_turn: starts compiles of the next configs ahead.
  """
  configs = [c for c in pruning.without_each(planned) if not so_far.found(c)]
  return [evaluate(config) for config in in_turn(configs)]


def _with_better(
  so_far: candidates.Search,
  found: Iterable[candidates.Candidate | candidates.Refused],
) -> candidates.Search:
  """The search, with each candidate that becomes its best added in turn."""
  for candidate in found:
    more = so_far.with_candidate(candidate)
    if more.best is not so_far.best:
      so_far = more
  return so_far
