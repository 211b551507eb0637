# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""How many of the measured steps are within their predictions' ranges.

Traced steps, and steps of XLA's benchmark modules as they were published, with
what a change gained (steps/published.py). A traced step counts with what its
ranks waited for each other, but less its scatters whose indices repeat, and
less what ranks wait for those: how often they repeat depends on data that no
module has. What steps take beyond their parts is taken from the other modules.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
import dataclasses
import pathlib
from typing import Any

from benchmarks import errors
from benchmarks import groups as groups_lib
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


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Measured:
  """Steps of one module, and what changes of it gained.

  Attributes:
    module: its name.
    steps: (what, milliseconds, predicted times).
    gains: (what, milliseconds, prediction).
  """

  module: str
  steps: Sequence[tuple[str, float, uncertainty.Times]]
  gains: Sequence[tuple[str, float, uncertainty.Estimate]] = ()

  @property
  def group(self) -> groups_lib.Group:
    """The steps as benchmarks.errors takes them."""
    return groups_lib.of_comparisons(
      f"published: {self.module}, steps",
      [
        groups_lib.Comparison(
          what=what, measured=measured_ms, predicted=times.mean_us / 1e3
        )
        for what, measured_ms, times in self.steps
      ],
    )


def table(data: pathlib.Path) -> table_lib.Table:
  """The steps of the folder with data."""
  measured = list(_measured(data))
  rows = [row for one in measured for row in _rows(one, measured)]
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


def _rows(
  one: _Measured, measured: Sequence[_Measured]
) -> Iterator[dict[str, Any]]:
  # What steps take beyond their parts is known from the other modules alone.
  others = [other.group for other in measured if other is not one]
  missed = errors.spreads(others).get("steps")
  for what, measured_ms, times in one.steps:
    yield _row(what, measured_ms, uncertainty.step_time(times, missed))
  for what, measured_ms, known in one.gains:
    yield _row(what, measured_ms, known)


def _measured(data: pathlib.Path) -> Iterator[_Measured]:
  for folder in step_trace.folders(data):
    yield _traced(traced_step.TracedStep(folder))
  if (data / "hlo").is_dir():
    yield from map(_published, published.pairs(data / "hlo"))


def _traced(trace: traced_step.TracedStep) -> _Measured:
  scatters = trace.colliding_scatters
  times = _default(trace.step)
  if not scatters:
    step = (trace.name, trace.step_time_us / 1e3, times)
    return _Measured(module=trace.name, steps=[step])

  def scatters_us(step: step_lib.Step) -> float:
    return sum(step.kernel_cost(k).time_us * k.executions for k in scatters)

  rest = uncertainty.Times(
    mean_us=times.mean_us - scatters_us(trace.step),
    by_scenario={
      scenario: us - scatters_us(trace.step.under(scenario))
      for scenario, us in times.by_scenario.items()
    },
  )
  what = f"{trace.name}, less colliding scatters"
  measured_ms = trace.step_time_less_scatters_us / 1e3
  return _Measured(module=trace.name, steps=[(what, measured_ms, rest)])


def _published(pair: published.Pair) -> _Measured:
  before, after = _default(pair.before.step), _default(pair.after.step)
  before_ms = pair.before.variant.measured_ms
  after_ms = pair.after.variant.measured_ms
  return _Measured(
    module=pair.name,
    steps=[
      (f"{pair.name}, {pair.before.variant.name}", before_ms, before),
      (f"{pair.name}, {pair.after.variant.name}", after_ms, after),
    ],
    gains=[
      (
        f"{pair.name}, gain",
        before_ms - after_ms,
        uncertainty.gain(before, after),
      )
    ],
  )


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
