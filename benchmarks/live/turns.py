# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Turns: several steps that run after each other, block by block."""

from __future__ import annotations

from collections.abc import Callable, Mapping
import itertools
import math
import time
from typing import Any

import jax

from benchmarks.live import training
from benchmarks.shaped_hosts import host

Step = Callable[[Any, Any], tuple[Any, Any]]

# Blocks are long beside a clock's and a scheduler's grain.
_BLOCK_S = 0.25


def run(
  made: training.Training, step: Step, state: Any, num_steps: int
) -> tuple[Any, float]:
  """Trains for some steps; returns the state, and seconds per step.

  Steps are chained by their state, and waited for at the end.
  """
  begin = time.perf_counter()
  for batch in itertools.islice(itertools.cycle(made.batches), num_steps):
    state, _ = step(state, batch)
  jax.block_until_ready(state)
  return state, (time.perf_counter() - begin) / num_steps


def block_length(step_s: float) -> int:
  """Steps of a block."""
  return max(1, math.ceil(_BLOCK_S / step_s))


def measure(
  made: training.Training,
  steps: Mapping[str, Step],
  state: Any,
  *,
  num_rounds: int,
  num_steps: int,
) -> tuple[Any, dict[str, list[float]]]:
  """Seconds per step of each, in every round.

  Args:
    made: the training.
    steps: by name. Each comes first in equally many rounds.
    state: to go on from.
    num_rounds: of one block each.
    num_steps: of a block.

  Returns:
    The state after all, and name -> seconds per step of each round.
  """
  seconds: dict[str, list[float]] = {name: [] for name in steps}
  for name in host.in_turns(list(steps), num_rounds):
    state, taken_s = run(made, steps[name], state, num_steps)
    seconds[name].append(taken_s)
  return state, seconds
