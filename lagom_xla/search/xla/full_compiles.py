# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Compiles to the end: whether a candidate fits, and what of it really runs.

They are the last word on a search. They begin with the program, not with a
module that was fused before. What they show beside memory, values that XLA
computes again, changes a candidate's times, and may change which is best.
"""

from __future__ import annotations

import dataclasses
import functools

from lagom_xla import errors
from lagom_xla.compile import config as config_lib
from lagom_xla.compile import lowered
from lagom_xla.compile import target as target_lib
from lagom_xla.search.nccl import channel_cap
from lagom_xla.search.nccl import searcher as searcher_lib
from lagom_xla.search.xla import as_run
from lagom_xla.search.xla import candidates
from lagom_xla.search.xla import capped as capped_lib
from lagom_xla.search.xla import drops
from lagom_xla.search.xla import evaluation
from lagom_xla.search.xla import named as named_lib
from lagom_xla.search.xla import pruning
from lagom_xla.search.xla import turns

_Result = tuple[candidates.Search, lowered.Compilation | None]
_Checked = tuple[
  candidates.Search, lowered.Compilation | None, candidates.Search | None
]


def num_expected(search: candidates.Search) -> int:
  """How many schedules `of_best` is likely to take, to go by the best so far.

  The compile to the end counts as two.
  """
  best = min(search.scheduled, key=candidates.tuned_us)
  if best is search.default:
    return 0
  # Without each of its options, and with all of them.
  return len(pruning.expected(best, search.default).options) + 2


def of_default(
  target: target_lib.Target,
  search: candidates.Search,
  *,
  searcher: searcher_lib.Searcher,
) -> _Result:
  """The search with its default judged by its compile to the end, and that.

  Args:
    target: what was searched.
    search: what was found.
    searcher: of the NCCL settings.

  Raises:
    CompileError: it does not compile to the end.
  """
  default = search.default
  compiled = _compile(target, default.config)
  return _judged(target, search, default, compiled, searcher), compiled


def of_best(
  target: target_lib.Target,
  search: candidates.Search,
  compiled_default: lowered.Compilation | None,
  *,
  searcher: searcher_lib.Searcher,
  by_cap: channel_cap.WithoutPlugin | None = None,
  scheduled: as_run.Scheduled | None = None,
) -> _Result:
  """The search whose best candidate compiles, fits and stays the best.

  It is compiled with the options that do nothing, as arms are already. Beside
  it, it is judged without each of the others.

  Args:
    target: what was searched.
    search: with its default judged already.
    compiled_default: its default, compiled to the end.
    searcher: of the NCCL settings.
    by_cap: caps in place of them, whose best is taken if it is faster; None to
      go by settings alone.
    scheduled: gives steps as XLA schedules them; None to have them made.
  """
  checked = functools.partial(
    _checked,
    target,
    compiled_default=compiled_default,
    scheduled=scheduled or as_run.Steps(target),
  )
  by_cap = None if by_cap is searcher else by_cap
  search, compiled, capped = checked(search, searcher=searcher, by_cap=by_cap)
  if capped is None:
    return search, compiled
  assert by_cap is not None
  found, compiled, _ = checked(capped, searcher=by_cap)
  if candidates.tuned_us(found.best) < candidates.tuned_us(search.best):
    return capped_lib.with_settings(found, searcher), compiled
  search, compiled, _ = checked(search, searcher=searcher)
  return search, compiled


def _checked(
  target: target_lib.Target,
  search: candidates.Search,
  *,
  compiled_default: lowered.Compilation | None,
  searcher: searcher_lib.Searcher,
  scheduled: as_run.Scheduled,
  by_cap: channel_cap.WithoutPlugin | None = None,
) -> _Checked:
  """The same for one searcher, up to where caps are ahead, and what is then."""

  def if_ahead() -> candidates.Search | None:
    return capped_lib.if_ahead(search, by_cap) if by_cap else None

  beginning = target.from_the_beginning()
  evaluate = functools.partial(
    evaluation.evaluate,
    target=target,
    searcher=searcher,
    default=search.default,
    fastest=search.fastest_arm,
    scheduled=scheduled,
  )
  in_turn = turns.Turns(target=target).ahead
  while search.best is not search.default:
    kept = search.best
    try:
      with beginning.compiling(kept.config):
        pruned = pruning.pruned(
          target, kept, search.default, scheduled=scheduled
        )
        with_less = drops.evaluated(search, pruned, evaluate, in_turn=in_turn)
        search = drops.with_better(search, with_less)
        if search.best is not kept:
          continue
        if capped := if_ahead():  # While that compiles.
          return search, None, capped
        compiled = _compile(beginning, kept.config)
        named = named_lib.candidate(
          kept, target=target, searcher=searcher, compiled=compiled
        )
    except errors.CompileError as error:
      search = search.refused(kept, str(error))
      continue
    reason = evaluation.too_large(
      target, _peak_bytes(compiled), _peak_bytes(compiled_default)
    )
    if reason:
      search = search.refused(kept, reason)
      continue
    search = search.judged_again(kept, named)
    search = _judged(target, search, named, compiled, searcher)
    search = drops.with_better(search, with_less)
    if search.best.config == kept.config:
      capped = None if search.best is kept else if_ahead()
      return dataclasses.replace(search, pruned=pruned), compiled, capped
  return search, compiled_default, if_ahead()


def _judged(
  target: target_lib.Target,
  search: candidates.Search,
  candidate: candidates.Candidate,
  compiled: lowered.Compilation | None,
  searcher: searcher_lib.Searcher,
) -> candidates.Search:
  """The search with a candidate judged by its compiled module.

  One whose schedule was seen to be short of memory is already.
  """
  if compiled is None or candidate.runs is not candidate.step:
    return search
  runs = as_run.of_compiled(candidate.step, compiled.module)
  if runs is candidate.step:
    return search
  judged = evaluation.searched(
    candidate.config, candidate.step, runs, target=target, searcher=searcher
  )
  return search.judged_again(candidate, judged)


def _peak_bytes(compiled: lowered.Compilation | None) -> int | None:
  return None if compiled is None else compiled.peak_bytes


def _compile(
  target: target_lib.Target, config: config_lib.XlaConfig
) -> lowered.Compilation | None:
  return None if target.obstacle else target.compile(config)
