# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""A descent of AutoCCL: Algorithm 2 of AutoCCL (NSDI 2025), in one subspace.

From a random point, one knob at a time moves on as long as that helps, by steps
that grow with the last gain. The paper leaves open, and this module settles as
its authors' program does (github.com/gbxu/autoccl):

*Direction.* Algorithm 2 only ever adds lr to a coordinate, which cannot leave a
starting point that is too high. A coordinate is tried upwards, then downwards.

*Step.* lr is a ratio and a coordinate a position: a step goes that share of the
way to the end of the axis, and at least to the next value. lr is BwDelta / Bw,
0.01 at first and after each failure.

*End.* M failures in a row end a descent, M being the number of coordinates;
here that is every coordinate in both directions. Where an axis ends a move
fails without a trial.
"""

from __future__ import annotations

import dataclasses
import math

from lagom_xla.search.nccl import problem

# Coordinates (channels, chunk size) and directions, in the order of trial.
_MOVES = ((0, 1), (0, -1), (1, 1), (1, -1))

_Point = tuple[int, int]


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Descent:
  """Algorithm 2, in one subspace.

  Attributes:
    subspace: where.
    at: the fastest point so far, as positions on the two axes.
    time_us: x_j there.
    move: which of `_MOVES` is next.
    failures: moves in a row that gained nothing.
    first_lr: the least `lr`.
    lr: relative gain of the last move.
    point: the point of the pending trial; None when the descent has ended.
  """

  subspace: problem.Subspace
  at: _Point
  point: _Point | None
  time_us: float = math.inf
  move: int = 0
  failures: int = 0
  first_lr: float
  lr: float

  def after(self, time_us: float) -> Descent:
    """With the answer to the pending trial."""
    assert self.point is not None
    if time_us < self.time_us:
      gain = 1 - time_us / self.time_us if self.time_us < math.inf else 0.0
      return dataclasses.replace(
        self,
        at=self.point,
        time_us=time_us,
        failures=0,
        lr=max(gain, self.first_lr),
      )._next()
    return self._failed()._next()

  def _failed(self) -> Descent:
    return dataclasses.replace(
      self,
      move=(self.move + 1) % len(_MOVES),
      failures=self.failures + 1,
      lr=self.first_lr,
    )

  def _next(self) -> Descent:
    descent = self
    while descent.failures < len(_MOVES):
      point = descent._moved()
      if point != descent.at:
        return dataclasses.replace(descent, point=point)
      descent = descent._failed()
    return dataclasses.replace(descent, point=None)

  def _moved(self) -> _Point:
    coordinate, direction = _MOVES[self.move]
    axes = (self.subspace.num_channels, self.subspace.chunk_bytes)
    at = self.at[coordinate]
    left = len(axes[coordinate]) - 1 - at if direction > 0 else at
    step = min(left, max(1, round(self.lr * left)))
    point = list(self.at)
    point[coordinate] += direction * step
    return point[0], point[1]
