# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Alignment of two sequences of loops: which of one runs beside which of other.

Both sequences keep their order, as each loop needs the one before it; so the
pairs must not cross. Only loops with the same number of trips can become one.
"""

from __future__ import annotations

from collections.abc import Sequence
import dataclasses


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Loop:
  """A loop of a block.

  Attributes:
    position: where it stands.
    num_trips: how often its body runs.
    flops: what its products work, over all trips.
  """

  position: int
  num_trips: int
  flops: int


Pairs = tuple[tuple[int, int], ...]


def align(one: Sequence[Loop], other: Sequence[Loop]) -> tuple[int, Pairs]:
  """The pairs that have most work side by side.

  A pair's is that of the smaller loop: beyond it the larger one is alone.

  Returns:
    FLOPs that run beside others, and the positions of the pairs, in order.
  """
  # best[j]: for the loops of one so far and the first j of the other.
  best: list[tuple[int, Pairs]] = [(0, ())] * (len(other) + 1)
  for a in one:
    row: list[tuple[int, Pairs]] = [(0, ())]
    for j, b in enumerate(other):
      choice = max(best[j + 1], row[j], key=lambda c: c[0])
      flops = best[j][0] + min(a.flops, b.flops)
      if a.num_trips == b.num_trips and flops > choice[0]:
        choice = flops, (*best[j][1], (a.position, b.position))
      row.append(choice)
    best = row
  return best[-1]
