# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""The gains of XLA's options and NCCL's settings, alone and together."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
import concurrent.futures
import concurrent.futures.process
import multiprocessing
import pathlib
import time
from typing import Any

from benchmarks import table as table_lib
from benchmarks.search import modules as modules_lib
from lagom_xla.search.xla import candidates as candidates_lib
from lagom_xla.search.xla import joint

NAME = "joint_gain"

_COLUMNS = (
  table_lib.Column(field="module", heading="module"),
  table_lib.Column(field="cluster", heading="cluster"),
  table_lib.Column(field="default_ms", heading="default ms", form=".2f"),
  table_lib.Column(field="nccl_gain", heading="NCCL only", form=".2%"),
  table_lib.Column(field="xla_gain", heading="XLA only", form=".2%"),
  table_lib.Column(field="joint_gain", heading="joint", form=".2%"),
  table_lib.Column(field="over_nccl", heading="over NCCL only", form=".2%"),
  table_lib.Column(field="over_xla", heading="over XLA only", form=".2%"),
  table_lib.Column(field="predicted", heading="predicted", form="d"),
  table_lib.Column(field="candidates", heading="compiled", form="d"),
  table_lib.Column(field="refused", heading="refused", form="d"),
  table_lib.Column(field="seconds", heading="seconds", form=".0f"),
  table_lib.Column(field="options", heading="options kept"),
)


def table(
  shelf: modules_lib.Shelf, modules: Iterable[modules_lib.Module]
) -> table_lib.Table:
  """Tunes each module."""
  return table_of([_tuned(shelf, m) for m in shelf.available(modules)])


def table_by_process(
  shelf: modules_lib.Shelf, modules: Iterable[modules_lib.Module]
) -> table_lib.Table:
  """The same, each module in a process of its own, found by its name.

  XLA ends the process where it finds a fault in itself. Such a module has a row
  that says so.
  """
  rows = []
  for module in shelf.available(modules):
    context = multiprocessing.get_context("spawn")
    with concurrent.futures.ProcessPoolExecutor(1, context) as pool:
      try:
        rows.append(pool.submit(_row_by_name, module.name, shelf.data).result())
      except concurrent.futures.process.BrokenProcessPool:
        aborted = "the process ended in the middle of a compile"
        rows.append({"module": module.name, "options": aborted})
  return table_of(rows)


def _row_by_name(name: str, data: pathlib.Path | None) -> dict[str, Any]:
  return _tuned(modules_lib.Shelf(data), modules_lib.named(name))


def _tuned(
  shelf: modules_lib.Shelf, module: modules_lib.Module
) -> dict[str, Any]:
  target = shelf.target(module)
  modules_lib.say(f"tuning {module.name}")
  begin = time.perf_counter()
  found = joint.search(
    target, progress=lambda what: modules_lib.say(f"  {what}")
  )
  return row(module, found, time.perf_counter() - begin)


def table_of(rows: Sequence[table_lib.Row]) -> table_lib.Table:
  """The table of these rows."""
  return table_lib.Table(
    name=NAME,
    title="XLA's options, NCCL's settings, and both",
    columns=_COLUMNS,
    rows=rows,
    notes=(
      "Predicted gains in step time over all defaults.",
      "NCCL only: XLA's defaults with searched settings. XLA only: the best of"
      " all compiled options under NCCL's own choices. Joint: the options and"
      " settings that a search keeps, and its gain over either alone.",
      "Predicted and compiled count schedules; seconds include XLA's compiles.",
    ),
  )


def row(
  module: modules_lib.Module, found: candidates_lib.Search, seconds: float
) -> dict[str, Any]:
  """What a search of a module came to."""
  candidates = [
    found.default,
    *(c for c in found.others if isinstance(c, candidates_lib.Candidate)),
  ]
  default_us = found.default.under_nccl_defaults.step_time_us
  nccl_us = found.default.tuned.step_time_us
  xla_us = min(c.under_nccl_defaults.step_time_us for c in candidates)
  joint_us = found.best.tuned.step_time_us
  return {
    "module": module.name,
    "cluster": module.cluster,
    "default_ms": default_us / 1e3,
    "nccl_gain": 1 - nccl_us / default_us,
    "xla_gain": 1 - xla_us / default_us,
    "joint_gain": 1 - joint_us / default_us,
    "over_nccl": 1 - joint_us / nccl_us,
    "over_xla": 1 - joint_us / xla_us,
    "predicted": found.num_predicted,
    "candidates": len(candidates),
    "refused": len(found.others) + 1 - len(candidates),
    "seconds": seconds,
    "options": ", ".join(
      f"{name.removeprefix('xla_gpu_')}={value}"
      for name, value in found.best.config.options.items()
    )
    or None,
  }
