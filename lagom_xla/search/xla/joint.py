# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""The joint search: XLA configs outside, NCCL settings inside.

XLA options come first, because a launcher can set them (`options.py`). They
start from the fastest of XLA's default and published recipes (`arms.py`). What
only the compiling process can set follows if asked for, each stage on top of
the best so far: forms first, because they change what there is to overlap, and
orders last, because they belong to one schedule.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
import dataclasses
import functools
import time

from lagom_xla.compile import config as config_lib
from lagom_xla.compile import target as target_lib
from lagom_xla.flags import environment
from lagom_xla.search.nccl import channel_cap
from lagom_xla.search.xla import alignment
from lagom_xla.search.xla import arms as arms_lib
from lagom_xla.search.xla import candidates
from lagom_xla.search.xla import evaluation
from lagom_xla.search.xla import feedback
from lagom_xla.search.xla import forms
from lagom_xla.search.xla import groups
from lagom_xla.search.xla import options


def search_in_process(
  target: target_lib.Target,
  so_far: candidates.Search,
  evaluate: candidates.Evaluate,
  *,
  until_s: float,
  named: candidates.Named,
  in_turn: evaluation.InTurn,
  progress: candidates.Progress,
) -> candidates.Search:
  """Goes on from a search of options.

  Args:
    target: what is searched.
    so_far: what was tried so far, with the program as written.
    evaluate: schedules and searches a config.
    until_s: when to end with options of strands, and with groups, by
      `time.monotonic`.
    named: gives a candidate XLA's names, by which profiles and orders go.
    in_turn: begins configs ahead.
    progress: called with a few words after each candidate.
  """
  so_far = forms.search_strands(
    target,
    so_far,
    evaluate,
    until_s=until_s,
    in_turn=in_turn,
    progress=progress,
  )
  so_far = forms.search_slices(target, so_far, evaluate, progress=progress)
  so_far = groups.search(
    so_far, evaluate, until_s=until_s, in_turn=in_turn, progress=progress
  )
  so_far = feedback.search(so_far, evaluate, named=named, progress=progress)
  return alignment.search(
    target, so_far, evaluate, named=named, progress=progress
  )


Found = Callable[[candidates.Candidate | candidates.Refused], None]

# The most time for options: a module of 60,000 instructions compiles for a
# minute.
SECONDS = 300.0

_NO_ARMS = arms_lib.Known(arms=())


def search(
  target: target_lib.Target,
  *,
  without_plugin: channel_cap.WithoutPlugin | None = None,
  seconds: float = SECONDS,
  arms: Sequence[arms_lib.Arm] | None = None,
  in_process: bool = False,
  progress: candidates.Progress = lambda _: None,
  found: Found = lambda _: None,
  expect: options.Expect = lambda _: None,
) -> candidates.Search:
  """Searches the XLA config and NCCL's settings together.

  Args:
    target: what to tune.
    without_plugin: what a job sets that loads no tuner plugin; None where it
      loads that.
    seconds: for how long options are searched at most, and as long again those
      of strands; with 0 none are tried, and no arms.
    arms: what else to begin with; by default all that is known of.
    in_process: whether to choose what only lagom_xla in the training process
      can apply, too.
    progress: called with a few words after each candidate.
    found: called with each candidate before that, the default first.
    expect: called, once the default is known, with how many candidates are to
      come, as often as more is known of that; not of what is chosen in the
      process.

  Raises:
    CompileError: the target does not compile with the defaults.
  """
  until_s = time.monotonic() + seconds
  known_arms = arms_of(target, arms) if seconds > 0 else _NO_ARMS
  # Arms are compiled whatever comes of the default, so that no worker need wait
  # for work: to the end if that is near, as the schedule is shown on the way,
  # and the default may turn out to be short of memory.
  early = options.unlike(known_arms.arms, config_lib.DEFAULT)
  turns = evaluation.Turns(target=target)
  with turns.of_arms.begun(arm.config for arm in early):
    default = evaluation.evaluate_or_raise(
      config_lib.DEFAULT, target=target, without_plugin=without_plugin
    )
    found(default)
    progress(environment.options_in_words())
    so_far = candidates.Search(default=default, no_arms=known_arms.obstacle)
    if target.is_read_only:
      return so_far
    # One that is short of memory was compiled to the end to be judged.
    is_short = default.peak_bytes is not None
    turns = dataclasses.replace(turns, is_to_the_end=is_short)
    evaluate = _evaluating(target, without_plugin, default, found)
    so_far = options.search(
      so_far,
      lambda fastest: functools.partial(evaluate, fastest=fastest),
      known_arms.arms,
      turns=turns,
      until_s=until_s,
      progress=progress,
      expect=expect,
    )
  if not in_process:
    return so_far
  return search_in_process(
    target,
    so_far,
    evaluate,
    until_s=time.monotonic() + seconds,
    named=functools.partial(
      evaluation.from_the_beginning,
      target=target,
      without_plugin=without_plugin,
    ),
    in_turn=turns.ahead,
    progress=progress,
  )


def _evaluating(
  target: target_lib.Target,
  without_plugin: channel_cap.WithoutPlugin | None,
  default: candidates.Candidate,
  found: Found,
) -> Callable[..., candidates.Candidate | candidates.Refused]:
  """What evaluates the other configs of a search, and says what it found."""
  module = default.step.analysis.module
  known = {evaluation.looks(module, config_lib.DEFAULT): default}

  def evaluate(
    config: config_lib.XlaConfig, fastest: candidates.Candidate | None = None
  ) -> candidates.Candidate | candidates.Refused:
    candidate = evaluation.evaluate(
      config,
      target=target,
      without_plugin=without_plugin,
      default=default,
      fastest=fastest,
      known=known,
    )
    found(candidate)
    return candidate

  return evaluate


def arms_of(
  target: target_lib.Target, arms: Sequence[arms_lib.Arm] | None
) -> arms_lib.Known:
  """What to begin with: what was given, or all that is known of."""
  if target.is_read_only:
    return _NO_ARMS
  if arms is not None:
    return arms_lib.Known(arms=tuple(arms))
  return arms_lib.known(target.cluster)
