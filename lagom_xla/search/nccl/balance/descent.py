# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Descent from a place in the space, by steps that become shorter.

Chunks smaller and larger, channels fewer and more: a move that helps is made
again, and when none helps the steps are halved, down to single ones. A move to
smaller chunks or fewer channels helps if the time is the same: a chunk larger
than what there is to send gains nothing.
"""

from __future__ import annotations

import dataclasses
import math

from lagom_xla.search.nccl.balance import seen as seen_lib

# (channels, chunk size) by which a move changes the positions.
_MOVES = ((0, -1), (0, 1), (-1, 0), (1, 0))


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Descent:
  """A descent in one subspace, between two trials.

  Attributes:
    subspaces: of the key.
    at: the lowest place so far.
    value_us: what is minimised, there; infinite before its trial.
    steps: the present lengths of steps on the two axes.
    pending: the place of the pending trial; None when the descent has ended.
    move: the move that is being made.
    failures: moves in a row that did not help.
    tried: places that had a trial.
  """

  subspaces: seen_lib.Subspaces
  at: seen_lib.Point
  value_us: float
  steps: tuple[int, int]
  pending: seen_lib.Point | None
  move: int = 0
  failures: int = 0
  tried: frozenset[seen_lib.Point] = frozenset()

  def after(self, value_us: float) -> Descent:
    """With the answer to the pending trial."""
    assert self.pending is not None
    tried = self.tried | {self.pending}
    takes_less = min(_MOVES[self.move]) < 0
    if value_us < self.value_us or (takes_less and value_us == self.value_us):
      helped = dataclasses.replace(
        self, at=self.pending, value_us=value_us, failures=0, tried=tried
      )
      return helped.moved()
    return dataclasses.replace(self, tried=tried)._failed().moved()

  def moved(self) -> Descent:
    """With the next place that had no trial yet, if there is one."""
    descent = self
    while descent.failures < len(_MOVES):
      place = descent._next()
      if place not in descent.tried and place != descent.at:
        return dataclasses.replace(descent, pending=place)
      descent = descent._failed()
    return dataclasses.replace(descent, pending=None)

  def _failed(self) -> Descent:
    move = (self.move + 1) % len(_MOVES)
    failures = self.failures + 1
    if failures == len(_MOVES) and max(self.steps) > 1:
      channels, chunk = self.steps
      steps = max(channels // 2, 1), max(chunk // 2, 1)
      return dataclasses.replace(self, move=move, failures=0, steps=steps)
    return dataclasses.replace(self, move=move, failures=failures)

  def _next(self) -> seen_lib.Point:
    subspace = self.subspaces[self.at.subspace]
    channels, chunk = _MOVES[self.move]
    return seen_lib.Point(
      self.at.subspace,
      _moved(
        self.at.channels_at,
        channels * self.steps[0],
        len(subspace.num_channels),
      ),
      _moved(
        self.at.chunk_at, chunk * self.steps[1], len(subspace.chunk_bytes)
      ),
    )


def _moved(position: int, by: int, size: int) -> int:
  return min(max(position + by, 0), size - 1)


def begin(
  subspaces: seen_lib.Subspaces, at: seen_lib.Point, value_us: float = math.inf
) -> Descent:
  """A descent from a place; it tries the place itself unless that is known.

  Args:
    subspaces: of the key.
    at: where it begins.
    value_us: what is minimised, there, if that is known.
  """
  subspace = subspaces[at.subspace]
  descent = Descent(
    subspaces=subspaces,
    at=at,
    value_us=value_us,
    steps=(
      max(subspace.num_channels[at.channels_at] // 4, 1),
      max(len(subspace.chunk_bytes) // 2, 1),
    ),
    pending=at,
  )
  return descent if math.isinf(value_us) else descent.moved()
