# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""The tables of a comparison in the terminal: at most 40 lines of 80 columns.

What does not fit in is counted; the page and `--format=json` have all of it.
"""

from __future__ import annotations

from collections.abc import Sequence

import rich.console
import rich.table

from lagom_xla.costs import in_words
from lagom_xla.report import layout
from lagom_xla.whatif import comparison as comparison_lib

_MOST_ROWS = 12
_MOST_SERIES = 5
_MOST_WITH_THROUGHPUT = 3
_EVERYTHING = "--format=json has all"

Row = comparison_lib.Row


def show(
  console: rich.console.Console,
  comparison: comparison_lib.Comparison,
  files: Sequence[str] = (),
) -> None:
  """Shows a comparison, and names the files that were written."""
  shown = layout.Lines(console, layout.NUM_LINES - len(files))
  shown.say(f"{comparison.target}, predicted. {comparison.scaling}")
  rows = [row for row in comparison.rows if row.figures is not None]
  if rows:
    shown.table(_rows(rows[:_MOST_ROWS], comparison))
    if (left := len(rows) - _MOST_ROWS) > 0:
      shown.say(f"... and {left} more rows: {_EVERYTHING}")
  curves = comparison_lib.series(comparison.points)
  if curves:
    shown.table(_points(curves, comparison))
    if (left := len(curves) - _MOST_SERIES) > 0:
      shown.say(f"... and {left} more kinds of nodes: {_EVERYTHING}")
  beyond = comparison_lib.beyond_measured((*rows, *comparison.points))
  shown.say(beyond)
  shown.say(
    *_refused((*comparison.rows, *comparison.points)),
    *comparison.findings,
    *(note for note in comparison.notes if note != beyond),
    rest=_EVERYTHING,
  )
  for file in files:
    console.print(f"Wrote {file}", highlight=False, soft_wrap=True)


def _rows(
  rows: Sequence[Row], comparison: comparison_lib.Comparison
) -> rich.table.Table:
  headings = ["Gbit/s", "step ms", "9 in 10", "bound", "exposed"]
  plan = [] if comparison.search == "none" else ["plan"]
  headings += [_unit(comparison), *plan, "net x2"]
  table = layout.table(
    None,
    ("cluster", *headings),
    ((row.nodes, *_cells(row, comparison)) for row in rows),
  )
  for column in table.columns[1:]:
    column.no_wrap = True
  return table


def _cells(row: Row, comparison: comparison_lib.Comparison) -> list[str]:
  figures = row.figures
  assert figures is not None
  step = figures.step
  cells = [
    f"{row.gbits_per_gpu:,.4g}" if figures.networks else "-",
    _step_ms(row),
    in_words.ms_range(step.low_us, step.high_us, "-"),
    in_words.rounded_ms(figures.lower_bound_us),
    f"{row.exposed_share:.1%}",
    in_words.short(row.throughput),
  ]
  if comparison.search != "none":
    gain_us = figures.gain.us if figures.gain else 0.0
    cells.append(_change(gain_us / step.us if step.us else 0.0))
  faster = comparison_lib.network_gain(row, 2.0)
  cells.append("-" if faster is None else _change(faster))
  return cells


def _change(gain: float) -> str:
  """How much the step changes; one that is shorter is below zero."""
  return "0" if abs(gain) < comparison_lib.LEAST else f"{-gain:+.1%}"


def _points(
  curves: dict[str, list[Row]], comparison: comparison_lib.Comparison
) -> rich.table.Table:
  """The step by nodes of each kind, and of a few kinds their throughput."""
  table = layout.table(None, ("nodes",), texts=())
  table.columns[0].vertical = "bottom"
  names = list(curves)[:_MOST_SERIES]
  has_throughput = len(names) <= _MOST_WITH_THROUGHPUT
  for name in names:
    heading = "\n".join((*name.split(" at "), "ms"))
    table.add_column(heading, justify="right", overflow="fold")
    if has_throughput:
      lines = heading.count("\n")
      table.add_column("\n" * lines + _unit(comparison), justify="right")
  by_nodes = {
    name: {row.num_nodes: row for row in curves[name]} for name in names
  }
  for count in sorted({n for rows in by_nodes.values() for n in rows}):
    cells: list[str] = []
    for name in names:
      step_ms = rate = "-"
      if row := by_nodes[name].get(count):
        step_ms, rate = _step_ms(row), in_words.short(row.throughput)
      cells += [step_ms, rate] if has_throughput else [step_ms]
    table.add_row(f"{count:,}", *cells)
  return table


def _step_ms(row: Row) -> str:
  """The step, starred where no collective was measured on so many nodes."""
  assert row.figures is not None
  star = "*" if row.is_beyond_measured else ""
  return in_words.rounded_ms(row.figures.step.us) + star


def _unit(comparison: comparison_lib.Comparison) -> str:
  return f"{comparison.unit}/s" if comparison.unit else "TFLOP/s"


def _refused(rows: Sequence[Row]) -> list[str]:
  """Clusters without figures, those with the same reason together."""
  by_reason: dict[str, list[str]] = {}
  for row in rows:
    if row.refusal:
      names = by_reason.setdefault(row.refusal, [])
      if row.cluster not in names:
        names.append(row.cluster)
  return [f"{', '.join(names)}: {why}" for why, names in by_reason.items()]
