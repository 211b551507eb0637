# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Each table of benchmarks.search, on tiny modules, shows what can be true."""

from __future__ import annotations

import pytest

from benchmarks import table as table_lib
from benchmarks.search import __main__ as command
from benchmarks.search import ablation
from benchmarks.search import against_exhaustive
from benchmarks.search import equal_budget
from benchmarks.search import growth
from benchmarks.search import modules as modules_lib
from benchmarks.searchers import exhaustive
from lagom_xla.costs import nccl
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


def _cases(shelf: modules_lib.Shelf, module: modules_lib.Module):
  return list(against_exhaustive.of_step("tiny", shelf.step(module), set()))


def test_a_module_without_its_data_is_left_out_and_named(shelf, capsys):
  published = modules_lib.published("far", "1x8xh100", "hlo/far.hlo.xz")
  assert list(shelf.available([published, _TINY])) == [_TINY]
  assert "far left out" in capsys.readouterr().err


@pytest.mark.parametrize(
  "name", ["mlp-tp", "mlp-fsdp, 4 at a time", "llama-1b-fsdp, 2 at a time"]
)
def test_modules_are_found_by_their_names(name):
  assert modules_lib.named(name).name == name


def test_an_overlap_has_one_or_two_keys_to_tune(shelf):
  for case in (*_cases(shelf, _TINY), *_cases(shelf, _MEETING)):
    assert 1 <= len(case.problem.keys) <= 2
    assert any(key.kind not in nccl.SEND_RECV for key in case.problem.keys)


def test_an_overlap_alone_takes_what_its_collectives_take(shelf):
  cases = _cases(shelf, _TINY)
  assert cases
  for case in cases:
    found = problem_lib.profile(case.step, case.problem, case.step.default)
    alone_us = sum(
      case.step.predict(key, case.step.default[key]).time_us
      * case.step.executions[key]
      for key in case.problem.keys
    )
    assert found.total_us >= alone_us * (1 - 1e-9)


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


def test_every_race_begins_with_what_nccl_chooses(shelf):
  step = shelf.step(_TINY)
  race = equal_budget.race("tiny", step, max_trials=3, num_seeds=1)
  assert set(race.histories) > {*equal_budget.OURS, *equal_budget.OTHERS}
  for histories in race.histories.values():
    for history in histories:
      assert history.best_us[0] == pytest.approx(race.default_us)


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


@pytest.mark.parametrize(
  ("searcher", "fixed"),
  [
    (ablation.ChannelsOnly(), "chunk_bytes"),
    (ablation.ChunksOnly(), "num_channels"),
  ],
)
def test_a_resource_that_is_not_searched_stays(shelf, searcher, fixed):
  step = shelf.step(_MEETING)
  for problem in problem_lib.problems(step):
    profile = problem_lib.Predictor(step, problem)
    state = searcher.init(problem, step.cluster, start=step.default)
    values: dict[object, set[int]] = {}
    while not searcher.done(state):
      asked = searcher.ask(state)
      for key, setting in asked.items():
        subspace = (key, setting.algorithm, setting.protocol)
        values.setdefault(subspace, set()).add(getattr(setting, fixed))
      state = searcher.tell(state, profile(asked))
    assert all(len(seen) == 1 for seen in values.values())


def test_a_table_is_printed_as_it_is_written(tmp_path, capsys):
  table = table_lib.Table(
    name="one",
    title="A table",
    columns=(
      table_lib.Column("what"),
      table_lib.Column("share", ".1%"),
    ),
    rows=({"what": "a", "share": 0.125}, {"what": "b"}),
    targets=(table_lib.Target(wanted="w", found="f", is_met=False),),
    notes=("How.",),
  )
  table_lib.show([table], "csv", tmp_path / "results")
  (tmp_path,) = tmp_path.iterdir()
  assert (tmp_path / "one.csv").read_text() == "what,share\na,12.5%\nb,\n"
  assert capsys.readouterr().out == "what,share\na,12.5%\nb,\n"
  targets = (tmp_path / "one_targets.csv").read_text()
  assert targets == "outcome,wanted,found\nmissed,w,f\n"


@pytest.mark.parametrize(
  ("argument", "message"),
  [
    ("--data=no/such", "there is no folder no/such"),
    ("--only=nothing", "--only=nothing is no table"),
  ],
)
def test_a_wrong_argument_is_named(capsys, argument, message):
  with pytest.raises(SystemExit):
    command.main([argument])
  assert message in capsys.readouterr().err
