# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""The search over XLA's options: arms, then single values beside the best.

XLA's default and what is published (`arms.py`) are compiled first. From the
fastest of them on, values of knobs are compiled beside the best so far, the
most promising first (`predictions.py`), until one makes the step shorter, which
is the best from then on; each value has one turn. Then the best is compiled
without each of its options, as what gained when it was added may cost once
others are beside it. There is another round as long as one gains, and time is
left: whenever the search ends, the best so far stands.

Only a compiled schedule with its NCCL settings searched is ever kept, and a
plan is chosen of all that was compiled, by what is sure
(`candidates.Search.best`).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
import dataclasses
import time

from lagom_xla.compile import config as config_lib
from lagom_xla.search.xla import arms as arms_lib
from lagom_xla.search.xla import candidates
from lagom_xla.search.xla import evaluation
from lagom_xla.search.xla import knobs
from lagom_xla.search.xla import predictions
from lagom_xla.search.xla import pruning

# What gains a smaller share of the step is not gone on from. It is less than
# what a round must gain (`candidates.LEAST_GAIN`), as small gains add up.
_LEAST_GAIN = 1e-4

Beside = Callable[[candidates.Candidate | None], candidates.Evaluate]
Expect = Callable[[float], None]
Values = Callable[[candidates.Candidate], Sequence[knobs.Value]]


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Move:
  """A config to compile next.

  Attributes:
    label: what it is tried for, in a few words.
    config: the config.
    turn: the value that it sets beside the best one, or the option that it
      leaves out, each of which has one turn in a round.
  """

  label: str
  config: config_lib.XlaConfig
  turn: Hashable


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
  """Goes on from a search that has its default alone.

  Args:
    so_far: the search.
    beside: given the fastest arm, or None while that is not known, what
      schedules and searches a config.
    arms: what else to begin with.
    turns: has the next configs begun ahead.
    until_s: when to end, by `time.monotonic`. Arms are compiled whatever it is.
    progress: called with a few words after each candidate.
    expect: called with how many candidates are to come, as often as more is
      known of that.
  """
  so_far = dataclasses.replace(so_far, arms=tuple(arms))
  new = unlike(arms, so_far.default.config)
  expect(len(new) + len(knobs.worth_trying(so_far.default.step)))
  with turns.of_arms.begun(arm.config for arm in new):
    for arm in new:
      so_far = so_far.with_candidate(beside(None)(arm.config))
      progress(arm.name)
  return climb(
    so_far,
    _start(so_far),
    beside(so_far.fastest_arm),
    values=ranked,
    in_turn=turns.ahead,
    until_s=until_s,
    progress=progress,
    expect=expect,
  )


def climb(
  so_far: candidates.Search,
  start: candidates.Candidate,
  evaluate: candidates.Evaluate,
  *,
  values: Values,
  in_turn: evaluation.InTurn,
  until_s: float,
  progress: candidates.Progress = lambda _: None,
  expect: Expect = lambda _: None,
) -> candidates.Search:
  """Goes on from a candidate, by single values and by leaving out options.

  Args:
    so_far: what was tried so far.
    start: one of it.
    evaluate: schedules and searches a config.
    values: what to set beside the best candidate, the most promising first.
    in_turn: begins configs ahead.
    until_s: when to end, by `time.monotonic`.
    progress: called with a few words after each candidate.
    expect: called with how many candidates are to come.
  """
  best = start
  had_turn: set[Hashable] = set()

  def gains(moves: Iterable[_Move]) -> bool:
    """Compiles moves until one makes the step shorter; whether one does."""
    nonlocal so_far, best
    most_us = (1 - _LEAST_GAIN) * candidates.tuned_us(best)
    new = [
      move
      for move in moves
      if move.turn not in had_turn
      and not so_far.found(move.config)
      and not _is_too_large(so_far, move.config)
    ]
    expect(len(new))
    configs = in_turn([move.config for move in new])
    for move, config in zip(new, configs, strict=True):
      if time.monotonic() >= until_s:
        return False
      had_turn.add(move.turn)
      found = evaluate(config)
      so_far = so_far.with_candidate(found)
      progress(move.label)
      is_made = isinstance(found, candidates.Candidate)
      if is_made and candidates.tuned_us(found) < most_us:
        best = found
        return True
    return False

  while True:
    least_us = (1 - candidates.LEAST_GAIN) * candidates.tuned_us(best)
    while gains(_settings(best, values(best))):
      pass
    while gains(_drops(best, so_far.default)):
      pass
    is_over = time.monotonic() >= until_s
    if candidates.tuned_us(best) > least_us or is_over:
      return so_far
    had_turn.clear()


def ranked(best: candidates.Candidate) -> list[knobs.Value]:
  """Values that may gain beside a candidate, the most promising first.

  Those whose gain nothing foretells come between those that are predicted to
  gain and those that are predicted to cost.
  """
  alone = list(knobs.worth_trying(best.step))
  predicted = predictions.of(best, alone)
  gains = {id(p.value): p.gain for p in predicted}
  together = [
    p.value for p in predicted if p.value not in alone and p.is_promising
  ]
  return sorted(
    alone + together,
    key=lambda v: (not v.is_first, v.is_last, -gains.get(id(v), 0.0)),
  )


def _start(so_far: candidates.Search) -> candidates.Candidate:
  """The fastest so far, or the default where that is as fast."""
  fastest = min(so_far.scheduled, key=candidates.tuned_us)
  most_us = (1 + candidates.LEAST_GAIN) * candidates.tuned_us(fastest)
  is_as_fast = candidates.tuned_us(so_far.default) <= most_us
  return so_far.default if is_as_fast else fastest


def _settings(
  best: candidates.Candidate, values: Iterable[knobs.Value]
) -> list[_Move]:
  """The best config with each of these values."""
  return [
    _Move(
      label=value.label,
      config=best.config.with_options(value.options),
      turn=frozenset(value.options.items()),
    )
    for value in values
  ]


def _drops(
  best: candidates.Candidate, default: candidates.Candidate
) -> list[_Move]:
  """The best config without each of its options that a schedule may show.

  Those that seem to do nothing come last, but are not left out, as only a
  compile acquits them: without a threshold that seems to combine nothing OLMoE
  on A100s is 0.5 % faster.
  """
  acting = pruning.expected(best, default).options
  names = [n for n in best.config.options if n not in acting]
  return [
    _Move(
      label=f"without {name.removeprefix('xla_gpu_')}",
      config=best.config.without_options([name]),
      turn=name,
    )
    for name in (*acting, *names)
    if name not in pruning.AFTER_THE_SCHEDULE
  ]


def _is_too_large(
  so_far: candidates.Search, config: config_lib.XlaConfig
) -> bool:
  """Whether no GPU could hold the step with a part of these options."""
  return any(
    isinstance(other, candidates.Refused)
    and other.is_too_large
    and other.config.options.items() <= config.options.items()
    for other in so_far.others
  )


def unlike(
  arms: Sequence[arms_lib.Arm], config: config_lib.XlaConfig
) -> list[arms_lib.Arm]:
  """The arms with other configs than this one, each config once."""
  found: list[arms_lib.Arm] = []
  for arm in arms:
    if arm.config not in (config, *(other.config for other in found)):
      found.append(arm)
  return found
