# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""The page, the terminal and `explain` tell one story of what is exposed."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import jax
import pytest
import rich.console

from lagom_xla import cluster as cluster_lib
from lagom_xla.costs import step as step_lib
from lagom_xla.explain import explaining
from lagom_xla.explain import explanation as explanation_lib
from lagom_xla.passes import hlo
from lagom_xla.report import terminal
from lagom_xla.report.page import contents
from lagom_xla.report.page import report


@pytest.fixture(scope="module")
def step(
  scheduled: Callable[..., hlo.Module],
  fsdp_step: Callable[..., jax.stages.Lowered],
) -> step_lib.Step:
  """With a gather and a reduction of each layer, which XLA combines not."""
  apart = {
    f"xla_gpu_{kind}_combine_threshold_bytes": 0
    for kind in ("all_gather", "reduce_scatter")
  }
  module = scheduled(fsdp_step(unroll=True), **apart)
  return step_lib.of_module(module, cluster_lib.parse("2x4xh100"))


@pytest.fixture(scope="module")
def rows(step: step_lib.Step) -> Sequence[report.Collective]:
  return contents.of_inspection(step).collectives_before


@pytest.fixture(scope="module")
def explained(step: step_lib.Step) -> explanation_lib.Step:
  return explaining.of_step(step).before


def test_a_row_of_one_collective_has_its_wait_and_reason(
  rows: Sequence[report.Collective], explained: explanation_lib.Step
) -> None:
  by_name = {one.name: one for one in explained.collectives}
  alone = [row for row in rows if not row.num_others and row.why_waits]
  assert alone
  for row in alone:
    one = by_name[row.label.name]
    assert (row.wait_us, row.why_waits) == (one.exposed_us, one.why)


def test_rows_of_alike_collectives_leave_no_wait_out(
  rows: Sequence[report.Collective], explained: explanation_lib.Step
) -> None:
  assert any(row.num_others and row.wait_us for row in rows)
  num = sum(1 + row.num_others for row in rows)
  assert num == len(explained.collectives)
  waits_us = sum(row.wait_us for row in rows)
  assert waits_us == pytest.approx(explained.exposed_us)


def test_a_row_of_alike_collectives_names_the_one_that_it_tells_of(
  rows: Sequence[report.Collective],
) -> None:
  alike = [row for row in rows if row.num_others and row.why_waits]
  assert alike
  assert all(f"as in {row.label.name}, " in row.why_waits for row in alike)


def test_the_terminal_gives_the_pages_reasons(
  step: step_lib.Step, rows: Sequence[report.Collective]
) -> None:
  console = rich.console.Console(width=80)
  with console.capture() as captured:
    terminal.show_inspection(console, step, is_verbose=True)
  told = " ".join(captured.get().split())
  for row in rows:
    assert " ".join(row.why_waits.split()) in told
