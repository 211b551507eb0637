# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Growth of evaluations and seconds with the number of collectives.

The modules are real: stacks of perceptrons with sharded weights, in which XLA
gathers each layer's weight by itself. Every layer has a different width, so
every gather has its own tuning key. Two collectives may be in flight, so that
all gathers of a step except the first, which no kernel can hide, are in one
overlap. This is the hardest case: one problem with all of these unknowns.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
import functools
import time
from typing import Any

import numpy as np

from benchmarks import table as table_lib
from benchmarks.search import modules
from benchmarks.searchers import lagom
from benchmarks.searchers import lockstep
from benchmarks.workloads import cases
from lagom_xla.costs import step as step_lib
from lagom_xla.search.nccl import problem as problem_lib
from lagom_xla.search.nccl import settings as settings_lib
from lagom_xla.search.xla import knobs

_NUM_COLLECTIVES = (1, 2, 4, 8, 16, 32, 64, 128, 256)
_MOST_EXPONENT = 1.1
_NUM_REPEATS = 3
# Longer searches are timed once.
_LONG_S = 2.0
_PRODUCT = "product"
# Searches by name; each takes a step.
_SEARCHES: dict[str, Callable[[step_lib.Step], Any]] = {
  "lagom": functools.partial(lockstep.run_step, lagom.Lagom()),
  _PRODUCT: settings_lib.search,
}


def module(num_collectives: int) -> cases.Case:
  """A step with this many gathers, each with its own tuning key."""
  made = modules.perceptrons(
    f"{num_collectives} gathers",
    "1x8xh100",
    layout="fsdp",
    # Not in order of size, so that neighbors differ.
    hidden=tuple(
      2048 + 8 * (7 * i % num_collectives) for i in range(num_collectives)
    ),
    rows_per_device=1024,
    forward_only=True,
    options=dict.fromkeys(knobs.OPTIONS.values(), 0),
  )
  return modules.overlapping(made, 2)


def table(
  nums_collectives: Sequence[int] = _NUM_COLLECTIVES,
) -> table_lib.Table:
  """Searches modules of growing size."""
  steps = [modules.step(module(n)) for n in nums_collectives]
  for step in steps:
    _ = step.analysis.kernels, step.analysis.overlaps  # Not timed.
  rows = [_row(name, step) for name in _SEARCHES for step in steps]
  exponents = {
    (name, field): _exponent([r for r in rows if r["searcher"] == name], field)
    for name in _SEARCHES
    for field in ("evaluations", "seconds")
  }
  return table_lib.Table(
    name="growth",
    title="Growth with the number of collectives",
    columns=table_lib.columns(
      searcher="", collectives="d", keys="d", kernels="d", largest="d",
      evaluations="d", per_key=".1f", seconds=".4f", gain=".2%",
    ),
    rows=rows,
    targets=[
      table_lib.Target(
        wanted=f"{name}: {field} grow with an exponent of {_MOST_EXPONENT} or"
        " less",
        found=f"{exponent:.2f}",
        is_met=exponent <= _MOST_EXPONENT,
      )
      for (name, field), exponent in exponents.items()
    ],
    notes=(
      "Unrolled perceptrons whose weights are gathered layer by layer, as XLA"
      " schedules them for 1x8xh100. Each gather has its own tuning key, and"
      " all but one are in one overlap.",
      "Seconds of one core after the module's analysis, the shortest of"
      f" {_NUM_REPEATS}; exponents are fitted to all sizes.",
      f'"{_PRODUCT}" is the search of `tune` for a step\'s settings; its'
      " evaluations are of the whole step.",
    ),
  )  # fmt: skip


def _timed(name: str, step: step_lib.Step) -> tuple[Any, float]:
  """The result of a search, and its processor seconds."""
  # A new step, because steps cache their predictions.
  step = step_lib.Step(step.analysis, step.cluster)
  begin = time.process_time()
  found = _SEARCHES[name](step)
  return found, time.process_time() - begin


def _row(name: str, step: step_lib.Step) -> table_lib.Row:
  found, seconds = _timed(name, step)
  for _ in range(_NUM_REPEATS - 1):
    if seconds <= _LONG_S:
      seconds = min(seconds, _timed(name, step)[1])
  default_us = step.timeline(step.default).step_time_us
  tuned_us = step.timeline(found.configuration).step_time_us
  return {
    "searcher": name,
    "collectives": len(step.analysis.collectives),
    "keys": len(step.keys),
    "kernels": len(step.analysis.kernels),
    "largest": max(len(p.keys) for p in problem_lib.problems(step)),
    "evaluations": found.num_trials,
    "per_key": found.num_trials / len(step.keys),
    "seconds": seconds,
    "gain": 1 - tuned_us / default_us,
  }


def _exponent(rows: Sequence[table_lib.Row], field: str) -> float:
  """The exponent of a power law, by least squares of logarithms."""
  points = [(float(row["collectives"]), float(row[field])) for row in rows]
  x, y = np.log(np.array(points)).T
  return float(np.polyfit(x, y, 1)[0])
