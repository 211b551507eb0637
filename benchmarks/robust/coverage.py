# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""How many of the measured steps are within their predictions' ranges.

Traced steps, and XLA's Llama 3.1 8B on eight H100s, of which openxla/xla#26196
gives 1,359 ms per step, and 1,318 ms with early starts (see xla_step.py). A
traced step counts as a whole, with what its ranks waited for each other.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
import pathlib
from typing import Any

from benchmarks import step_trace
from benchmarks import table as table_lib
from benchmarks import traced_step
from lagom_xla import cluster as cluster_lib
from lagom_xla.compile import config as config_lib
from lagom_xla.compile import load as load_lib
from lagom_xla.costs import step as step_lib
from lagom_xla.costs import uncertainty

_LLAMA = "hlo/hlo_llama31_8b_bf16_1x8.hlo.xz"
_LLAMA_CLUSTER = "1x8xh100"
_DEFAULT_MS = 1359.0
_EARLY_MS = 1318.0
# The scheduler of that time, without and with early starts.
_SCHEDULER: Mapping[str, bool | int] = {
  "xla_gpu_enable_latency_hiding_scheduler": True,
  "xla_gpu_enable_analytical_sol_latency_estimator": False,
}
_EARLY: Mapping[str, bool | int] = {
  **_SCHEDULER,
  "xla_gpu_experimental_collective_start_as_early_as_possible": True,
  "xla_gpu_experimental_parallel_collective_overlap_limit": 2,
}
_SHARE = 0.9

_COLUMNS = (
  table_lib.Column(field="step", heading="step"),
  table_lib.Column(field="measured_ms", heading="measured ms", form=".2f"),
  table_lib.Column(field="mean_ms", heading="predicted", form=".2f"),
  table_lib.Column(field="low_ms", heading="low", form=".2f"),
  table_lib.Column(field="high_ms", heading="high", form=".2f"),
  table_lib.Column(field="inside", heading="inside"),
)


def table(data: pathlib.Path) -> table_lib.Table:
  """The steps of the folder with data."""
  rows = [_row(*measured) for measured in _measured(data)]
  inside = sum(row["inside"] == "yes" for row in rows)
  return table_lib.Table(
    name="coverage",
    title="Measured steps and differences, and their predictions' 90 % ranges",
    columns=_COLUMNS,
    rows=rows,
    targets=(
      table_lib.Target(
        wanted=f"{_SHARE:.0%} inside",
        found=f"{inside} of {len(rows)}",
        is_met=inside >= _SHARE * len(rows),
      ),
    ),
  )


def _measured(
  data: pathlib.Path,
) -> Iterator[tuple[str, float, uncertainty.Estimate]]:
  """(what, milliseconds, prediction)."""
  for folder in sorted(filter(step_trace.is_of_step, data.iterdir())):
    trace = traced_step.TracedStep(folder)
    known = uncertainty.step_time(_default(trace.step))
    yield trace.name, trace.step_time_us / 1e3, known
  if (data / _LLAMA).is_file():
    default = _published(data / _LLAMA, _SCHEDULER)
    early = _published(data / _LLAMA, _EARLY)
    for what, measured_ms, known in (
      ("llama-8b-1x8", _DEFAULT_MS, uncertainty.step_time(default)),
      ("llama-8b-1x8, early", _EARLY_MS, uncertainty.step_time(early)),
      (
        "llama-8b-1x8, gain of early",
        _DEFAULT_MS - _EARLY_MS,
        uncertainty.gain(default, early),
      ),
    ):
      yield what, measured_ms, known


def _published(
  path: pathlib.Path, options: Mapping[str, bool | int]
) -> uncertainty.Times:
  cluster = cluster_lib.parse(_LLAMA_CLUSTER)
  target = load_lib.load(str(path), cluster)
  scheduled = target.schedule(config_lib.XlaConfig(options=options))
  return _default(step_lib.of_module(scheduled, cluster))


def _default(step: step_lib.Step) -> uncertainty.Times:
  return uncertainty.times(step, step.default)


def _row(
  what: str, measured_ms: float, known: uncertainty.Estimate
) -> dict[str, Any]:
  is_inside = known.low <= measured_ms * 1e3 <= known.high
  return {
    "step": what,
    "measured_ms": measured_ms,
    "mean_ms": known.mean / 1e3,
    "low_ms": known.low / 1e3,
    "high_ms": known.high / 1e3,
    "inside": "yes" if is_inside else "no",
  }
