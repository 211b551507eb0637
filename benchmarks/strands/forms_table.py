# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""The table of train steps under flags only, strands, slices, and both."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
import statistics
from typing import Any

from benchmarks import table as table_lib
from benchmarks.strands import arms as arms_lib
from benchmarks.strands import exposed_table
from benchmarks.strands import module as module_lib
from benchmarks.strands import progress
from lagom_xla.costs import lower_bound
from lagom_xla.search.xla import candidates as candidates_lib

NAME = "forms"

# What `--format=json` has of a row.
FIELDS = (
  "module",
  "cluster",
  "default_ms",
  "flags_only_ms",
  "strands_ms",
  "slices_ms",
  "best_ms",
  "lower_bound_ms",
  "exposed_ms",
  "slowdown_ms",
  "peak_gb",
)

_GOAL = 1.10
_GOAL_EXPOSED = 0.03


def _column(field: str, heading: str, form: str = ".1f") -> table_lib.Column:
  return table_lib.Column(field=field, heading=heading, form=form)


_COLUMNS = (
  table_lib.Column(field="module", heading="module"),
  table_lib.Column(field="cluster", heading="cluster"),
  _column("default_ms", "default ms"),
  _column("flags_only_ms", "flags only"),
  _column("strands_ms", "strands"),
  _column("slices_ms", "slices"),
  _column("both_ms", "both"),
  _column("best_ms", "best"),
  _column("speedup", "over flags", ".3f"),
  _column("lower_bound_ms", "bound"),
  _column("flags_only_exposed_ms", "exposed, flags"),
  _column("exposed_ms", "exposed, best"),
  _column("flags_only_slowdown_ms", "contention, flags"),
  _column("slowdown_ms", "contention, best"),
  _column("flags_only_peak_gb", "peak GB, flags"),
  _column("peak_gb", "peak GB, best"),
  table_lib.Column(field="form", heading="best form"),
)


def tables(modules: Iterable[module_lib.Module]) -> list[table_lib.Table]:
  """The table, and that of what is exposed in the best forms."""
  rows, exposed = [], []
  for module in modules:
    progress.say(f"{module.name} on {module.cluster_name}")
    arms = arms_lib.of_module(module)
    rows.append(row(module, arms))
    exposed += exposed_table.rows(module, arms)
    progress.say(f"  {_in_short(rows[-1])}")
  return [table_of(rows), exposed_table.table_of(exposed)]


def _in_short(row: table_lib.Row) -> str:
  """A row before its table is there, which takes long."""
  return ", ".join(
    f"{column.field} {column.cell(row)}"
    for column in _COLUMNS[2:]
    if row[column.field] is not None
  )


def table_of(rows: Sequence[table_lib.Row]) -> table_lib.Table:
  """The table of these rows."""
  return table_lib.Table(
    name=NAME,
    title="Strands and slices: predicted step times",
    columns=_COLUMNS,
    rows=rows,
    targets=_targets(rows),
    notes=(
      "Predicted step times in ms. Default: XLA's and NCCL's defaults. Flags"
      " only: what a launcher can set. Strands, slices and both: the shortest"
      " step of that form in one search by the tool. Best: what it keeps, which"
      " has to be surely shorter and fit the GPU; combine groups and scheduler"
      " feedback are part of it.",
      "Peak memory is XLA's buffer assignment of the full compile.",
      "The bound is that of the best schedule.",
    ),
  )


def row(module: module_lib.Module, arms: arms_lib.Arms) -> dict[str, Any]:
  """What became of a train step."""
  flags_only_us = arms.flags_only.tuned.step_time_us
  best_us = arms.best.tuned.step_time_us
  return {
    "module": module.name,
    "cluster": module.cluster_name,
    "default_ms": arms.default.step_time_us / 1e3,
    "flags_only_ms": flags_only_us / 1e3,
    "strands_ms": _ms(arms.strands),
    "slices_ms": _ms(arms.slices),
    "both_ms": _ms(arms.both),
    "best_ms": best_us / 1e3,
    "speedup": flags_only_us / best_us,
    "lower_bound_ms": lower_bound.us(arms.best.candidate.step) / 1e3,
    **_lost("flags_only_", arms.flags_only),
    **_lost("", arms.best),
    "form": arms.best.name,
  }


def _ms(candidate: candidates_lib.Candidate | None) -> float | None:
  return None if candidate is None else candidate.tuned.step_time_us / 1e3


def _lost(prefix: str, arm: arms_lib.Arm) -> dict[str, Any]:
  peak_gb = None if arm.peak_bytes is None else arm.peak_bytes / 1e9
  return {
    f"{prefix}exposed_ms": arm.tuned.total_exposed_us / 1e3,
    f"{prefix}slowdown_ms": arm.tuned.total_slowdown_us / 1e3,
    f"{prefix}peak_gb": peak_gb,
  }


def _targets(rows: Sequence[table_lib.Row]) -> Sequence[table_lib.Target]:
  speedups = [r["speedup"] for r in rows]
  parallel = [r["speedup"] for r in rows if "-tp-" in r["module"]]
  exposed = [r["exposed_ms"] / r["best_ms"] for r in rows]
  if not parallel:
    return ()
  return (
    table_lib.Target(
      wanted=f"at least {_GOAL:.2f}x over flags only on the TP modules, by the"
      " median",
      found=f"{statistics.median(parallel):.3f}x, from {min(parallel):.3f}x to"
      f" {max(parallel):.3f}x",
      is_met=statistics.median(parallel) >= _GOAL,
    ),
    table_lib.Target(
      wanted="never below 1.00x",
      found=f"{min(speedups):.3f}x at least",
      is_met=min(speedups) >= 1.0,
    ),
    table_lib.Target(
      wanted=f"at most {_GOAL_EXPOSED:.0%} of the step exposed",
      found=f"{min(exposed):.1%} to {max(exposed):.1%}, in the median"
      f" {statistics.median(exposed):.1%}",
      is_met=max(exposed) <= _GOAL_EXPOSED,
    ),
  )
