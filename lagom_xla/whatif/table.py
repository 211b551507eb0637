# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""The tables of a comparison in the terminal: at most 40 lines of 80 columns.

What does not fit in is counted; the page and `--format=json` have all of it.
"""

from __future__ import annotations

from collections.abc import Sequence
import textwrap

import rich.console
import rich.table

from lagom_xla.costs import in_words
from lagom_xla.report import layout
from lagom_xla.whatif import comparison as comparison_lib

_MOST_LINES = 40
_MOST_ROWS = 12
_MOST_SERIES = 5
_MOST_WITH_THROUGHPUT = 3
_WIDTH = 80
_EVERYTHING = "--format=json has all"

Row = comparison_lib.Row


def show(
  console: rich.console.Console,
  comparison: comparison_lib.Comparison,
  files: Sequence[str] = (),
) -> None:
  """Shows a comparison, and names the files that were written."""
  shown = _Lines(console, _MOST_LINES - len(files))
  shown.say(f"{comparison.target}, predicted. {comparison.scaling}")
  rows = [row for row in comparison.rows if row.figures is not None]
  if rows:
    shown.table(_rows(rows[:_MOST_ROWS], comparison))
    shown.say_more(len(rows) - _MOST_ROWS, "rows")
  curves = comparison_lib.series(comparison.points)
  if curves:
    shown.table(_points(curves, comparison))
    shown.say_more(len(curves) - _MOST_SERIES, "kinds of nodes")
  beyond = comparison_lib.beyond_measured((*rows, *comparison.points))
  shown.say(beyond)
  shown.say_all(
    [
      *_refused((*comparison.rows, *comparison.points)),
      *comparison.findings,
      *(note for note in comparison.notes if note != beyond),
    ]
  )
  for file in files:
    console.print(f"Wrote {file}", highlight=False, soft_wrap=True)


class _Lines:
  """Lines of a console of which there are so many."""

  def __init__(self, console: rich.console.Console, most: int):
    self._console, self._left = console, most
    self._width = min(console.width, _WIDTH)

  def say(self, text: str) -> None:
    self._put(textwrap.wrap(text, self._width))

  def say_all(self, texts: Sequence[str]) -> None:
    """As many as there is room for, and how many more there are."""
    for i, text in enumerate(texts):
      lines = textwrap.wrap(text, self._width)
      is_last = i == len(texts) - 1
      if len(lines) > self._left - (0 if is_last else 1):
        self._put([f"... and {len(texts) - i} more: {_EVERYTHING}"])
        return
      self._put(lines)

  def say_more(self, count: int, what: str) -> None:
    """How many more there are, if any."""
    if count > 0:
      self._put([f"... and {count} more {what}: {_EVERYTHING}"])

  def table(self, table: rich.table.Table) -> None:
    self._put(layout.table_lines(self._console, table, self._width))

  def _put(self, lines: Sequence[str]) -> None:
    for line in lines:
      self._console.print(line, highlight=False, soft_wrap=True)
      self._left -= 1


def _rows(
  rows: Sequence[Row], comparison: comparison_lib.Comparison
) -> rich.table.Table:
  headings = ["Gbit/s", "step ms", "9 in 10", "bound", "exposed"]
  plan = [] if comparison.search == "none" else ["plan"]
  headings += [_unit(comparison), *plan, "net x2"]
  table = layout.new_table(None, "cluster", *headings)
  for column in table.columns[1:]:
    column.no_wrap = True
  for row in rows:
    table.add_row(row.nodes, *_cells(row, comparison))
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
  table = layout.new_table(None, "nodes")
  table.columns[0].justify, table.columns[0].vertical = "right", "bottom"
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
