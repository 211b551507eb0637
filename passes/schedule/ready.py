# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Ready instructions: what can run next, while a computation is listed anew."""

from __future__ import annotations

import bisect
from collections.abc import Collection, Mapping, Sequence

from lagom_xla.passes import hlo


class Queue:
  """What of a computation is ready, and has yet to run.

  Args:
    computation: the computation.
    waits_for: what has to run before each instruction, by their ids.
    last: ids of those that run only where nothing else can.
  """

  def __init__(
    self,
    computation: hlo.Computation,
    waits_for: Mapping[int, Collection[int]],
    last: Collection[int],
  ):
    self._instructions = computation.instructions
    self._position = computation.position
    self._last = last
    self._num_left = {id_: len(before) for id_, before in waits_for.items()}
    self._after: dict[int, list[int]] = {id_: [] for id_ in self._position}
    # Positions, in order.
    self._first_ready: list[int] = []
    self._last_ready: list[int] = []
    for position, instruction in enumerate(self._instructions):
      for id_ in waits_for[instruction.id]:
        self._after[id_].append(instruction.id)
      if not waits_for[instruction.id]:
        self._among(instruction.id).append(position)

  @property
  def ready(self) -> Sequence[hlo.Instruction]:
    """What can run next, as it stood; nothing once all has run."""
    ready = self._first_ready or self._last_ready
    return [self._instructions[position] for position in ready]

  def take(self, id_: int) -> None:
    """One that is ready runs now."""
    ready = self._among(id_)
    del ready[bisect.bisect_left(ready, self._position[id_])]
    for later in self._after[id_]:
      self._num_left[later] -= 1
      if not self._num_left[later]:
        bisect.insort(self._among(later), self._position[later])

  def _among(self, id_: int) -> list[int]:
    return self._last_ready if id_ in self._last else self._first_ready
