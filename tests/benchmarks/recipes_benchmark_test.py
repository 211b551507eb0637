# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""benchmarks.recipes says what plans are worth beside what others publish."""

from __future__ import annotations

import math
from typing import Any

import pytest

from benchmarks import table as table_lib
from benchmarks.recipes import cases as cases_lib
from benchmarks.recipes import exhaustive
from benchmarks.recipes import rows as rows_lib
from benchmarks.recipes import screen
import fake_target
import hlo_text
from lagom_xla import cluster as cluster_lib
from lagom_xla.compile import config as config_lib
from lagom_xla.flags import recipes
from lagom_xla.passes import hlo
from lagom_xla.search.nccl import channel_cap
from lagom_xla.search.xla import evaluation

H100 = cluster_lib.parse("1x8xh100")
_DOUBLED = "xla_gpu_enable_while_loop_double_buffering"
_SCHEDULER = "xla_gpu_enable_latency_hiding_scheduler"
_ESTIMATES = "xla_gpu_enable_analytical_sol_latency_estimator"


def _schedule(config: config_lib.XlaConfig) -> hlo.Module:
  start, done = hlo_text.all_gather("all-gather", 2**18)
  kernel = hlo_text.kernel("kernel", 80.0 if _DOUBLED in config.options else 90)
  return hlo_text.load(f"""
  p = f32[256,256] parameter(0)
  {start}
  {done}
  {kernel}
  ROOT result = (f32[256,256]) tuple(kernel)
""")


def test_a_row_has_each_recipe_and_is_behind_none():
  target = fake_target.FakeTarget(
    name="step", cluster=H100, scheduled=_schedule
  )
  row = rows_lib.row(target)
  # Nothing in the schedule loops, so only recipes set what gains.
  assert row["from_default_ms"] == row["default_ms"]
  times = rows_lib.recipes_ms(row)
  assert set(times) == {r.name for r in recipes.for_nodes(1)}
  assert row["lower_bound_ms"] <= row["tuned_ms"]
  assert row["tuned_ms"] <= min(times.values()) < row["default_ms"]
  assert row["tuned_ms"] <= row["uncapped_ms"]
  assert row["over_recipe"] == min(times.values()) / row["tuned_ms"]
  first, second = rows_lib.targets([{**row, "module": "step"}])
  assert first.is_met and not second.is_met


def _row(
  module: str = "step", tuned_ms: float = 1.5, **fields: Any
) -> dict[str, Any]:
  row: dict[str, Any] = {
    "module": module,
    "cluster": "1x8xh100",
    "default_ms": 2.0,
    rows_lib.RECIPES[0]: 2.0,
    "tuned_ms": tuned_ms,
    "over_recipe": 2.0 / tuned_ms,
  }
  return {**row, **fields}


@pytest.mark.parametrize("key", ["default_ms", rows_lib.RECIPES[0]])
def test_a_row_that_is_behind_is_named(key):
  behind, _ = rows_lib.targets([{**_row(), key: 1.0}])
  assert not behind.is_met
  assert "step on 1x8xh100" in behind.found


def test_rows_say_in_how_many_a_cap_was_looked_for():
  _, ahead = rows_lib.targets([_row(), _row(uncapped_ms=1.6), _row()])
  assert ahead.found.endswith("looked for in 1 of 3 rows")


def test_options_are_judged_without_a_plugin():
  target = fake_target.FakeTarget(
    name="step", cluster=H100, scheduled=_schedule
  )
  for candidate in rows_lib.search_options(target, may_cap=False).scheduled:
    assert candidate.settings == candidate.runs.default
    assert candidate.tuned == candidate.under_nccl_defaults
  for candidate in rows_lib.search_options(target).scheduled:
    default = candidate.runs.default
    most = max(s.num_channels for s in candidate.settings.values())
    assert candidate.settings == channel_cap.capped(default, most)


# More than pairs and triples.


def _gathered_twice() -> hlo.Module:
  """A schedule on which three knobs can act: its gathers can be combined."""
  starts = [hlo_text.all_gather(f"all-gather.{n}", 2**18) for n in (1, 2)]
  lines = [line for start in starts for line in start]
  return hlo_text.load(
    "\n".join(
      [
        "p = f32[256,256] parameter(0)",
        *lines,
        hlo_text.kernel("kernel", 90),
        "ROOT result = (f32[256,256]) tuple(kernel)",
      ]
    )
  )


def test_all_pairs_and_triples_of_knobs_are_compiled_once():
  compiled: list[frozenset[tuple[str, Any]]] = []

  def schedule(config: config_lib.XlaConfig) -> hlo.Module:
    compiled.append(frozenset(config.options.items()))
    return _gathered_twice()

  target = fake_target.FakeTarget(name="step", cluster=H100, scheduled=schedule)
  row = exhaustive.row(target, num_knobs=3)
  num_pairs, num_triples = math.comb(3, 2), math.comb(3, 3)
  assert row["compiled"] + row["refused"] == 3 + num_pairs + num_triples
  together = compiled[-num_pairs - num_triples :]
  assert len(set(together)) == num_pairs + num_triples
  assert row["best_ms"] <= row["default_ms"]
  assert row["excess"] == row["kept_ms"] / row["best_ms"] - 1


@pytest.mark.parametrize(("excess", "is_met"), [(0.004, True), (0.006, False)])
def test_a_plan_is_held_to_half_a_percent_of_the_best(excess, is_met):
  row = {"module": "fsdp", "cluster": "1x8xh100", "excess": excess}
  (target,) = exhaustive.table([row]).targets
  assert target.is_met == is_met
  assert is_met or "fsdp on 1x8xh100" in target.found


# Options that no knob sets.


def test_a_screen_shows_what_no_knob_sets_and_a_step_feels():
  option = "xla_gpu_experimental_collective_cse_distance_threshold"

  def schedule(config: config_lib.XlaConfig) -> hlo.Module:
    run_us = 90 - 10 * (option in config.options)
    run_us -= 20 * (_DOUBLED in config.options)
    kernel = hlo_text.kernel("kernel", float(run_us))
    return hlo_text.load(f"p = f32[256,256] parameter(0)\nROOT {kernel}")

  target = fake_target.FakeTarget(name="step", cluster=H100, scheduled=schedule)
  rows = screen.rows(target)
  # The search keeps a recipe that has loops doubled.
  assert {row["option"] for row in rows} == {option}
  assert all(row["kept_ms"] > row["with_ms"] for row in rows)
  named = [{"module": "step", "cluster": "1x8xh100", **row} for row in rows]
  (target,) = screen.table(named).targets
  assert not target.is_met and option in target.found
  (target,) = screen.table([]).targets
  assert target.is_met


def test_no_option_is_screened_with_the_scheduler_switched_off_by_it():
  tried: list[dict[str, Any]] = []

  def schedule(config: config_lib.XlaConfig) -> hlo.Module:
    options = dict(config.options)
    tried.append(options)
    run_us = 90 - 10 * (options.get(_ESTIMATES) is False)
    kernel = hlo_text.kernel("kernel", float(run_us))
    return hlo_text.load(f"p = f32[256,256] parameter(0)\nROOT {kernel}")

  # There no knob sets it.
  a100 = cluster_lib.parse("1x8xa100_80")
  target = fake_target.FakeTarget(name="step", cluster=a100, scheduled=schedule)
  found = {row["option"]: row["value"] for row in screen.rows(target)}
  assert found == {
    _ESTIMATES: "False enable_latency_hiding_scheduler=True",
    # It is read where there are no estimates.
    "xla_gpu_enable_approx_costly_collectives": "True"
    " enable_latency_hiding_scheduler=True"
    " enable_analytical_sol_latency_estimator=False",
  }
  without_estimates = [o for o in tried if o.get(_ESTIMATES) is False]
  assert all(o[_SCHEDULER] is True for o in without_estimates)


@pytest.mark.parametrize(
  ("module", "kind"), [("tp", "all-reduce"), ("experts", "all-to-all")]
)
def test_products_wait_for_collectives_of_the_steps_that_are_screened(
  h100s: object, module, kind
):
  (case,) = [case for case in screen.CASES if case.module == module]
  scheduled = evaluation.scheduled_step(case.load(None))
  waits = scheduled.timeline(scheduled.default).exposed_us
  in_loops = [c for c in scheduled.analysis.collectives if c.executions > 1]
  assert {c.kind for c in in_loops} == {kind}
  assert any(waits.get(c.name, 0.0) > 0 for c in in_loops)


# Rows of earlier runs.


def test_rows_of_earlier_runs_stay_beside_new_ones(tmp_path):
  rows = [_row("one", 2.0), _row("two", 3.0), _row("gone", 1.0)]
  earlier = rows_lib.table(rows)
  earlier.write_csv(tmp_path)
  merged = table_lib.beside(
    rows_lib.table([_row("two", 2.5)]),
    tmp_path,
    [("one", "1x8xh100"), ("two", "1x8xh100")],
    fields=("module", "cluster"),
  )
  assert [(r["module"], r["tuned_ms"]) for r in merged] == [
    ("one", 2.0),
    ("two", 2.5),
  ]
  assert rows_lib.recipes_ms(merged[0]) == {rows_lib.RECIPES[0]: 2.0}


def test_every_case_is_on_every_gpu():
  by_gpu = {
    gpu: {(c.module, c.cluster.removesuffix(gpu)) for c in cases_lib.cases(gpu)}
    for gpu in cases_lib.GPUS
  }
  h100 = by_gpu["h100"]
  assert all(found == h100 for found in by_gpu.values())
  for names in ("moe", "llama-8b", "phi-2/fsdp", "mixtral_8x7b_bf16_2x8"):
    assert names in {module for module, _ in h100}
