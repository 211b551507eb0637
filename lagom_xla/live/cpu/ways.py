# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Ways that a search looks at, those first that most probably gain most.

One group of all-reduces pays gloo's latency once, and all-reduces one by one
can each hide behind products: what `benchmarks.live` adopted was mostly one of
these. Strands and slices come last. Few programs can have them, and they take
other groups as well as they find them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
import math

import jax

from lagom_xla.live.cpu import compiling
from lagom_xla.live.cpu import grouping
from lagom_xla.live.cpu import way as way_lib

# Into how many groups the all-reduces go; and each alone, by a size of 0.
_NUM_GROUPS = (2, 4, 8)
_STRANDS = ("paired", "rotated")
_NUM_PIECES = (2, 4)


def likely_first(
  lowered: jax.stages.Lowered, best_group_bytes: Callable[[], int | None]
) -> Iterator[way_lib.Way]:
  """Ways that differ in more than their order.

  Args:
    lowered: the step.
    best_group_bytes: the best groups of the program as it is written, once all
      of these were looked at; other forms have them, too.
  """
  for group_bytes in _group_sizes(lowered):
    yield way_lib.Way(group_bytes=group_bytes)
  for group_bytes in dict.fromkeys((best_group_bytes(), None)):
    for strands in _STRANDS:
      yield way_lib.Way(strands=strands, group_bytes=group_bytes)
    for num_pieces in _NUM_PIECES:
      yield way_lib.Way(num_pieces=num_pieces, group_bytes=group_bytes)


def _group_sizes(lowered: jax.stages.Lowered) -> list[int]:
  """Sizes that give all-reduces other groups, in bytes."""
  candidates = grouping.all_reduces(compiling.before_grouping(lowered))
  if len(candidates) < 2:
    return []
  total = sum(candidate.num_bytes for candidate in candidates)
  sizes = [total, 0, *(math.ceil(total / number) for number in _NUM_GROUPS)]
  by_groups: dict[object, int] = {}
  for size in sizes:
    by_groups.setdefault(grouping.groups(candidates, size), size)
  return list(by_groups.values())
