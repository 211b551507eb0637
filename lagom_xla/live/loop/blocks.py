# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Blocks of steps that take turns, and the pairs of times they make."""

from __future__ import annotations

from collections.abc import Sequence
import math

from lagom_xla.live import script as script_lib

# A block is as many calls as take this long, within bounds.
_BLOCK_S = 0.2
_BLOCK_CALLS = (2, 10)
# The same between two looks at a search or a compile, and of a baseline, which
# such calls are compared with: at the end of each there is a wait.
_CHUNK_S = 1.0
_CHUNK_CALLS = (1, 20)


def chunk(variant: int, step_s: float) -> script_lib.Segment:
  """Calls of the variant in use while something happens beside them."""
  num_calls = _calls_within(_CHUNK_S, step_s, _CHUNK_CALLS)
  return script_lib.Segment(variant=variant, num_calls=num_calls, is_timed=True)


def compose(
  ours: int, theirs: int, *, step_s: float, num_before: int, num_pairs: int
) -> list[script_lib.Segment]:
  """Pairs of blocks in the order A B B A.

  Args:
    ours: The variant in use.
    theirs: The candidate.
    step_s: What a step takes, in seconds.
    num_before: Pairs that were played before.
    num_pairs: Pairs that follow.
  """
  num_calls = _calls_within(_BLOCK_S, step_s, _BLOCK_CALLS)
  segments = []
  for index in range(num_before, num_before + num_pairs):
    order = (theirs, ours) if index % 2 else (ours, theirs)
    segments += [
      script_lib.Segment(variant=variant, num_calls=num_calls, is_timed=True)
      for variant in order
    ]
  return segments


def pairs(
  segments: Sequence[script_lib.Segment],
  durations_s: Sequence[float | None],
  ours: int,
) -> list[tuple[float, float]]:
  """The times of the pairs, that of the variant in use first.

  Args:
    segments: Of `compose`.
    durations_s: What they took.
    ours: The variant in use.
  """
  found = []
  for first in range(0, len(segments), 2):
    one, two = durations_s[first : first + 2]
    assert one is not None and two is not None
    is_ours_first = segments[first].variant == ours
    found.append((one, two) if is_ours_first else (two, one))
  return found


def _calls_within(
  seconds: float, step_s: float, bounds: tuple[int, int]
) -> int:
  """Calls that take so long, within bounds, of a step that takes `step_s`."""
  lowest, highest = bounds
  return min(max(math.ceil(seconds / step_s), lowest), highest)
