# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""How many of the measured steps are within their predictions' ranges.

Traced steps, and steps of XLA's benchmark modules as they were published, with
what a change gained (steps/published.py). A traced step counts with what its
ranks waited for each other, but less its scatters whose indices repeat, and
less what ranks wait for those: how often they repeat depends on data that no
module has.
"""

from __future__ import annotations

from collections.abc import Iterator
import pathlib
from typing import Any

from benchmarks import table as table_lib
from benchmarks.steps import published
from benchmarks.steps import trace as step_trace
from benchmarks.steps import traced_step
from lagom_xla.costs import step as step_lib
from lagom_xla.costs import uncertainty

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
    yield _traced(traced_step.TracedStep(folder))
  if (data / "hlo").is_dir():
    for pair in published.pairs(data / "hlo"):
      yield from _published(pair)


def _traced(
  trace: traced_step.TracedStep,
) -> tuple[str, float, uncertainty.Estimate]:
  scatters = trace.colliding_scatters
  times = _default(trace.step)
  if not scatters:
    known = uncertainty.step_time(times)
    return trace.name, trace.step_time_us / 1e3, known

  def scatters_us(step: step_lib.Step) -> float:
    return sum(step.kernel_cost(k).time_us * k.executions for k in scatters)

  rest = uncertainty.Times(
    mean_us=times.mean_us - scatters_us(trace.step),
    by_scenario={
      scenario: us - scatters_us(trace.step.under(scenario))
      for scenario, us in times.by_scenario.items()
    },
  )
  return (
    f"{trace.name}, less colliding scatters",
    trace.step_time_less_scatters_us / 1e3,
    uncertainty.step_time(rest),
  )


def _published(
  pair: published.Pair,
) -> Iterator[tuple[str, float, uncertainty.Estimate]]:
  before, after = _default(pair.before.step), _default(pair.after.step)
  before_ms = pair.before.variant.measured_ms
  after_ms = pair.after.variant.measured_ms
  for what, measured_ms, known in (
    (pair.before.variant.name, before_ms, uncertainty.step_time(before)),
    (pair.after.variant.name, after_ms, uncertainty.step_time(after)),
    ("gain", before_ms - after_ms, uncertainty.gain(before, after)),
  ):
    yield f"{pair.name}, {what}", measured_ms, known


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
