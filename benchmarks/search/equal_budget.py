# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Compares searchers after equal numbers of evaluations.

One evaluation is one profile of the whole step, with all keys changed at once.
Every searcher starts with a profile of NCCL's own choices, and searches the
independent parts of a step (its problems) at the same time. It is judged by the
best configuration so far. Lagom's and AutoCCL's searches see each collective,
TPE only the time of each problem.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
import dataclasses
from typing import Any

import numpy as np

from benchmarks import table as table_lib
from benchmarks.searchers import autoccl
from benchmarks.searchers import balance
from benchmarks.searchers import lagom
from benchmarks.searchers import lockstep
from benchmarks.searchers import searcher as searcher_lib
from benchmarks.searchers import tpe
from lagom_xla.costs import step as step_lib
from lagom_xla.search.nccl import problem as problem_lib

# Lagom's search as in its paper, and one that uses more of each trial.
_COMPARED = {"lagom": lagom.Lagom(), "balance": balance.Balance()}
OURS = tuple(_COMPARED)
# Searchers whose result depends on the seed.
_RIVALS = {"autoccl": autoccl.AutoCCL(), "tpe": tpe.TPE()}
_SEARCHERS: Mapping[str, searcher_lib.Searcher] = {**_COMPARED, **_RIVALS}

BUDGETS = (10, 30, 100, 300)
NUM_SEEDS = 3
_FEWEST_MODULES = 10
# Step times this close to each other are equal: a hundredth of a percent.
_SAME = 1e-4

_COLUMNS = (
  *table_lib.columns(
    budget="d", searcher="", median=".3%", lower=".3%", upper=".3%",
    worst=".2%", used=".0f",
  ),
  *(
    table_lib.Column(f"{ours} {how}")
    for ours in OURS
    for how in ("ahead", "equal", "behind")
  ),
)  # fmt: skip


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Race:
  """The searches of one step: a history for each seed of each searcher."""

  histories: Mapping[str, Sequence[lockstep.History]]

  def excess(self, name: str, budget: int) -> float:
    """Median of the best time after a budget over the best of all, less one."""
    best_us = min(h.best_us[-1] for found in self.histories.values()
                  for h in found)  # fmt: skip
    found_us = [h.best_us_after(budget) for h in self.histories[name]]
    return float(np.median(found_us)) / best_us - 1


def race(
  step: step_lib.Step, *, max_trials: int = max(BUDGETS), num_seeds: int
) -> Race:
  """Runs all searchers on a step."""
  num_problems = len(problem_lib.problems(step))
  return Race(
    histories={
      name: [
        lockstep.run_step(
          searcher, step, max_trials=max_trials, seed=seed * num_problems
        )
        for seed in range(num_seeds if name in _RIVALS else 1)
      ]
      for name, searcher in _SEARCHERS.items()
    }
  )


def table(
  races: Sequence[Race],
  *,
  budgets: Sequence[int] = BUDGETS,
  num_seeds: int = NUM_SEEDS,
) -> table_lib.Table:
  """The table of the races of several steps."""
  rows = [
    _row(races, name, budget) for budget in budgets for name in _SEARCHERS
  ]
  return table_lib.Table(
    name="equal_budget",
    title=f"Best so far at equal budgets, over {len(races)} modules",
    columns=_COLUMNS,
    rows=rows,
    targets=[
      _target(len(races), [r for r in rows if r["budget"] == budget], ours)
      for ours in OURS
      for budget in budgets
    ],
    notes=(
      "Step time over the best of any search in the module, less one; median"
      " and quartiles over modules. Each is the median over"
      f" {num_seeds} seeds for random searchers.",
      f"Ahead, equal and behind count modules; equal is within {_SAME:.2%}.",
      "AutoCCL is judged by the best step that it profiled, which is better"
      " than its own result.",
    ),
  )


def _row(races: Sequence[Race], name: str, budget: int) -> dict[str, Any]:
  excess = np.array([race.excess(name, budget) for race in races])
  used = [min(h.num_trials, budget) for r in races for h in r.histories[name]]
  row: dict[str, Any] = {
    "budget": budget,
    "searcher": name,
    "median": float(np.median(excess)),
    "lower": float(np.quantile(excess, 0.25)),
    "upper": float(np.quantile(excess, 0.75)),
    "worst": float(excess.max()),
    "used": float(np.median(used)),
  }
  for ours in OURS:
    if ours != name:
      lead = excess - [race.excess(ours, budget) for race in races]
      row[f"{ours} ahead"] = int(np.sum(lead > _SAME))
      row[f"{ours} equal"] = int(np.sum(np.abs(lead) <= _SAME))
      row[f"{ours} behind"] = int(np.sum(lead < -_SAME))
  return row


def _target(
  num_modules: int, rows: Sequence[Mapping[str, Any]], ours: str
) -> table_lib.Target:
  """The target for the rows of one budget."""
  medians = {row["searcher"]: row["median"] for row in rows}
  rivals = {name: medians[name] for name in _RIVALS}
  against = ", ".join(f"{name} {median:.3%}" for name, median in rivals.items())
  return table_lib.Target(
    wanted=f"{ours} ahead of each rival by the median after"
    f" {rows[0]['budget']} evaluations, over {_FEWEST_MODULES} modules or more",
    found=f"{medians[ours]:.3%} against {against} over {num_modules}",
    is_met=num_modules >= _FEWEST_MODULES
    and all(medians[ours] < median for median in rivals.values()),
  )
