# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""The search over XLA's options: arms, then single values beside the best.

XLA's default and the published recipes (`arms.py`) are compiled first. So are
options that run collectives concurrently, if a step's collectives span several
device groups. Each value of each knob is compiled on top of the fastest of
them. Values that gain are combined, one at a time, while the step gets shorter.
Then the best is compiled without each of its options, since an option that
gains alone may cost time with others. Rounds repeat while they gain and time is
left. Whenever the search ends, the best so far is kept.

Every candidate is a compiled schedule with searched NCCL settings. The plan is
chosen from all of them by assured gain (`candidates.Search.best`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
import dataclasses
import functools
import time

from lagom_xla.compile import config as config_lib
from lagom_xla.flags import environment
from lagom_xla.search.xla import arms as arms_lib
from lagom_xla.search.xla import candidates
from lagom_xla.search.xla import evaluation
from lagom_xla.search.xla import knobs
from lagom_xla.search.xla import pruning

# The least gain of a change, as a share of the step. It is less than a round
# must gain (`candidates.LEAST_GAIN`), because small gains add up.
_LEAST_GAIN = 1e-4

Beside = Callable[[candidates.Candidate | None], candidates.Evaluate]
Expect = Callable[[float], None]
# A short description, and a function that changes a config.
Change = tuple[str, Callable[[config_lib.XlaConfig], config_lib.XlaConfig]]
Changes = Callable[[candidates.Candidate], Sequence[Change]]


def search(
  so_far: candidates.Search,
  beside: Beside,
  arms: Sequence[arms_lib.Arm],
  *,
  turns: evaluation.Turns,
  until_s: float,
  progress: candidates.Progress = lambda _: None,
  expect: Expect = lambda _: None,
) -> candidates.Search:
  """Continues a search that has only its default.

  Args:
    so_far: the search.
    beside: returns the function that schedules a config and searches its NCCL
      settings, given the fastest arm, or None while that is unknown.
    arms: configs to start from besides the default.
    turns: starts compiles of the next configs ahead.
    until_s: when to stop, a time of `time.monotonic`. Arms are compiled anyway.
    progress: called with a short description of each candidate after it.
    expect: called with the number of candidates to come, whenever the estimate
      improves.
  """
  so_far = dataclasses.replace(so_far, arms=tuple(arms))
  new = unlike(arms, so_far.default.config)
  expect(len(new) + len(knobs.worth_trying(so_far.default.step)))
  with turns.of_arms.begun(arm.config for arm in new):
    for arm in new:
      so_far = so_far.with_candidate(beside(None)(arm.config))
      progress(arm.title)
  # Recipes combine gradients, which leaves few collectives to run concurrently,
  # so options for that may be best without a recipe.
  apart = knobs.offered(knobs.two_fabrics(so_far.default.step))
  for label, change in settings(apart):
    if time.monotonic() >= until_s:
      break
    config = change(so_far.default.config)
    so_far = so_far.with_candidate(beside(so_far.fastest_arm)(config))
    progress(f"{label}, without published flags")
  return climb(
    so_far,
    _start(so_far),
    beside(so_far.fastest_arm),
    changes=lambda best: [
      *settings(knobs.worth_trying(best.step)),
      *_beside_others(arms),
    ],
    drops=drops,
    in_turn=turns.ahead,
    until_s=until_s,
    progress=progress,
    expect=expect,
  )


def _beside_others(arms: Sequence[arms_lib.Arm]) -> Iterator[Change]:
  """Arms to try on top of other options."""
  for arm in arms:
    if arm.goes_with_others:
      yield arm.title, functools.partial(_with_arm, arm=arm)


def _with_arm(
  config: config_lib.XlaConfig, arm: arms_lib.Arm
) -> config_lib.XlaConfig:
  return config.with_options(arm.config.options)


def climb(
  so_far: candidates.Search,
  start: candidates.Candidate,
  evaluate: candidates.Evaluate,
  *,
  changes: Changes,
  drops: Changes,
  in_turn: evaluation.InTurn,
  until_s: float,
  progress: candidates.Progress = lambda _: None,
  expect: Expect = lambda _: None,
) -> candidates.Search:
  """Climbs from a candidate: tries single changes, combines gains, then drops.

  Args:
    so_far: what was tried so far.
    start: the candidate in `so_far` to start from.
    evaluate: schedules a config and searches its NCCL settings.
    changes: the changes to try on the best, each alone, in this order.
    drops: the changes that leave out an option of the best, tried in the same
      way after `changes`.
    in_turn: starts compiles of the next configs ahead.
    until_s: when to stop, a time of `time.monotonic`.
    progress: called with a short description of each candidate after it.
    expect: called with the number of candidates to come.
  """
  best = start

  def tried(
    each: Sequence[Change],
  ) -> Iterator[tuple[Change, candidates.Candidate]]:
    """Evaluates the best with each change, until the time is up."""
    nonlocal so_far
    new = [
      (label, change, config)
      for label, change in each
      if not so_far.found(config := change(best.config))
      and not _is_too_large(so_far, config)
    ]
    expect(len(new))
    configs = in_turn([config for _, _, config in new])
    for (label, change, config), _ in zip(new, configs, strict=True):
      if time.monotonic() >= until_s:
        return
      candidate = evaluate(config)
      so_far = so_far.with_candidate(candidate)
      progress(label)
      if isinstance(candidate, candidates.Candidate):
        yield (label, change), candidate

  def improve(each: Sequence[Change]) -> None:
    """Tries each change alone, and combines those that gain, best first."""
    nonlocal best
    before = best
    gaining = [
      (change, candidate)
      for change, candidate in tried(each)
      if _is_shorter(candidate, before)
    ]
    gaining.sort(key=lambda pair: candidates.tuned_us(pair[1]))
    if gaining:
      best = gaining[0][1]
    remaining = [change for change, _ in gaining[1:]]
    while remaining:
      for change, candidate in tried(remaining):
        remaining = remaining[remaining.index(change) + 1 :]
        if _is_shorter(candidate, best):
          best = candidate
          break
      else:
        return

  while True:
    before = best
    improve(changes(best))
    improve(drops(best))
    is_over = time.monotonic() >= until_s
    if is_over or not _is_shorter(best, before, candidates.LEAST_GAIN):
      return so_far


def _is_shorter(
  found: candidates.Candidate,
  before: candidates.Candidate,
  by: float = _LEAST_GAIN,
) -> bool:
  """Whether a step is shorter than another by at least this share of it."""
  return candidates.tuned_us(found) < (1 - by) * candidates.tuned_us(before)


def _start(so_far: candidates.Search) -> candidates.Candidate:
  """The fastest so far, or the default if it is about as fast."""
  fastest = min(so_far.scheduled, key=candidates.tuned_us)
  most_us = (1 + candidates.LEAST_GAIN) * candidates.tuned_us(fastest)
  is_as_fast = candidates.tuned_us(so_far.default) <= most_us
  return so_far.default if is_as_fast else fastest


def settings(values: Iterable[knobs.Value]) -> list[Change]:
  """One change for each value, which adds its options to a config."""
  return [
    (value.label, functools.partial(_with, value=value))
    for value in sorted(values, key=lambda v: (not v.is_first, v.is_last))
  ]


def _with(
  config: config_lib.XlaConfig, value: knobs.Value
) -> config_lib.XlaConfig:
  needed = value.beside
  if needed and not (needed in config.options or environment.value(needed)):
    return config  # It was tried already.
  return config.with_options(value.options)


def drops(best: candidates.Candidate) -> list[Change]:
  """The changes that drop one option of the best that affects the schedule.

  They include options that seem inert, since only a compile can tell: OLMoE on
  A100s is 0.5 % faster without a threshold that seems to combine nothing.
  """
  return [
    (
      f"without {name.removeprefix('xla_gpu_')}",
      functools.partial(_without, name=name),
    )
    for name in best.config.options
    if name not in pruning.AFTER_THE_SCHEDULE
  ]


def _without(config: config_lib.XlaConfig, name: str) -> config_lib.XlaConfig:
  return config.without_options([name])


def _is_too_large(
  so_far: candidates.Search, config: config_lib.XlaConfig
) -> bool:
  """Whether the step did not fit on a GPU with a subset of these options."""
  return any(
    isinstance(other, candidates.Refused)
    and other.is_too_large
    and other.config.options.items() <= config.options.items()
    for other in so_far.others
  )


def unlike(
  arms: Sequence[arms_lib.Arm], config: config_lib.XlaConfig
) -> list[arms_lib.Arm]:
  """The arms whose configs differ from this one, each config once."""
  found: list[arms_lib.Arm] = []
  for arm in arms:
    if arm.config not in (config, *(other.config for other in found)):
      found.append(arm)
  return found
