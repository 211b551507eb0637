# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""The joint search: XLA configs outside, NCCL settings inside.

XLA options come first, because a launcher can set them (`options.py`). Their
search starts from the fastest of XLA's default and the published recipes
(`arms.py`). With `in_process`, the stages that need lagom_xla in the training
process follow, each on top of the best so far: forms first, because they change
what can overlap, and orders last, because an order belongs to one schedule.
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
  """Continues a search over options with the stages of `in_process`.

  Args:
    target: what is tuned.
    so_far: what was tried so far, all with the program as written.
    evaluate: schedules a config and searches its NCCL settings.
    until_s: when to stop trying options for strands and combine groups, a time
      of `time.monotonic`.
    named: compiles a candidate from the beginning, so that its instructions
      have the names that profiles and orders refer to.
    in_turn: starts compiles of the next configs ahead.
    progress: called with a short description of each candidate after it.
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

# Time limit for options. A module of 60,000 instructions compiles for a minute.
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
    without_plugin: what a job without the tuner plugin sets; None if the job
      loads the plugin.
    seconds: time limit for options; options of strands and combine groups get
      as much again. With 0, neither options nor arms are tried.
    arms: configs to start from besides the default; by default all known ones.
    in_process: whether to also choose what only lagom_xla in the training
      process can apply.
    progress: called with a short description of each candidate after it.
    found: called with each candidate, before `progress`; the default first.
    expect: called with the number of candidates to come, once the default is
      known and whenever the estimate improves. It excludes those of
      `in_process`.

  Raises:
    CompileError: the target does not compile with the defaults.
  """
  until_s = time.monotonic() + seconds
  known_arms = arms_of(target, arms) if seconds > 0 else _NO_ARMS
  # Arms are compiled whatever the default gives, so workers start on them now.
  # They are compiled fully if that costs little more: the default may be short
  # of memory, and a full compile includes the schedule.
  early = options.unlike(
    [arm for arm in known_arms.arms if arms_lib.is_decided(arm)],
    config_lib.DEFAULT,
  )
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
    # A default that is short of memory was compiled fully to be judged.
    is_short = default.peak_bytes is not None
    turns = dataclasses.replace(turns, is_to_the_end=is_short)
    evaluate = _evaluating(target, without_plugin, default, found)
    so_far = options.search(
      so_far,
      lambda fastest: functools.partial(evaluate, fastest=fastest),
      tuple(arms_lib.decided(known_arms.arms, default.step)),
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
  """A function that evaluates a config and passes the result to `found`."""
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
  """The arms to start from: those given, or all known ones."""
  if target.is_read_only:
    return _NO_ARMS
  if arms is not None:
    return arms_lib.Known(arms=tuple(arms))
  return arms_lib.known(target.cluster)
