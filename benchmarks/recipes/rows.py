# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Rows: what each recipe, and a search with and without them, come to.

All times are of XLA's options alone (`options_alone.py`), and one of options
beside a cap on the channels of all collectives.
"""

from __future__ import annotations

from collections.abc import Sequence
import functools
import statistics
import time
from typing import Any

from benchmarks import table as table_lib
from benchmarks.recipes import options_alone
from lagom_xla.compile import target as target_lib
from lagom_xla.flags import recipes as recipes_lib
from lagom_xla.search.xla import candidates as candidates_lib

# What plans are held to.
WANTED_OVER_BEST_RECIPE = 1.03

# The recipes, by name: a column each.
RECIPES = tuple(dict.fromkeys(recipe.name for recipe in recipes_lib.RECIPES))

COLUMNS = (
  table_lib.Column(field="module", heading="module"),
  table_lib.Column(field="cluster", heading="cluster"),
  table_lib.Column(field="default_ms", heading="default ms", form=".2f"),
  *(table_lib.Column(field=n, heading=n, form=".2f") for n in RECIPES),
  table_lib.Column(field="from_default_ms", heading="from default", form=".2f"),
  table_lib.Column(field="tuned_ms", heading="tuned", form=".2f"),
  table_lib.Column(field="over_recipe", heading="over recipe", form=".3f"),
  table_lib.Column(field="capped_ms", heading="capped", form=".2f"),
  table_lib.Column(field="capped_over_recipe", heading="over", form=".3f"),
  table_lib.Column(field="lower_bound_ms", heading="bound", form=".2f"),
  table_lib.Column(field="compiled", heading="compiled", form="d"),
  table_lib.Column(field="seconds", heading="seconds", form=".0f"),
  table_lib.Column(field="options", heading="options kept"),
  table_lib.Column(field="failure", heading=""),
)


def row(
  target: target_lib.Target,
  progress: candidates_lib.Progress = lambda _: None,
) -> dict[str, Any]:
  """Searches a target from the default alone, with all arms, and capped.

  Raises:
    CompileError: the target does not compile with the defaults.
  """
  begin = time.perf_counter()
  search = functools.partial(options_alone.search, target, progress=progress)
  from_default, found = search(arms=()), search()
  seconds = time.perf_counter() - begin
  capped = search(may_cap=True)
  recipes = options_alone.recipes_ms(found)
  best_recipe_ms = min(recipes.values(), default=None)
  tuned_ms = _ms(found.best)
  capped_ms = candidates_lib.tuned_us(capped.best) / 1e3
  return {
    "default_ms": _ms(found.default),
    **recipes,
    "from_default_ms": _ms(from_default.best),
    "tuned_ms": tuned_ms,
    "over_recipe": best_recipe_ms and best_recipe_ms / tuned_ms,
    "capped_ms": capped_ms,
    "capped_over_recipe": best_recipe_ms and best_recipe_ms / capped_ms,
    "lower_bound_ms": candidates_lib.lower_bound_us((found.default, found.best))
    / 1e3,
    "compiled": len(found.scheduled),
    "seconds": seconds,
    "options": " ".join(
      f"{name.removeprefix('xla_gpu_')}={value}"
      for name, value in found.best.config.options.items()
    ),
  }


def _ms(candidate: candidates_lib.Candidate) -> float:
  return candidate.under_nccl_defaults.step_time_us / 1e3


def table(rows: Sequence[table_lib.Row]) -> table_lib.Table:
  """The table of these rows, with what it is held to."""
  return table_lib.Table(
    name="recipes",
    title="Plans beside published recipes (predicted ms per step)",
    columns=COLUMNS,
    rows=rows,
    targets=targets(rows),
    notes=(
      "Options alone, under NCCL's own choices. From default: what a search"
      " keeps that knows no recipes. Capped: options and NCCL_MAX_CTAS.",
    ),
  )


def recipes_ms(row: table_lib.Row) -> dict[str, float]:
  """What each recipe that compiles comes to."""
  return {n: row[n] for n in RECIPES if row.get(n) is not None}


def as_json(row: table_lib.Row) -> dict[str, Any]:
  """The row with its recipes by name."""
  others = {name: value for name, value in row.items() if name not in RECIPES}
  return {**others, "recipes": recipes_ms(row)}


def targets(
  rows: Sequence[table_lib.Row],
) -> tuple[table_lib.Target, ...]:
  """Never behind a recipe, and ahead of the best by the median."""
  compared = [row for row in rows if recipes_ms(row)]
  if not compared:
    return ()
  behind = [
    f"{row['module']} on {row['cluster']}"
    for row in compared
    if row["tuned_ms"] > min([row["default_ms"], *recipes_ms(row).values()])
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
      found=f"{median:.3f}x{_with_cap(compared)}",
      is_met=median >= WANTED_OVER_BEST_RECIPE,
    ),
  )


def _with_cap(rows: Sequence[table_lib.Row]) -> str:
  """What options and a cap come to, by rows from after there was its column."""
  capped = [c for row in rows if (c := row.get("capped_over_recipe"))]
  if not capped:
    return ""
  return (
    f"; {statistics.median(capped):.3f}x with NCCL_MAX_CTAS beside them, in"
    f" {len(capped)} of {len(rows)} rows"
  )
