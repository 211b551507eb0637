# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Compares plans with published recipes by predicted step times, without a GPU.

    python -m benchmarks.recipes [--data FOLDER] [--only=MODULE,...]
        [--gpus=h100,b200,a100_80] [--format=text|csv] [--csv=FOLDER]

Has a row for each step and kind of GPU: XLA's default, each recipe, the result
of a search that begins with the default only, and of one that begins with all
recipes. With --csv, each row is added to the table in that folder as soon as it
is known, so you can stop a run at any time and continue it later. Without
--data, its modules are named on stderr, like the progress, and skipped.

All times are for XLA's options alone, for users who only set XLA_FLAGS. Every
candidate is judged as `lagom-xla tune --flags-only` does, with XLA's cap on
channels if it surely gains, or under NCCL's own choices, like the recipes.
Without this flag, a plan may have other options, which suit the settings of a
tuner plugin. The cap changes no schedule; times without it are also shown.
"""

from __future__ import annotations

from collections.abc import Sequence
import functools
import statistics
import sys
import time
from typing import Any

from benchmarks import table as table_lib
from benchmarks.recipes import cases as cases_lib
from benchmarks.workloads import cases
from lagom_xla import errors
from lagom_xla.cli import options
from lagom_xla.compile import target as target_lib
from lagom_xla.costs import lower_bound
from lagom_xla.costs import settings as settings_lib
from lagom_xla.flags import nccl_channels
from lagom_xla.flags import recipes as recipes_lib
from lagom_xla.search.nccl import channel_cap
from lagom_xla.search.xla import arms as arms_lib
from lagom_xla.search.xla import candidates as candidates_lib
from lagom_xla.search.xla import evaluation
from lagom_xla.search.xla import joint


def _searched(
  target: target_lib.Target,
  *,
  arms: Sequence[arms_lib.Arm] | None = None,
  may_cap: bool = True,
  progress: candidates_lib.Progress = lambda _: None,
) -> candidates_lib.Search:
  """Searches the options of a target, starting from these arms or all known."""
  limit = settings_lib.by_option if may_cap else None
  by_cap = channel_cap.WithoutPlugin(limit=limit)
  found = joint.search(
    target, without_plugin=by_cap, arms=arms, progress=progress
  )
  # Judges the result with a compile from the beginning, as `tune` does.
  while True:
    best = found.best
    judged = evaluation.from_the_beginning(
      best, target=target, without_plugin=by_cap
    )
    found = found.judged_again(best, judged)
    if found.best is judged:
      return found


def _options(candidate: candidates_lib.Candidate) -> dict[str, object]:
  """The options of a --flags-only plan for a candidate."""
  cap = channel_cap.surest(candidate.runs, settings_lib.by_option)
  found: dict[str, object] = dict(candidate.config.options)
  if cap.max_channels is not None:
    found[nccl_channels.OPTION] = cap.max_channels
  return found


# The target: speedup of plans over the best recipe.
_OVER_BEST_RECIPE = 1.03

# Names of the recipes, with a column each.
_RECIPES = tuple(dict.fromkeys(recipe.name for recipe in recipes_lib.RECIPES))

_COLUMNS = (
  *table_lib.columns(module="", cluster="", default_ms=".2f"),
  *(table_lib.Column(name, ".2f") for name in _RECIPES),
  *table_lib.columns(
    from_default_ms=".2f", uncapped_ms=".2f", tuned_ms=".2f",
    over_recipe=".3f", lower_bound_ms=".2f", compiled="d", seconds=".0f",
    options="", failure="",
  ),
)  # fmt: skip


def searched(
  target: target_lib.Target,
  progress: candidates_lib.Progress = lambda _: None,
) -> dict[str, Any]:
  """Searches a target from the default alone, with all arms, and with caps.

  Raises:
    CompileError: the target does not compile with the defaults.
  """
  begin = time.perf_counter()
  search = functools.partial(_searched, target, progress=progress)
  from_default, found = search(arms=(), may_cap=False), search()
  seconds = time.perf_counter() - begin
  uncapped = search(may_cap=False)
  published = {
    arm.name: found.found(arm.config) for arm in found.arms if arm.source
  }
  recipes = {
    name: _ms(candidate)
    for name, candidate in published.items()
    if isinstance(candidate, candidates_lib.Candidate)
  }
  best_recipe_ms = min(recipes.values(), default=None)
  tuned_ms = candidates_lib.tuned_us(found.best) / 1e3
  return {
    "default_ms": _ms(found.default),
    **recipes,
    "from_default_ms": _ms(from_default.best),
    "uncapped_ms": _ms(uncapped.best),
    "tuned_ms": tuned_ms,
    "over_recipe": best_recipe_ms and best_recipe_ms / tuned_ms,
    "lower_bound_ms": lower_bound.us(found.default.runs, found.best.runs) / 1e3,
    "compiled": len(found.scheduled),
    "seconds": seconds,
    "options": " ".join(
      f"{name.removeprefix('xla_gpu_')}={value}"
      for name, value in _options(found.best).items()
    ),
  }


def _ms(candidate: candidates_lib.Candidate) -> float:
  return candidate.under_nccl_defaults.step_time_us / 1e3


def table(rows: Sequence[table_lib.Row]) -> table_lib.Table:
  """The table of these rows, with its targets."""
  return table_lib.Table(
    name="recipes",
    title="Plans and published recipes (predicted ms per step)",
    columns=_COLUMNS,
    rows=rows,
    targets=_targets(rows),
    notes=(
      "Options alone. From default: the result of a search without recipes and"
      " without a cap on channels; uncapped: with recipes, without a cap. Rows"
      " without this figure did not try a cap.",
    ),
  )


def _recipes_ms(row: table_lib.Row) -> list[float]:
  """Times of the recipes that compile."""
  return [row[n] for n in _RECIPES if row.get(n) is not None]


def _targets(rows: Sequence[table_lib.Row]) -> tuple[table_lib.Target, ...]:
  """Targets: never slower than a recipe, and faster than the best by median."""
  compared = [row for row in rows if _recipes_ms(row)]
  if not compared:
    return ()
  behind = [
    f"{row['module']} on {row['cluster']}"
    for row in compared
    if row["tuned_ms"] > min([row["default_ms"], *_recipes_ms(row)])
  ]
  median = statistics.median(row["over_recipe"] for row in compared)
  num_capped = sum(row.get("uncapped_ms") is not None for row in compared)
  return (
    table_lib.Target(
      wanted="behind no recipe and not behind the default",
      found=f"behind on {', '.join(behind) or 'none'} of {len(compared)}",
      is_met=not behind,
    ),
    table_lib.Target(
      wanted=f"at least {_OVER_BEST_RECIPE}x over the best recipe by the"
      " median",
      found=f"{median:.3f}x; a cap on channels was looked for in"
      f" {num_capped} of {len(compared)} rows",
      is_met=median >= _OVER_BEST_RECIPE,
    ),
  )


def main(argv: Sequence[str] | None = None) -> None:
  """Runs the command."""
  parser = table_lib.parser("benchmarks.recipes", __doc__)
  parser.add_argument("--data", type=table_lib.folder, metavar="FOLDER")
  parser.add_argument("--only", default="", metavar="MODULE,...")
  parser.add_argument("--gpus", type=table_lib.names, default=cases_lib.GPUS)
  options.add_compiling(parser)
  arguments = parser.parse_args(argv)
  known = dict.fromkeys(case.module for case in cases_lib.all_cases())
  only = table_lib.chosen(arguments.only, known, "module")
  chosen = [
    case
    for gpu in arguments.gpus
    for case in cases_lib.cases(gpu)
    if case.module in only
  ]
  rows: list[table_lib.Row] = []
  try:
    with options.workers(arguments) as workers:
      for case in cases.available(chosen, arguments.data):
        table_lib.say(f"{case.module} on {case.cluster}")
        row: dict[str, Any] = {"module": case.module, "cluster": case.cluster}
        try:
          target = case.load(arguments.data)
          if workers is not None:
            target = target.with_workers(workers)
          row |= searched(target, lambda what: table_lib.say(f"  {what}"))
        except errors.LagomError as error:
          row["failure"] = str(error)
        rows.append(row)
        if arguments.csv is not None:
          names = [(c.module, c.cluster) for c in cases_lib.all_cases()]
          fields = ("module", "cluster")
          table_lib.keep(table, rows, arguments.csv, names, fields=fields)
  except errors.LagomError as error:
    sys.exit(f"recipes: {error}")
  table_lib.show([table(rows)], arguments.format)


if __name__ == "__main__":
  main()
