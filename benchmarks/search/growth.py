# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Growth of evaluations and seconds with the number of collectives.

The modules are real: stacks of perceptrons with sharded weights, in which XLA
gathers each layer's weight by itself. Every layer has a width of its own, so
every gather has a tuning key of its own. Two collectives may be in flight at a
time, so that all gathers of a step are in one overlap: the hardest case, one
problem with as many unknowns as there are collectives.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
import time

import numpy as np

from benchmarks import table as table_lib
from benchmarks.search import modules as modules_lib
from lagom_xla.costs import step as step_lib
from lagom_xla.search.nccl import problem as problem_lib
from lagom_xla.search.nccl import searcher as searcher_lib
from lagom_xla.search.nccl import settings as settings_lib
from lagom_xla.search.xla import knobs

NAME = "growth"

NUM_COLLECTIVES = (1, 2, 4, 8, 16, 32, 64, 128, 256)
_MOST_EXPONENT = 1.1
_NUM_REPEATS = 3
# A search that takes longer is timed once.
_LONG_S = 2.0
_PRODUCT = "product"

_Search = Callable[[step_lib.Step], tuple[problem_lib.Configuration, int]]

_COLUMNS = (
  table_lib.Column("searcher"),
  table_lib.Column("collectives", "d"),
  table_lib.Column("keys", "d"),
  table_lib.Column("kernels", "d"),
  table_lib.Column("largest", "d"),
  table_lib.Column("evaluations", "d"),
  table_lib.Column("per_key", ".1f"),
  table_lib.Column("seconds", ".4f"),
  table_lib.Column("gain", ".2%"),
)


def module(num_collectives: int) -> modules_lib.Module:
  """A step with this many gathers, each with a tuning key of its own."""
  alone = dict.fromkeys(knobs.OPTIONS.values(), 0)
  return modules_lib.perceptrons(
    f"{num_collectives} gathers",
    "1x8xh100",
    layout="fsdp",
    # Not in order of size, so that neighbours differ.
    hidden=tuple(
      2048 + 8 * (7 * i % num_collectives) for i in range(num_collectives)
    ),
    rows_per_device=1024,
    forward_only=True,
    options=alone,
  ).overlapping(2)


def table(
  shelf: modules_lib.Shelf,
  searchers: Mapping[str, searcher_lib.Searcher],
  nums_collectives: Sequence[int] = NUM_COLLECTIVES,
) -> table_lib.Table:
  """Searches modules of growing size."""
  steps = [shelf.step(module(n)) for n in nums_collectives]
  for step in steps:
    _ = step.analysis.kernels, step.analysis.overlaps  # Not timed.
  searches: dict[str, _Search] = {
    **{name: _search_with(one) for name, one in searchers.items()},
    _PRODUCT: _as_the_product,
  }
  rows = [
    _row(name, search, step)
    for name, search in searches.items()
    for step in steps
  ]
  exponents = {
    (name, field): _exponent([r for r in rows if r["searcher"] == name], field)
    for name in searches
    for field in ("evaluations", "seconds")
  }
  return table_lib.Table(
    name=NAME,
    title="Growth with the number of collectives",
    columns=_COLUMNS,
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
      "Unrolled perceptrons whose weights are gathered layer by layer, each"
      " gather with a tuning key of its own and all in one overlap, as XLA"
      " schedules them for 1x8xh100.",
      "Seconds are of one core from the analysed module on, the shortest of"
      f" {_NUM_REPEATS}; exponents are fitted to all sizes.",
      f'"{_PRODUCT}" is the search of a step\'s settings as `tune` does it; its'
      " evaluations are of the whole step.",
    ),
  )


def _search_with(searcher: searcher_lib.Searcher) -> _Search:
  """Searches the problems of a step one after the other."""

  def search(step: step_lib.Step) -> tuple[problem_lib.Configuration, int]:
    configuration = dict(step.default)
    num_trials = 0
    for problem in problem_lib.problems(step):
      state = searcher_lib.run(
        searcher,
        problem,
        step.cluster,
        start=step.default,
        profile=problem_lib.Predictor(step, problem),
      )
      configuration.update(state.best)
      num_trials += state.num_trials
    return configuration, num_trials

  return search


def _as_the_product(
  step: step_lib.Step,
) -> tuple[problem_lib.Configuration, int]:
  found = settings_lib.search(step)
  return found.configuration, found.num_trials


def _timed(
  search: _Search, step: step_lib.Step
) -> tuple[problem_lib.Configuration, int, float]:
  """Searches once, and says how many seconds of the processor that took."""
  # A step remembers what it predicted; a search begins without that.
  step = step_lib.Step(step.analysis, step.cluster)
  begin = time.process_time()
  configuration, num_trials = search(step)
  return configuration, num_trials, time.process_time() - begin


def _row(name: str, search: _Search, step: step_lib.Step) -> table_lib.Row:
  configuration, num_trials, seconds = _timed(search, step)
  for _ in range(_NUM_REPEATS - 1):
    if seconds > _LONG_S:
      break
    seconds = min(seconds, _timed(search, step)[-1])
  default_us = step.timeline(step.default).step_time_us
  tuned_us = step.timeline(configuration).step_time_us
  return {
    "searcher": name,
    "collectives": len(step.analysis.collectives),
    "keys": len(step.keys),
    "kernels": len(step.analysis.kernels),
    "largest": max(len(p.keys) for p in problem_lib.problems(step)),
    "evaluations": num_trials,
    "per_key": num_trials / len(step.keys),
    "seconds": seconds,
    "gain": 1 - tuned_us / default_us,
  }


def _exponent(rows: Sequence[table_lib.Row], field: str) -> float:
  """Of the power law through these points, by least squares of logarithms."""
  points = [(float(row["collectives"]), float(row[field])) for row in rows]
  x, y = np.log(np.array(points)).T
  return float(np.polyfit(x, y, 1)[0])
