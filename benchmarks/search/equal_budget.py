# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Searchers at equal budgets: the best after so many evaluations of each.

One evaluation is one profile of the whole step, with all keys changed at once.
Every searcher starts with a profile of NCCL's own choices, and what counts is
the best configuration so far.

Lagom's and AutoCCL's searches see what each collective did; they search the
parts of a step that do not touch each other (its problems) side by side. Random
search and TPE know nothing of collectives: they see one figure, the time of the
step. As that is most of why they lose, they are also run part by part, with all
that our searchers see except the times of single collectives.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
import concurrent.futures
import dataclasses
import multiprocessing
import os
import pathlib
from typing import Any

import numpy as np

from benchmarks import table as table_lib
from benchmarks.search import modules as modules_lib
from benchmarks.searchers import autoccl
from benchmarks.searchers import lockstep
from benchmarks.searchers import random_search
from benchmarks.searchers import tpe
from lagom_xla.costs import step as step_lib
from lagom_xla.search import nccl
from lagom_xla.search.nccl import problem as problem_lib
from lagom_xla.search.nccl import searcher as searcher_lib

# Lagom's search as in its paper, and ours.
OURS = nccl.SEARCHERS

# Those that know nothing of collectives: they see one time, the whole step's.
BLIND: Mapping[str, searcher_lib.Searcher] = {
  "random": random_search.RandomSearch(),
  "tpe": tpe.TPE(),
}

# Known searchers. AutoCCL sees every collective's time, as Lagom does.
OTHERS: Mapping[str, searcher_lib.Searcher] = {
  "autoccl": autoccl.AutoCCL(),
  **BLIND,
}

# Those whose result depends on the seed.
DRAWING = frozenset(OTHERS)


_BY_PART = " by part"
# All but ours.
RIVALS = (
  *OTHERS,
  *(name + _BY_PART for name in BLIND),
)


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Races:
  """All searches of one module.

  Attributes:
    module: its name.
    num_keys: tuning keys.
    largest: keys of its largest problem.
    default_us: the step time under NCCL's own choices.
    histories: by searcher, one per seed.
  """

  module: str
  num_keys: int
  largest: int
  default_us: float
  histories: Mapping[str, Sequence[lockstep.History]]

  @property
  def best_us(self) -> float:
    """The best step time that any search found at its end."""
    return min(
      history.best_us[-1]
      for histories in self.histories.values()
      for history in histories
    )

  def excess(self, name: str, budget: int) -> list[float]:
    """Of each seed: the best after a budget over the best of all, less one."""
    return [
      history.best_us_after(budget) / self.best_us - 1
      for history in self.histories[name]
    ]


def race(
  module: str, step: step_lib.Step, *, max_trials: int, num_seeds: int
) -> Races:
  """Lets all searchers search a module."""
  problems = problem_lib.problems(step)
  histories: dict[str, list[lockstep.History]] = {}

  def enter(name: str, run: Callable[[int], lockstep.History]) -> None:
    modules_lib.say(f"searching {module}: {name}")
    draws = name.removesuffix(_BY_PART) in DRAWING
    seeds = range(num_seeds if draws else 1)
    histories[name] = [run(seed * len(problems)) for seed in seeds]

  for name, searcher in {**OURS, **OTHERS}.items():
    blind = name in BLIND
    enter(
      name + _BY_PART if blind else name,
      lambda seed, searcher=searcher: lockstep.run_step(
        searcher, step, max_trials=max_trials, seed=seed
      ),
    )
  for name, searcher in BLIND.items():
    enter(
      name,
      lambda seed, searcher=searcher: _run_blind(
        searcher, step, problems, max_trials=max_trials, seed=seed
      ),
    )
  return Races(
    module=module,
    num_keys=len(step.keys),
    largest=max(len(problem.keys) for problem in problems),
    default_us=step.timeline(step.default).step_time_us,
    histories=histories,
  )


def _run_blind(
  searcher: searcher_lib.Searcher,
  step: step_lib.Step,
  problems: Sequence[problem_lib.Problem],
  *,
  max_trials: int,
  seed: int,
) -> lockstep.History:
  """Searches a step as a single problem."""
  whole = problem_lib.Problem(
    keys=step.keys,
    programs=tuple(p for one in problems for p in one.programs),
    program_keys=tuple(k for one in problems for k in one.program_keys),
  )
  profile = problem_lib.Predictor(step, whole)
  # Programs leave out what runs beside no collective.
  rest_us = (
    step.timeline(step.default).step_time_us - profile(step.default).total_us
  )
  state = searcher.init(whole, step.cluster, start=step.default, seed=seed)
  best_us: list[float] = []
  while len(best_us) < max_trials and not searcher.done(state):
    found = profile(searcher.ask(state))
    best_us.append(min([rest_us + found.total_us, *best_us[-1:]]))
    state = searcher.tell(state, found)
  return lockstep.History(
    configuration=searcher.best(state), best_us=tuple(best_us)
  )


NAME = "equal_budget"

BUDGETS = (10, 30, 100, 300)
NUM_SEEDS = 3
_FEWEST_MODULES = 10
# Steps this close to each other are equal: a hundredth of a percent.
_SAME = 1e-4

_SUMMARY = (
  table_lib.Column("budget", "d"),
  table_lib.Column("searcher"),
  table_lib.Column("median", ".3%"),
  table_lib.Column("lower", ".3%"),
  table_lib.Column("upper", ".3%"),
  table_lib.Column("worst", ".2%"),
  table_lib.Column("used", ".0f"),
  *(
    column
    for ours in OURS
    for column in (
      table_lib.Column(f"{ours} ahead"),
      table_lib.Column(f"{ours} equal"),
      table_lib.Column(f"{ours} behind"),
    )
  ),
)
_DETAIL = (
  table_lib.Column("module"),
  table_lib.Column("keys", "d"),
  table_lib.Column("largest", "d"),
  table_lib.Column("default", ".2%"),
  table_lib.Column("budget", "d"),
  *(table_lib.Column(name) for name in (*OURS, *RIVALS)),
)


def tables(
  shelf: modules_lib.Shelf,
  modules: Iterable[modules_lib.Module],
  *,
  budgets: Sequence[int] = BUDGETS,
  num_seeds: int = NUM_SEEDS,
) -> list[table_lib.Table]:
  """The summary over all modules, and the figures of each."""
  races = [
    race(
      module.name,
      shelf.step(module),
      max_trials=max(budgets),
      num_seeds=num_seeds,
    )
    for module in shelf.available(modules)
  ]
  return tables_of(races, budgets=budgets, num_seeds=num_seeds)


def parallel_tables(
  shelf: modules_lib.Shelf, modules: Iterable[modules_lib.Module]
) -> list[table_lib.Table]:
  """The same, with a process per core; modules are found by their names."""
  names = [module.name for module in shelf.available(modules)]
  # JAX does not survive a fork.
  context = multiprocessing.get_context("spawn")
  with concurrent.futures.ProcessPoolExecutor(
    os.cpu_count(), mp_context=context
  ) as pool:
    races = list(pool.map(_race_by_name, names, [shelf.data] * len(names)))
  return tables_of(races, budgets=BUDGETS, num_seeds=NUM_SEEDS)


def _race_by_name(name: str, data: pathlib.Path | None) -> Races:
  step = modules_lib.Shelf(data).step(modules_lib.named(name))
  return race(name, step, max_trials=max(BUDGETS), num_seeds=NUM_SEEDS)


def tables_of(
  races: Sequence[Races], *, budgets: Sequence[int], num_seeds: int
) -> list[table_lib.Table]:
  """The tables of races that were run."""
  return [_summary(races, budgets, num_seeds), _detail(races, budgets)]


def _summary(
  races: Sequence[Races], budgets: Sequence[int], num_seeds: int
) -> table_lib.Table:
  rows = [
    _summary_row(races, name, budget)
    for budget in budgets
    for name in (*OURS, *RIVALS)
  ]
  return table_lib.Table(
    name=NAME,
    title=f"Best so far at equal budgets, over {len(races)} modules",
    columns=_SUMMARY,
    rows=rows,
    targets=[
      _target(races, rows, ours, budget) for ours in OURS for budget in budgets
    ],
    notes=(
      "Step time over the best that any search found in the module, less one;"
      " median and quartiles over modules, of each the median over"
      f" {num_seeds} seeds of the searchers that draw.",
      f"Ahead, equal and behind count modules; equal is within {_SAME:.2%}.",
      'Random search and TPE see the time of the whole step alone; "by part"'
      " they search the parts of a step that do not touch each other side by"
      " side, as all others do.",
      "AutoCCL is judged by the best step that it happened to profile, which"
      " is better than what it would keep.",
    ),
  )


def _summary_row(
  races: Sequence[Races], name: str, budget: int
) -> table_lib.Row:
  medians = [float(np.median(r.excess(name, budget))) for r in races]
  row: dict[str, Any] = {
    "budget": budget,
    "searcher": name,
    "median": float(np.median(medians)),
    "lower": float(np.quantile(medians, 0.25)),
    "upper": float(np.quantile(medians, 0.75)),
    "worst": max(medians),
    "used": float(
      np.median(
        [
          min(history.num_trials, budget)
          for r in races
          for history in r.histories[name]
        ]
      )
    ),
  }
  for ours in OURS:
    if ours == name:
      continue
    lead = [
      float(np.median(r.excess(name, budget)))
      - float(np.median(r.excess(ours, budget)))
      for r in races
    ]
    row[f"{ours} ahead"] = sum(us > _SAME for us in lead)
    row[f"{ours} equal"] = sum(abs(us) <= _SAME for us in lead)
    row[f"{ours} behind"] = sum(us < -_SAME for us in lead)
  return row


def _target(
  races: Sequence[Races],
  rows: Sequence[table_lib.Row],
  ours: str,
  budget: int,
) -> table_lib.Target:
  medians = {
    str(row["searcher"]): float(row["median"])
    for row in rows
    if row["budget"] == budget
  }
  rivals = {n: m for n, m in medians.items() if n in RIVALS}
  return table_lib.Target(
    wanted=(
      f"{ours} ahead of each rival by the median after {budget} evaluations,"
      f" over {_FEWEST_MODULES} modules or more"
    ),
    found=f"{medians[ours]:.3%} against "
    + ", ".join(f"{name} {median:.3%}" for name, median in rivals.items())
    + f" over {len(races)}",
    is_met=len(races) >= _FEWEST_MODULES
    and all(medians[ours] < median for median in rivals.values()),
  )


def _detail(races: Sequence[Races], budgets: Sequence[int]) -> table_lib.Table:
  rows = []
  for r in races:
    for budget in budgets:
      row: dict[str, Any] = {
        "module": r.module,
        "keys": r.num_keys,
        "largest": r.largest,
        "default": r.default_us / r.best_us - 1,
        "budget": budget,
      }
      for name in (*OURS, *RIVALS):
        row[name] = _spread(r.excess(name, budget))
      rows.append(row)
  return table_lib.Table(
    name=f"{NAME}_by_module",
    title="Best so far at equal budgets, by module",
    columns=_DETAIL,
    rows=rows,
    notes=(
      "Step time over the best that any search found, less one; with quartiles"
      " where a searcher draws.",
    ),
  )


def _spread(values: Sequence[float]) -> str:
  """The median, and the quartiles where there is more than one value."""
  median = f"{np.median(values):.2%}"
  if len(values) == 1:
    return median
  lower, upper = np.quantile(values, (0.25, 0.75))
  return f"{median} ({lower:.2%} to {upper:.2%})"
