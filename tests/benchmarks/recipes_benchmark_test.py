# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""benchmarks.recipes says what plans are worth beside what others publish."""

from __future__ import annotations

import math
from typing import Any

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

H100 = cluster_lib.parse("1x8xh100")
_DOUBLED = "xla_gpu_enable_while_loop_double_buffering"


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


# Rows of earlier runs.


def test_every_case_is_on_every_gpu():
  by_gpu = {
    gpu: {(c.module, c.cluster.removesuffix(gpu)) for c in cases_lib.cases(gpu)}
    for gpu in cases_lib.GPUS
  }
  h100 = by_gpu["h100"]
  assert all(found == h100 for found in by_gpu.values())
  for names in ("moe", "llama-8b", "phi-2/fsdp", "mixtral_8x7b_bf16_2x8"):
    assert names in {module for module, _ in h100}
