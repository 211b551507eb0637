# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""The paper's table has all its workloads, each under all plans."""

from __future__ import annotations

import csv
import dataclasses
import pathlib

import pytest

from benchmarks.paper import __main__ as paper
from benchmarks.paper import cases
from benchmarks.paper import compare
from benchmarks.paper import show
from lagom_xla.costs import step as step_lib
from lagom_xla.passes import registry

MODELS = {
  "fsdp": {"phi-2", "llama-3-8b", "mpt-7b"},
  "tp": {"phi-2", "llama-3-8b", "mpt-7b"},
  "ep": {"deepseek-moe-16b", "olmoe-1b-7b"},
}


def small(name: str) -> cases.Case:
  """A workload of the table with few and narrow layers."""
  case = next(case for case in cases.table_2() if case.name == name)
  arch = dataclasses.replace(
    case.workload.arch,
    num_layers=6,
    d_model=512,
    num_heads=8,
    num_kv_heads=8,
    d_ffn=2048,
    vocab_size=1024,
    # A layer's share of it decides what is combined.
    num_params=6 * 3_500_000,
  )
  workload = dataclasses.replace(
    case.workload, arch=arch, num_microbatches=1, seq_len=1024
  )
  return dataclasses.replace(case, workload=workload)


@pytest.fixture(scope="module")
def steps() -> dict[str, tuple[cases.Case, step_lib.Step]]:
  if registry.plugin_path() is None:
    pytest.skip("JAX's CUDA plugin is not installed: nothing compiles for GPUs")
  table = small(compare.WORKLOAD), small("phi-2/tp/8/b")
  return {case.name: (case, case.step()) for case in table}


@pytest.fixture(scope="module")
def rows(
  steps: dict[str, tuple[cases.Case, step_lib.Step]],
) -> list[compare.Row]:
  return [compare.compare(case, step) for case, step in steps.values()]


@pytest.mark.parametrize("cluster", cases.CLUSTERS)
@pytest.mark.parametrize(
  ("kind", "num_gpus"),
  [
    ("fsdp", 8),
    ("fsdp", 16),
    ("tp", 8),
    ("tp", 16),
    ("ep", 8),
  ],
)
def test_the_table_has_every_workload_of_the_paper(
  cluster: str, kind: str, num_gpus: int
):
  models = [
    case.model
    for case in cases.table_2()
    if case.cluster == cluster
    and case.kind == kind
    and case.workload.layout.data * case.workload.layout.model == num_gpus
    and case.num_nodes == num_gpus // 8
  ]
  assert sorted(models) == sorted(MODELS[kind])


# Table 2: sequences per GPU and microbatch, and over all GPUs per step.
@pytest.mark.parametrize(
  ("name", "microbatch_size", "global_batch_size"),
  [
    ("phi-2/fsdp/8/a", 2, 16),
    ("phi-2/fsdp/16/a", 2, 32),
    ("llama-3-8b/fsdp/16/b", 1, 32),
    ("phi-2/tp/8/a", 8, 512),
    ("phi-2/tp/16/a", 8, 512),
    ("llama-3-8b/tp/8/a", 4, 256),
    ("mpt-7b/tp/16/b", 2, 256),
    ("olmoe-1b-7b/ep/8/a", 2, 16),
  ],
)
def test_batches_are_those_of_the_paper(
  name: str, microbatch_size: int, global_batch_size: int
):
  case = next(case for case in cases.table_2() if case.name == name)
  workload = case.workload
  assert workload.microbatch_size == microbatch_size
  num_sequences = microbatch_size * workload.layout.data
  assert num_sequences * workload.num_microbatches == global_batch_size


def test_what_the_paper_does_not_tell_is_varied_one_thing_at_a_time():
  table = {case.name: case.workload for case in cases.table_2()}
  varied = set()
  for case in cases.sensitivity():
    usual = dataclasses.asdict(table[case.name])
    changed = {
      name
      for name, value in dataclasses.asdict(case.workload).items()
      if value != usual[name]
    }
    assert len(changed) <= 1
    varied |= changed
  assert varied == {"seq_len", "kept", "dtype", "dispatch"}


def test_every_plan_is_a_whole_one_and_lagoms_is_never_slower(
  rows: list[compare.Row],
):
  for row in rows:
    assert set(row.plans) == set(compare.SEARCHERS)
    for plan in row.plans.values():
      assert plan.configuration.keys() == row.default.keys()
      assert row.bound_us <= plan.step_time_us
      assert plan.num_trials > 1
    assert row.plans["Lagom"].step_time_us <= row.default_us * (1 + 1e-6)


def test_autoccl_makes_lone_collectives_no_slower(rows: list[compare.Row]):
  for row in rows:
    # It judges collectives as they run, with what kernels delay them.
    assert row.fastest_us <= 1.05 * row.collective_us


def test_shares_of_a_step_add_up(rows: list[compare.Row]):
  for row in rows:
    beside_us = row.exposed_us + row.slowdown_us + row.copies_us
    assert row.kernel_us + beside_us == pytest.approx(row.default_us)


def test_patterns_are_the_two_of_the_paper(
  steps: dict[str, tuple[cases.Case, step_lib.Step]],
):
  _, step = steps[compare.WORKLOAD]
  lines = list(compare.lines(step))
  of_first = [line for line in lines if line.pattern == "1"]
  of_second = [line for line in lines if line.pattern == "2"]
  assert {frozenset(line.settings) for line in of_first} == {
    frozenset({"all-gather"})
  }
  assert {frozenset(line.settings) for line in of_second} == {
    frozenset({"all-gather", "reduce-scatter"})
  }
  for found in (of_first, of_second):
    by_who = {line.who: line for line in found}
    assert by_who["NCCL 2.18, as reported"].speedup == 1.0
    searched = [who for who in by_who if who.endswith("searched here")]
    assert len(searched) == len(compare.SEARCHERS)
  many = next(line for line in of_first if line.who == "AutoCCL, as reported")
  # 61 of 84 SMs taken: the kernels pay for it, in the paper and here.
  assert many.num_waves > 1.5
  assert many.speedup < 1


def test_the_command_prints_csv_and_its_progress(
  steps: dict[str, tuple[cases.Case, step_lib.Step]],
  rows: list[compare.Row],
  monkeypatch: pytest.MonkeyPatch,
  capsys: pytest.CaptureFixture[str],
):
  row_of = {row.case.name: row for row in rows}
  monkeypatch.setattr(cases.Case, "step", lambda case: steps[case.name][1])
  monkeypatch.setattr(compare, "compare", lambda case, _: row_of[case.name])
  table = (small(compare.WORKLOAD),)
  paper.main(["--format=csv", "--no-sensitivity"], table=table)
  captured = capsys.readouterr()
  step_times, shares, settings, patterns = captured.out.split("\n\n")
  assert all((shares, settings))
  (times,) = csv.DictReader(step_times.splitlines())
  assert times["workload"] == "phi-2 FSDP"
  ratio = float(times["NCCL_ms"]) / float(times["Lagom_ms"])
  assert float(times["Lagom"]) == pytest.approx(ratio, abs=1e-2)
  low, high = compare.LAGOM_SPEEDUP["fsdp"]
  assert times["lagom_reported"].startswith(f"{low:.2f}–{high:.2f}: ")
  lines = list(csv.DictReader(patterns.splitlines()))
  assert {line["pattern"] for line in lines} == {"1", "2"}
  assert "1/1 phi-2/fsdp/8/a" in captured.err


def test_committed_results_have_the_columns_of_the_tables(
  rows: list[compare.Row], tmp_path: pathlib.Path
):
  results = pathlib.Path(paper.__file__).parent / "results"
  for table in (
    show.step_times(rows),
    show.sensitivity(rows),
    show.shares(rows),
    show.settings(rows),
    show.pattern_lines([]),
  ):
    table.write_csv(tmp_path)
    name = f"{table.name}.csv"
    with (results / name).open() as committed, (tmp_path / name).open() as new:
      assert next(csv.reader(committed)) == next(csv.reader(new))


def test_a_name_that_no_workload_has_is_refused():
  with pytest.raises(SystemExit, match=r"no workload has .*gpt-4"):
    paper.main(["--only=gpt-4"])
