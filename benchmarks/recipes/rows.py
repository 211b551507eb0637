# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Rows: what each recipe, and a search with and without them, come to.

All times are of XLA's options alone: under NCCL's own choices, as a launcher
has them that sets XLA_FLAGS and no more. Only the options are searched.
"""

from __future__ import annotations

from collections.abc import Sequence
import functools
import pathlib
import statistics
import time
from typing import Any

from benchmarks import table as table_lib
from benchmarks.recipes import cases as cases_lib
from lagom_xla.compile import config as config_lib
from lagom_xla.compile import target as target_lib
from lagom_xla.costs import lower_bound
from lagom_xla.search import nccl
from lagom_xla.search.xla import arms as arms_lib
from lagom_xla.search.xla import candidates as candidates_lib
from lagom_xla.search.xla import options
from lagom_xla.search.xla import starts

# What plans are held to.
WANTED_OVER_BEST_RECIPE = 1.03

COLUMNS = (
  table_lib.Column(field="module", heading="module"),
  table_lib.Column(field="cluster", heading="cluster"),
  table_lib.Column(field="default_ms", heading="default ms", form=",.2f"),
  table_lib.Column(field="best_recipe", heading="best recipe"),
  table_lib.Column(field="best_recipe_ms", heading="its ms", form=",.2f"),
  table_lib.Column(
    field="from_default_ms", heading="from default", form=",.2f"
  ),
  table_lib.Column(field="tuned_ms", heading="tuned", form=",.2f"),
  table_lib.Column(field="over_recipe", heading="over recipe", form=".3f"),
  table_lib.Column(field="lower_bound_ms", heading="bound", form=",.2f"),
  table_lib.Column(field="compiled", heading="compiled", form="d"),
  table_lib.Column(field="seconds", heading="seconds", form=".0f"),
  table_lib.Column(field="failure", heading=""),
)


def by_name(module: str, gpu: str, data: pathlib.Path | None) -> dict[str, Any]:
  """The row of a case, found by its name, as another process asks for it."""
  (case,) = [c for c in cases_lib.cases(gpu) if c.module == module]
  return row(case.load(data))


def row(target: target_lib.Target) -> dict[str, Any]:
  """Searches a target with the default alone, then with all arms."""
  begin = time.perf_counter()
  searcher = nccl.SEARCHERS[nccl.DEFAULT_SEARCHER]
  default = candidates_lib.evaluate_or_raise(
    config_lib.DEFAULT, target=target, searcher=searcher
  )
  evaluate = functools.partial(
    candidates_lib.evaluate, target=target, searcher=searcher, default=default
  )
  from_default = options.search(
    candidates_lib.Search(default=default), evaluate
  )
  arms = arms_lib.known(target.cluster)
  found = starts.search(from_default, evaluate, arms)
  seconds = time.perf_counter() - begin
  recipes = {
    arm.name: _ms(candidate)
    for arm in arms
    if arm.source
    and isinstance(
      candidate := found.found(arm.config), candidates_lib.Candidate
    )
  }
  best = min(recipes, key=recipes.__getitem__, default=None)
  tuned_ms = _ms(found.best)
  return {
    "cluster": target.cluster.name,
    "default_ms": _ms(default),
    "recipes": recipes,
    "from_default_ms": _ms(from_default.best),
    "tuned_ms": tuned_ms,
    "tuned_with_nccl_ms": found.best.tuned.step_time_us / 1e3,
    "lower_bound_ms": lower_bound.us(default.step) / 1e3,
    "seconds": seconds,
    "best_recipe": best,
    "best_recipe_ms": best and recipes[best],
    "over_recipe": recipes[best] / tuned_ms if best else None,
    "compiled": len(found.scheduled),
    "xla_options": dict(found.best.config.options),
  }


def _ms(candidate: candidates_lib.Candidate) -> float:
  return candidate.under_nccl_defaults.step_time_us / 1e3


def table(rows: Sequence[dict[str, Any]]) -> table_lib.Table:
  """The table of these rows, with what it is held to."""
  return table_lib.Table(
    name="recipes",
    title="Plans beside published recipes (predicted ms per step)",
    columns=COLUMNS,
    rows=rows,
    targets=targets(rows),
    notes=(
      "Options alone, under NCCL's own choices. From default: what a search"
      " keeps that knows no recipes.",
    ),
  )


def targets(
  rows: Sequence[dict[str, Any]],
) -> tuple[table_lib.Target, ...]:
  """Never behind a recipe, and ahead of the best by the median."""
  compared = [row for row in rows if row.get("recipes")]
  if not compared:
    return ()
  behind = [
    f"{row['module']} on {row['cluster']}"
    for row in compared
    if row["tuned_ms"] > min([row["default_ms"], *row["recipes"].values()])
  ]
  median = statistics.median(row["over_recipe"] for row in compared)
  return (
    table_lib.Target(
      wanted="behind no recipe and not behind the default",
      found=f"behind on {', '.join(behind) or 'none'} of {len(compared)}",
      is_met=not behind,
    ),
    table_lib.Target(
      wanted=f"at least {WANTED_OVER_BEST_RECIPE}x over the best recipe by the"
      " median",
      found=f"{median:.3f}x",
      is_met=median >= WANTED_OVER_BEST_RECIPE,
    ),
  )
