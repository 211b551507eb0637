# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""A comparison for people: a table in the terminal, and a page of curves.

Like the page of a step (report/page), it is one file that needs no network, and
readable on a phone and in dark mode.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
import math
import pathlib
from typing import Any

import rich.console
import rich.table

from lagom_xla.costs import in_words
from lagom_xla.report import layout
from lagom_xla.report.page import report
from lagom_xla.whatif import comparison as comparison_lib

Row = comparison_lib.Row


def show(
  console: rich.console.Console,
  comparison: comparison_lib.Comparison,
  files: Sequence[str] = (),
) -> None:
  """Prints a comparison and the names of the written files."""
  layout.say(
    console,
    f"{comparison.target}, predicted. {comparison.scaling}",
    _table(comparison),
    *_refused(comparison.all_rows),
    *comparison.findings,
    *comparison.notes,
  )
  for file in files:
    console.print(f"Wrote {file}", highlight=False, soft_wrap=True)


def _table(comparison: comparison_lib.Comparison) -> rich.table.Table:
  """A table of the clusters asked for, then of other node counts."""
  headings = ["cluster", "Gbit/s", "step ms", "9 in 10", "bound", "exposed"]
  plan = ["plan"] * (comparison.search != "none")
  table = layout.table(
    None,
    (*headings, comparison.rate, *plan, "net x2"),
    (_cells(row, bool(plan)) for row in comparison.all_rows if row.figures),
  )
  for column in table.columns[1:]:
    column.no_wrap = True
  return table


def _cells(row: Row, has_plan: bool) -> Iterator[str]:
  figures = row.figures
  assert figures is not None
  step = figures.step
  yield row.nodes
  yield f"{row.gbits_per_gpu:,.4g}" if figures.networks else "-"
  # A star marks more nodes than collectives were measured on.
  yield in_words.rounded_ms(step.us) + "*" * row.is_beyond_measured
  yield _between(step, "-")
  yield in_words.rounded_ms(figures.lower_bound_us)
  # Waits inside library calls are unknown.
  is_open = bool(figures.calls_that_may_communicate)
  yield f"{row.exposed_share:.1%}{'?' * is_open}"
  yield in_words.short(row.throughput)
  if has_plan:
    gain_us = figures.gain.us if figures.gain else 0.0
    yield _change(gain_us / step.us if step.us else 0.0)
  faster = comparison_lib.network_gain(row, 2.0)
  yield "-" if faster is None else _change(faster)


def _between(step: report.Estimate, joint: str) -> str:
  ends = in_words.ms_range(step.low_us, step.high_us, joint)
  return f"{ends}?" if step.is_open else ends


def _change(gain: float) -> str:
  """The change of the step time; negative if it is shorter."""
  return "0" if abs(gain) < comparison_lib.LEAST else f"{-gain:+.1%}"


def _refused(rows: Sequence[Row]) -> list[str]:
  """Clusters without figures, grouped by reason."""
  by_reason: dict[str, list[str]] = {}
  for row in rows:
    if row.refusal:
      by_reason.setdefault(row.refusal, []).append(row.cluster)
  return [f"{', '.join(names)}: {why}" for why, names in by_reason.items()]


_MARGIN = {"l": 70, "r": 12, "t": 8, "b": 48}
_LINEAR = {"rangemode": "tozero", "tickformat": "~s"}
_Trace = Mapping[str, Any]


def _curve_figures(
  comparison: comparison_lib.Comparison,
) -> Iterator[dict[str, Any]]:
  """The figures that have something to draw."""
  curves = comparison_lib.series(comparison.all_rows)
  if any(len(curve) > 1 for curve in curves.values()):
    yield _figure("step", "The step by nodes", "ms", list(_steps(curves)))
    curve = _curves(curves, lambda row: row.throughput)
    rate = comparison.rate
    yield _figure("throughput", "Throughput by nodes", rate, curve)
    curve = _curves(curves, lambda row: 100 * row.exposed_share)
    title = "Exposed communication by nodes"
    yield _figure("exposed", title, "% of the step", curve)
  if networks := list(_networks(comparison.rows)):
    yield _figure(
      "network", "The step by network", "ms", networks, is_nodes=False
    )


def _figure(
  name: str,
  title: str,
  unit: str,
  traces: Sequence[_Trace],
  *,
  is_nodes: bool = True,
) -> dict[str, Any]:
  is_time = unit == "ms"
  layout = {
    "margin": _MARGIN,
    "height": 420,
    "hovermode": "closest",
    "legend": {"orientation": "h", "y": 1.02, "yanchor": "bottom"},
    "xaxis": {
      "type": "log",
      "title": {"text": "nodes" if is_nodes else "Gbit/s per GPU"},
      "tickmode": "array",
      "tickvals": sorted({x for trace in traces for x in trace["x"]}),
    },
    "yaxis": {
      "title": {"text": unit},
      "automargin": True,
      **(_log_axis(traces) if is_time and is_nodes else _LINEAR),
    },
  }
  figure = {"data": list(traces), "layout": layout}
  return {"name": name, "title": title, "figure": figure}


def _log_axis(traces: Sequence[_Trace]) -> dict[str, Any]:
  """A logarithmic axis with ticks at 1, 2 and 5 of each power of ten."""
  ys = [y for trace in traces for y in trace["y"] if y > 0]
  powers = range(
    math.floor(math.log10(min(ys))), math.ceil(math.log10(max(ys)))
  )
  ticks = [first * 10.0**power for power in powers for first in (1, 2, 5)]
  return {"type": "log", "tickmode": "array", "tickvals": ticks}


def _steps(curves: Mapping[str, Sequence[Row]]) -> Iterator[_Trace]:
  """Step time with its range, and the lower bound, for each series."""
  for group, (name, rows) in enumerate(curves.items()):
    found = [row.figures for row in rows if row.figures]
    errors = {
      "array": [(of.step.high_us - of.step.us) / 1e3 for of in found],
      "arrayminus": [(of.step.us - of.step.low_us) / 1e3 for of in found],
    }
    yield {
      **_curve(name, group, rows, [of.step.us / 1e3 for of in found]),
      "legendgroup": name,
      "error_y": {"type": "data", "symmetric": False, "thickness": 1, **errors},
    }
    yield _line(
      f"{name}, lower bound",
      group,
      [row.num_nodes for row in rows],
      [of.lower_bound_us / 1e3 for of in found],
      mode="lines",
      line={"dash": "dot"},
      showlegend=False,
      legendgroup=name,
      hovertemplate=f"{name}: lower bound %{{y:,.4g}} ms<extra></extra>",
    )


def _curves(
  curves: Mapping[str, Sequence[Row]], value: Callable[[Row], float]
) -> list[_Trace]:
  return [
    _curve(name, group, rows, list(map(value, rows)))
    for group, (name, rows) in enumerate(curves.items())
  ]


def _curve(
  name: str, group: int, rows: Sequence[Row], ys: Sequence[float]
) -> _Trace:
  """A line by nodes; hovering over a marker shows the row's figures."""
  # Hollow for more nodes than collectives were measured on.
  symbols = ["circle" + "-open" * row.is_beyond_measured for row in rows]
  return _line(
    name,
    group,
    [row.num_nodes for row in rows],
    ys,
    marker={"symbol": symbols},
    text=[_hover(row) for row in rows],
    hovertemplate="%{text}<extra></extra>",
  )


def _line(
  name: str, group: int, xs: Sequence[float], ys: Sequence[float], **more: Any
) -> _Trace:
  """A line in the color of a group."""
  own = {"name": name, "meta": {"group": group}, "x": xs, "y": ys}
  return {"type": "scatter", "mode": "lines+markers", **own, **more}


def _networks(rows: Sequence[Row]) -> Iterator[_Trace]:
  once: dict[str, Sequence[comparison_lib.AtRate]] = {}
  for row in rows:
    if row.figures and row.figures.networks:
      once.setdefault(row.nodes, row.figures.networks)
  for group, (nodes, networks) in enumerate(once.items()):
    yield _line(
      nodes,
      group,
      [at.gbits_per_gpu for at in networks],
      [at.step_us / 1e3 for at in networks],
      hovertemplate=(
        f"{nodes}, %{{x:,.4g}} Gbit/s per GPU: %{{y:,.4g}} ms<extra></extra>"
      ),
    )


def _hover(row: Row) -> str:
  figures = row.figures
  assert figures is not None
  step = figures.step
  ends = _between(step, " to ")
  return (
    f"<b>{row.cluster}</b>, {in_words.count(row.num_gpus, 'GPU')}<br>step"
    f" {in_words.milliseconds(step.us)}, 9 in 10 {ends}"
    f"<br>exposed {row.exposed_share:.1%}"
    f"<br>{in_words.short(row.throughput)}"
    f" {'per second' if row.has_per_s else 'TFLOP/s/GPU'}"
  )


def write(comparison: comparison_lib.Comparison, path: pathlib.Path) -> None:
  """Writes a comparison as an HTML file.

  Raises:
    OutputError: it cannot be written, or a package that renders pages is
      missing.
  """
  page = report.filled(
    pathlib.Path(__file__).parent,
    comparison=comparison,
    title=f"{comparison.target}: what if",
    drawn=list(_curve_figures(comparison)),
  )
  report.save(page, path)
