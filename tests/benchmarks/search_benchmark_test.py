# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Each table of benchmarks.search, on tiny modules, shows what can be true."""

from __future__ import annotations

import pytest

from benchmarks.search import ablation
from benchmarks.search import against_exhaustive
from benchmarks.search import equal_budget
from benchmarks.search import growth
from benchmarks.search import modules as modules_lib
from benchmarks.searchers import exhaustive
from lagom_xla.search.nccl import problem as problem_lib
from lagom_xla.search.nccl import searcher as searcher_lib
from lagom_xla.search.xla import knobs

_TINY = modules_lib.perceptrons(
  "tiny", "1x8xh100", layout="fsdp", hidden=(512, 1024), rows_per_device=512
)
_MEETING = _TINY.overlapping(2)


@pytest.fixture(scope="module")
def shelf(h100s) -> modules_lib.Shelf:
  del h100s  # Only says whether there is anything to compile with.
  return modules_lib.Shelf(None)


def test_the_reference_is_what_an_exhaustive_search_finds(shelf):
  step = shelf.step(
    modules_lib.perceptrons(
      "a40",
      "1x8xa40",
      layout="fsdp",
      hidden=(256, 512),
      rows_per_device=256,
      forward_only=True,
      options=dict.fromkeys(knobs.OPTIONS.values(), 0),
    )
  )
  cases = list(against_exhaustive.of_step("a40", step, set()))
  assert any(len(case.problem.keys) == 2 for case in cases)
  for case in cases:
    optimum = searcher_lib.run(
      exhaustive.Exhaustive(),
      case.problem,
      case.step.cluster,
      start=case.step.default,
      profile=problem_lib.Predictor(case.step, case.problem),
    )
    assert against_exhaustive.shortest_us(case) == pytest.approx(
      optimum.best_us, rel=1e-9
    )


def test_no_search_beats_the_best_of_all_settings(shelf):
  table = against_exhaustive.table(shelf, [_TINY], equal_budget.OURS)
  assert {row["searcher"] for row in table.rows} == set(equal_budget.OURS)
  for row in table.rows:
    assert row["below_reference"] == 0


def test_growth_counts_a_key_for_each_collective(shelf):
  table = growth.table(shelf, equal_budget.OURS, (1, 2, 4))
  for row in table.rows:
    assert row["collectives"] == row["keys"] == row["largest"]
    assert row["evaluations"] >= row["keys"] > 0
    assert row["gain"] >= -1e-9
  assert [row["collectives"] for row in table.rows[:3]] == [1, 2, 4]


def test_a_larger_budget_is_never_worse(shelf):
  tables = equal_budget.tables(shelf, [_TINY], budgets=(2, 5, 9), num_seeds=2)
  summary, detail = tables
  for name in {row["searcher"] for row in summary.rows}:
    medians = [r["median"] for r in summary.rows if r["searcher"] == name]
    assert medians == sorted(medians, reverse=True)
  assert len(detail.rows) == 3
  # One module: each of ours is ahead, equal or behind in it.
  for row in summary.rows:
    for ours in equal_budget.OURS:
      if ours != row["searcher"]:
        counts = [row[f"{ours} {how}"] for how in ("ahead", "equal", "behind")]
        assert sum(counts) == 1


def test_the_ablation_searches_with_every_variation(shelf):
  summary, detail = ablation.tables(shelf, [_TINY, _MEETING])
  assert {row["variation"] for row in summary.rows} == {
    "lagom",
    "round robin",
    "channels only",
    "chunks only",
    "without contention",
  }
  for row in summary.rows:
    assert row["worse"] + row["equal"] + row["better"] == 2
    # What was searched with contention keeps NCCL's own choice at worst.
    if row["variation"] != "without contention":
      assert row["least"] >= -1e-9
  assert [row["module"] for row in detail.rows] == [
    "tiny",
    "tiny, 2 at a time",
  ]
