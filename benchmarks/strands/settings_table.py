# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""The table of what NCCL settings add on top of strands, and without them.

A step that hides its communication is bound by its kernels, so what kernels
lose to collectives decides, which is what Lagom's settings are for.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from benchmarks import table as table_lib
from benchmarks.strands import arms as arms_lib
from benchmarks.strands import modules as modules_lib
from benchmarks.strands import progress
from lagom_xla.compile import config as config_lib
from lagom_xla.search import nccl
from lagom_xla.search.xla import candidates

NAME = "settings"

_COLUMNS = (
  table_lib.Column(field="module", heading="module"),
  table_lib.Column(field="cluster", heading="cluster"),
  table_lib.Column(field="form", heading="form"),
  table_lib.Column(field="default_ms", heading="NCCL's own", form=".1f"),
  table_lib.Column(field="exposed_ms", heading="exposed", form=".1f"),
  table_lib.Column(field="slowdown_ms", heading="contention", form=".1f"),
  *(
    column
    for name in nccl.SEARCHERS
    for column in (
      table_lib.Column(field=f"{name}_ms", heading=name, form=".1f"),
      table_lib.Column(field=f"{name}_gain", heading="gain", form=".2%"),
      table_lib.Column(
        field=f"{name}_slowdown_ms", heading="contention", form=".1f"
      ),
    )
  ),
)


def table(modules: Iterable[modules_lib.Module]) -> table_lib.Table:
  """Searches the settings of each step, as written and with strands."""
  rows = [row for module in modules for row in _rows(module)]
  return table_lib.Table(
    name=NAME,
    title="NCCL's settings, without strands and with them",
    columns=_COLUMNS,
    rows=rows,
    notes=(
      "Predicted step times in ms, of schedules under XLA's defaults. Gains are"
      " over NCCL's own settings of the same schedule, by each searcher.",
    ),
  )


def _rows(module: modules_lib.Module) -> Iterator[dict[str, Any]]:
  progress.say(f"{module.name} on {module.cluster_name}")
  lowered, pairs = arms_lib.programs(module)
  yield row(module, arms_lib.as_written(module, lowered))
  strands = arms_lib.best_strands(module, lowered, pairs)
  if strands is not None:
    yield row(module, strands)


def row(
  module: modules_lib.Module, variant: arms_lib.Variant
) -> dict[str, Any]:
  """What each searcher makes of one schedule."""
  default = variant.default
  found: dict[str, Any] = {
    "module": module.name,
    "cluster": module.cluster_name,
    "form": variant.name,
    "default_ms": default.step_time_us / 1e3,
    "exposed_ms": default.total_exposed_us / 1e3,
    "slowdown_ms": default.total_slowdown_us / 1e3,
  }
  for name in nccl.SEARCHERS:
    tuned = candidates.evaluate_or_raise(
      config_lib.DEFAULT, target=variant.target, searcher=nccl.by_name(name)
    ).tuned
    found |= {
      f"{name}_ms": tuned.step_time_us / 1e3,
      f"{name}_gain": 1 - tuned.step_time_us / default.step_time_us,
      f"{name}_slowdown_ms": tuned.total_slowdown_us / 1e3,
    }
  return found
