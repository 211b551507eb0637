# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""The search over XLA options, the most promising first.

Which collectives exist, and what runs beside them, is up to XLA. Compiling to
find out costs seconds to minutes per value of a knob, so what each value gains
is *predicted* first (`predictions.py`).

Each round ranks all values by that gain, and pairs of them that
gain no less than either alone, and compiles them in this order, until one makes
the step shorter, which starts the next round from its schedule; or until the
gains fall below `candidates.LEAST_GAIN`. What cannot be predicted is compiled
once, if collectives cost enough of the step for it to gain. What compiles show
corrects the predictions that follow (`hindsight.py`). Where nothing more gains,
other moves are made (`moves.py`). Only a compiled schedule with its NCCL
settings searched anew is ever kept.
"""

from __future__ import annotations

from collections.abc import Sequence
import dataclasses

from lagom_xla.compile import config as config_lib
from lagom_xla.search.xla import candidates
from lagom_xla.search.xla import evaluation
from lagom_xla.search.xla import hindsight as hindsight_lib
from lagom_xla.search.xla import moves as moves_lib
from lagom_xla.search.xla import predictions as predictions_lib

# Candidates that are compiled at most, the default among them.
MAX_COMPILES = 16
# What part of them is left for moves where no value gains alone.
_LEFT = 1 / 5


def search(
  so_far: candidates.Search,
  evaluate: candidates.Evaluate,
  *,
  max_compiles: int = MAX_COMPILES,
  regardless: moves_lib.Regardless | None = None,
  is_hopeless: moves_lib.IsHopeless = lambda _: False,
  in_turn: evaluation.InTurn = evaluation.one_by_one,
  predictions: predictions_lib.Predictions | None = None,
  progress: candidates.Progress = lambda _: None,
) -> candidates.Search:
  """Continues a search from its default.

  Args:
    so_far: what was tried so far.
    evaluate: schedules and searches a config.
    max_compiles: how many candidates may be compiled, the default among them.
    regardless: values for a step that are compiled whatever is predicted, in
      place of those of which nothing can be.
    is_hopeless: of which nothing can be predicted is not compiled if this says
      that it would not gain.
    in_turn: begins the configs of a round ahead.
    predictions: that may have been made before; None for none.
    progress: called with a few words after each candidate.
  """
  predictions = predictions or predictions_lib.Predictions()
  run = _Run(so_far, evaluate, in_turn, progress)
  while True:
    before = run.so_far.best
    ranked, num_predicted = moves_lib.ranked(
      before,
      so_far.default.config,
      tried=run.tried,
      predictions=predictions,
      hindsight=run.hindsight,
      regardless=regardless,
      is_hopeless=is_hopeless,
    )
    run.count(num_predicted)
    num_left = int(_LEFT * max_compiles)
    if not (
      run.gains(ranked, max_compiles - num_left)
      or run.gains(moves_lib.together(before, run.hindsight), max_compiles)
      or run.gains(moves_lib.again(before, run.hindsight), max_compiles)
      or run.gains(moves_lib.without(run.so_far, run.hindsight), max_compiles)
    ):
      return run.so_far


class _Run:
  """A search under way.

  Attributes:
    so_far: the search.
    tried: configs that were compiled, the start first.
    hindsight: what that showed of values.
  """

  def __init__(
    self,
    so_far: candidates.Search,
    evaluate: candidates.Evaluate,
    in_turn: evaluation.InTurn,
    progress: candidates.Progress,
  ):
    self.so_far = so_far
    self.tried = [so_far.default.config]
    self.hindsight = hindsight_lib.Hindsight()
    self._evaluate = evaluate
    self._in_turn = in_turn
    self._progress = progress

  def count(self, num_predicted: int) -> None:
    """Counts schedules that were predicted."""
    num = self.so_far.num_predicted + num_predicted
    self.so_far = dataclasses.replace(self.so_far, num_predicted=num)

  def gains(self, moves: Sequence[moves_lib.Move], max_compiles: int) -> bool:
    """Compiles moves until one is better than the best; whether one is.

    Args:
      moves: in this order; those are passed over that are known already, or
        that what was compiled before them leaves no hope for.
      max_compiles: until so many configs were compiled, the start among them.
    """
    before = self.so_far.best
    new = [
      move
      for move in moves
      if move.config not in self.tried
      and not _is_too_large(self.so_far, move.config)
    ][: max(max_compiles - len(self.tried), 0)]
    configs = self._in_turn([move.config for move in new])
    for move, _ in zip(new, configs, strict=True):
      if self._is_refuted(move):
        continue
      self._compile(move, before)
      if self.so_far.best is not before:
        self.hindsight.go_on(before, self.so_far.best)
        return True
    return False

  def _is_refuted(self, move: moves_lib.Move) -> bool:
    """Whether a move was promising, and is not after what was compiled."""
    if move.value is None or move.predicted is None:
      return False
    expected = self.hindsight.expected(move.value, move.predicted)
    return expected < candidates.LEAST_GAIN <= move.predicted

  def _compile(
    self, move: moves_lib.Move, before: candidates.Candidate
  ) -> None:
    self.tried.append(move.config)
    found = self._evaluate(move.config)
    self.so_far = self.so_far.with_candidate(found)
    if move.value is not None and isinstance(found, candidates.Candidate):
      self.hindsight.note(move.value, move.predicted, before, found)
    self._progress(move.label)


def first_round(
  start: candidates.Candidate, predictions: predictions_lib.Predictions
) -> list[config_lib.XlaConfig]:
  """What a search from a candidate begins with, unless it knows better."""
  moves, _ = moves_lib.ranked(
    start,
    start.config,
    tried=[start.config],
    predictions=predictions,
    hindsight=hindsight_lib.Hindsight(),
  )
  return [move.config for move in moves]


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
