# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Baseline: what a step takes as jit runs it, before anything is tried."""

from __future__ import annotations

from collections.abc import Sequence
import statistics

from lagom_xla.live import script as script_lib

_NUM_WARM_UP = 3
_NUM_BLOCKS = 5
_BLOCK_CALLS = 2
# Makes the median deviation a standard deviation, where noise is normal.
_NORMAL = 1.4826


def script() -> script_lib.Script:
  """The first script of a step."""
  timed = script_lib.Segment(variant=0, num_calls=_BLOCK_CALLS, is_timed=True)
  return script_lib.Script(
    state=script_lib.State.BASELINE,
    segments=(
      script_lib.Segment(variant=0, num_calls=_NUM_WARM_UP),
      *[timed] * _NUM_BLOCKS,
    ),
  )


def step_s(blocks_s: Sequence[float]) -> tuple[float, float]:
  """What a step takes, and the spread of that, from the script's blocks."""
  block_s = statistics.median(blocks_s)
  spread_s = statistics.median(abs(it - block_s) for it in blocks_s)
  return block_s / _BLOCK_CALLS, _NORMAL * spread_s / _BLOCK_CALLS
