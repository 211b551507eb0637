# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""The plans of train steps, replayed with each part of the model wrong."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from benchmarks import table as table_lib
from benchmarks.search import modules as modules_lib
from benchmarks.searchers import lockstep
from benchmarks.steps import trace as step_trace
from benchmarks.steps import traced_step
from lagom_xla.costs import step as step_lib
from lagom_xla.costs import uncertainty
from lagom_xla.search import nccl as nccl_search
from lagom_xla.search.nccl import settings as settings_lib
from lagom_xla.search.xla import joint

# What the plans with sure gains must keep of all that means promise.
_LEAST_KEPT = 0.5

_COLUMNS = (
  table_lib.Column(field="module", heading="module"),
  table_lib.Column(field="cluster", heading="cluster"),
  table_lib.Column(field="default_ms", heading="default ms", form=".2f"),
  table_lib.Column(field="low_ms", heading="low", form=".2f"),
  table_lib.Column(field="high_ms", heading="high", form=".2f"),
  table_lib.Column(field="mean_gain", heading="by the mean", form=".2%"),
  table_lib.Column(field="mean_worst", heading="at worst", form=".2%"),
  table_lib.Column(field="mean_worst_if", heading="if"),
  table_lib.Column(field="sure_gain", heading="surest", form=".2%"),
  table_lib.Column(field="sure_worst", heading="at worst", form=".2%"),
  table_lib.Column(field="sure_low", heading="assured", form=".2%"),
  table_lib.Column(field="num_settings", heading="settings", form="d"),
)
_JOINT_COLUMNS = (
  *_COLUMNS[:3],
  table_lib.Column(field="gain", heading="gain", form=".2%"),
  table_lib.Column(field="worst", heading="at worst", form=".2%"),
  table_lib.Column(field="worst_if", heading="if"),
  table_lib.Column(field="low", heading="assured", form=".2%"),
  table_lib.Column(field="most_gain", heading="most of any", form=".2%"),
  table_lib.Column(field="options", heading="options kept"),
)


def settings_table(
  shelf: modules_lib.Shelf, modules: Iterable[modules_lib.Module]
) -> table_lib.Table:
  """NCCL settings on XLA's default schedule: by the mean, and the surest."""
  rows = []
  for name, step in _steps(shelf, modules):
    modules_lib.say(f"searching {name}")
    rows.append(_settings_row(name, step))
  sure = sum(row["sure_gain"] for row in rows)
  most = sum(row["mean_gain"] for row in rows)
  kept = sure / most if most else 1.0
  return table_lib.Table(
    name="settings",
    title="NCCL settings on XLA's default schedule",
    columns=_COLUMNS,
    rows=rows,
    targets=(
      _never_slower(rows, "sure_worst"),
      table_lib.Target(
        wanted=f"{_LEAST_KEPT:.0%} of the gains kept, summed over modules",
        found=f"{kept:.0%}",
        is_met=kept >= _LEAST_KEPT,
      ),
    ),
    notes=(
      "Predicted. Low and high: the default step's 90 % range. By the mean: the"
      " search by predicted times alone; surest: what lagom-xla tune takes.",
      "At worst: the least gain with one part of the model at an end of its"
      " spread (costs/fitted/errors.json). Assured: all parts, in quadrature.",
    ),
  )


def _never_slower(
  rows: Sequence[Mapping[str, Any]], field: str
) -> table_lib.Target:
  """What plans are held to, by the field with the least gain of each."""
  worst = min(rows, key=lambda row: row[field])
  return table_lib.Target(
    wanted="no plan slower than the default, whatever part is wrong",
    found=f"{worst[field]:.2%} at worst, {worst['module']}",
    is_met=worst[field] >= 0,
  )


def joint_table(
  shelf: modules_lib.Shelf, modules: Iterable[modules_lib.Module]
) -> table_lib.Table:
  """XLA's options and NCCL's settings together, as lagom-xla tune has them."""
  rows = []
  for module in shelf.available(modules):
    modules_lib.say(f"tuning {module.name}")
    rows.append(_joint_row(shelf, module))
  return table_lib.Table(
    name="joint",
    title="XLA's options and NCCL's settings together",
    columns=_JOINT_COLUMNS,
    rows=rows,
    targets=(_never_slower(rows, "worst"),),
    notes=(
      "Predicted. Most of any: the best mean gain of any candidate with its"
      " surest settings, kept or not.",
    ),
  )


def _steps(
  shelf: modules_lib.Shelf, modules: Iterable[modules_lib.Module]
) -> Iterator[tuple[str, step_lib.Step]]:
  for module in shelf.available(modules):
    yield module.name, shelf.step(module)
  for folder in step_trace.folders(shelf.data) if shelf.data else ():
    yield folder.name, traced_step.TracedStep(folder).step


def _settings_row(name: str, step: step_lib.Step) -> dict[str, Any]:
  default = uncertainty.times(step, step.default)
  searcher = nccl_search.SEARCHERS[nccl_search.DEFAULT_SEARCHER]
  by_mean = uncertainty.times(
    step, lockstep.run_step(searcher, step).configuration
  )
  found = settings_lib.search(step).configuration
  sure = uncertainty.times(step, found)
  known = uncertainty.step_time(default)
  mean_if, mean_worst_us = uncertainty.worst(default, by_mean)
  _, sure_worst_us = uncertainty.worst(default, sure)
  step_us = default.mean_us
  return {
    "module": name,
    "cluster": step.cluster.name,
    "default_ms": step_us / 1e3,
    "low_ms": known.low / 1e3,
    "high_ms": known.high / 1e3,
    "mean_gain": 1 - by_mean.mean_us / step_us,
    "mean_worst": mean_worst_us / step_us,
    "mean_worst_if": mean_if.name,
    "sure_gain": 1 - sure.mean_us / step_us,
    "sure_worst": sure_worst_us / step_us,
    "sure_low": uncertainty.gain(default, sure).low / step_us,
    "num_settings": sum(found[key] != step.default[key] for key in step.keys),
  }


def _joint_row(
  shelf: modules_lib.Shelf, module: modules_lib.Module
) -> dict[str, Any]:
  found = joint.search(
    shelf.target(module), progress=lambda what: modules_lib.say(f"  {what}")
  )
  default, best = found.default.default_times, found.best.tuned_times
  worst_if, worst_us = uncertainty.worst(default, best)
  fastest_us = min(c.tuned.step_time_us for c in found.scheduled)
  step_us = default.mean_us
  return {
    "module": module.name,
    "cluster": module.cluster,
    "default_ms": step_us / 1e3,
    "gain": 1 - best.mean_us / step_us,
    "worst": worst_us / step_us,
    "worst_if": worst_if.name,
    "low": uncertainty.gain(default, best).low / step_us,
    "most_gain": 1 - fastest_us / step_us,
    "options": ", ".join(
      f"{name.removeprefix('xla_gpu_')}={value}"
      for name, value in found.best.config.options.items()
    )
    or None,
  }
