# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""The table of train steps under flags only, strands, slices, and both."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
import statistics
from typing import Any

from benchmarks import table as table_lib
from benchmarks.strands import arms as arms_lib
from benchmarks.strands import modules as modules_lib
from benchmarks.strands import progress
from lagom_xla.costs import lower_bound

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


def table(modules: Iterable[modules_lib.Module]) -> table_lib.Table:
  """Finds the arms of each train step."""
  rows = []
  for module in modules:
    progress.say(f"{module.name} on {module.cluster_name}")
    rows.append(row(module, arms_lib.of_module(module)))
    progress.say(f"  {_in_short(rows[-1])}")
  return table_of(rows)


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
      "Predicted step times in ms. Default: XLA's and NCCL's defaults. All"
      " others: the program in that form, with the XLA options and NCCL"
      " settings that the tool finds for it.",
      "Peak memory is XLA's buffer assignment of the full compile. A form that"
      " needs more than the GPU has is no best.",
      "The bound is that of the best form's schedule.",
    ),
  )


def row(module: modules_lib.Module, arms: arms_lib.Arms) -> dict[str, Any]:
  """What became of a train step."""
  flags, best = arms.as_written, arms.best
  return {
    "module": module.name,
    "cluster": module.cluster_name,
    "default_ms": flags.default.step_time_us / 1e3,
    "flags_only_ms": flags.tuned_us / 1e3,
    "strands_ms": _ms(arms.strands),
    "slices_ms": _ms(arms.slices),
    "both_ms": _ms(arms.both),
    "best_ms": best.tuned_us / 1e3,
    "speedup": flags.tuned_us / best.tuned_us,
    "lower_bound_ms": lower_bound.us(best.tuning.kept.step) / 1e3,
    **_lost("flags_only_", flags),
    **_lost("", best),
    "form": best.name,
  }


def _ms(variant: arms_lib.Variant | None) -> float | None:
  return variant.tuned_us / 1e3 if variant is not None else None


def _lost(prefix: str, variant: arms_lib.Variant) -> dict[str, Any]:
  after = variant.tuning.timeline_after
  peak_bytes = variant.tuning.peak_bytes_after
  return {
    f"{prefix}exposed_ms": after.total_exposed_us / 1e3,
    f"{prefix}slowdown_ms": after.total_slowdown_us / 1e3,
    f"{prefix}peak_gb": peak_bytes / 1e9 if peak_bytes is not None else None,
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
