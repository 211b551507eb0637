# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Launches of nccl-tests: below what time a row tells nothing of links.

A thread of nccl-tests launches its GPUs' parts of a collective one after the
other (`-g`), and no collective comes sooner after the one before than that
takes. XLA has a thread for each GPU, so this is no part of its collectives.

On 4 and on 8 GPUs of whatever kind times do not fall below 4 to 6 us for each.
The figure is the mean of public systems (benchmarks/collectives/fit_paths.py).
"""

from __future__ import annotations

import functools
import json
import pathlib

_FITTED = (
  pathlib.Path(__file__).parents[1] / "costs" / "fitted" / "collective.json"
)
# Times are above the floor by what hosts are slower than the mean.
_SLOW_HOST = 1.25


def floor_us(num_gpus: int) -> float:
  """The time below which no row falls.

  Args:
    num_gpus: that a thread launches for.
  """
  return num_gpus * _fitted_us()


def hides(num_gpus: int, measured_us: float) -> bool:
  """Whether a row may be of launches alone."""
  return measured_us < _SLOW_HOST * floor_us(num_gpus)


@functools.cache
def _fitted_us() -> float:
  raw = json.loads(_FITTED.read_text(encoding="utf-8"))
  return float(raw["set_apart"]["launch_us"])
