# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""What a what-if tells: its table, its findings, and its page on a phone."""

from __future__ import annotations

from collections.abc import Sequence
import dataclasses
import pathlib
import re
from typing import Any

import pytest
import rich.console

import browser
from lagom_xla.report.page import report
from lagom_xla.whatif import comparison as comparison_lib
from lagom_xla.whatif import page as page_lib
from lagom_xla.whatif import table as table_lib


def _estimate(us: float) -> report.Estimate:
  return report.Estimate(us=us, low_us=0.9 * us, high_us=1.2 * us)


def _row(
  name: str,
  num_nodes: int,
  *,
  us: float = 1e6,
  flops: float = 1e15,
  per_step: float | None = None,
) -> comparison_lib.Row:
  networks = tuple(
    comparison_lib.AtRate(gbits_per_gpu=400 * factor, step_us=us / factor)
    for factor in (0.5, 1.0, 2.0)
  )
  figures = comparison_lib.Figures(
    step=_estimate(us),
    exposed_us=1e5,
    slowdown_us=1e4,
    between_nodes_us=1e5,
    lower_bound_us=8e5,
    gain=_estimate(1e4),
    plan=("a setting",),
    flops=flops,
    per_step=per_step,
    memory_bytes=10**11,
    networks=networks,
  )
  return comparison_lib.Row(
    cluster=f"{num_nodes}x{name}",
    series=name,
    num_nodes=num_nodes,
    num_gpus=8 * num_nodes,
    gpu="h100",
    gbits_per_gpu=400.0,
    hbm_bytes=8 * 10**10,
    pcie_gbits=384.0,
    fabric="infiniband",
    measured_nodes=10,
    compiled_for=f"{num_nodes}x{name}",
    figures=figures,
    refusal="",
  )


def _refused(row: comparison_lib.Row, why: str) -> comparison_lib.Row:
  return dataclasses.replace(row, figures=None, refusal=why)


def _large(num_kinds: int) -> comparison_lib.Comparison:
  names = [f"p5en.{n}xlarge" for n in range(num_kinds)]
  points = [_row(name, 2**i, per_step=1e6) for name in names for i in range(11)]
  return comparison_lib.Comparison(
    target="examples/llama/train.py:train_step",
    made_with="jax 0.10.2",
    search="quick",
    unit="tokens",
    scaling="Weak scaling. " * 12,
    rows=tuple(_row(name, 1024, per_step=1e6) for name in names),
    points=(*points, _refused(_row("8xb200", 1024), "No. " * 99)),
    findings=("What more network would bring. " * 5,) * num_kinds,
    notes=("What to know of the figures. " * 5,) * num_kinds,
  )


@pytest.mark.parametrize("num_kinds", [1, 3, 5, 30])
def test_a_terminal_gets_at_most_40_lines_of_80_columns(num_kinds: int) -> None:
  console = rich.console.Console(width=80)
  with console.capture() as captured:
    table_lib.show(console, _large(num_kinds), ("whatif.html",))
  lines = captured.get().splitlines()
  assert len(lines) <= 40
  assert max(map(len, lines)) <= 80
  assert lines[-1] == "Wrote whatif.html"
  assert any("p5en.0xlarge" in line for line in lines)
  assert any(line.startswith("... and ") for line in lines) or num_kinds < 5
  # Points beyond what was measured are starred.
  points = re.findall(r"(?m)^ *([\d,]+) +[\d,.]+(\*?)", captured.get())
  starred = [nodes for nodes, star in points if star]
  assert starred == ["16", "32", "64", "128", "256", "512", "1,024"]


def _told(
  steps_us: Sequence[float], flops: Sequence[float], **options: Any
) -> comparison_lib.Comparison:
  """A comparison of points from one node on, each of twice the last's."""
  points = [
    _row("8xh100", 2**i, us=us, flops=count)
    for i, (us, count) in enumerate(zip(steps_us, flops, strict=True))
  ]
  return comparison_lib.of_rows(
    points[:1], points, target="step", search="quick", **options
  )


def test_a_curve_says_from_where_on_a_gpu_does_half_its_work() -> None:
  told = _told([1e6, 1.25e6, 2e6, 4e6], [1e15, 2e15, 4e15, 8e15])
  assert any(
    "on 8 nodes a GPU does 25% of its work on 1; below half from 8 on" in text
    for text in told.findings
  ), told.findings


def test_what_grows_neither_with_the_gpus_nor_stays_is_called_mixed() -> None:
  told = _told(
    [1e6, 1e6, 1e6], [1e15, 1.5e15, 2e15], unit="tokens", per_step=100.0
  )
  assert told.scaling.startswith("Mixed scaling: from 8 to 32 GPUs, 4 times")
  per_step = [row.figures.per_step for row in told.points if row.figures]
  assert per_step == [100, 150, 200]
  told = _told([1e6, 1e6], [1e15, 0.7e15])
  assert told.scaling.endswith(
    "the program's matrix products shrink to 70.00%."
  )


def test_tokens_of_a_first_cluster_without_figures_are_nobodys() -> None:
  rows = (_refused(_row("8xh100", 1), "No mesh."), _row("8xh100", 2))
  told = comparison_lib.of_rows(
    rows, (), target="step", search="none", unit="tokens", per_step=1.0
  )
  assert told.unit is None
  assert any("1x8xh100, which has no figures" in note for note in told.notes)


def test_notes_say_what_was_searched_and_what_memory_does_not_hold() -> None:
  rows = [_row("8xh100", 1)]
  quick, full = (
    " ".join(
      comparison_lib.of_rows(rows, (), target="step", search=search).notes
    )
    for search in ("quick", "full")
  )
  assert "needs 100.0 GB of the 80.0 GB" in quick
  assert "--search=full tries XLA's options" in quick
  assert "--search=full" not in full


def test_a_phone_in_dark_mode_shows_curves_of_1024_nodes(
  chromium: browser.Browser, tmp_path: pathlib.Path
) -> None:
  pytest.importorskip("plotly")
  path = tmp_path / "large.html"
  page_lib.write(_large(3), path)
  chromium.open(path)
  last = "[...document.querySelectorAll('#step-plot .xtick text')].at(-1)"
  with chromium.phone("#step-plot .xtick text", is_dark=True):
    assert chromium.evaluate(f"{last}.textContent") == "1,024"
