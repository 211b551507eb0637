# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""benchmarks.recipes says what plans are worth beside what others publish."""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks.recipes import cases as cases_lib
from benchmarks.recipes import rows as rows_lib
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
  assert set(row["recipes"]) == {r.name for r in recipes.for_nodes(1)}
  assert row["lower_bound_ms"] <= row["tuned_ms"]
  assert row["tuned_ms"] <= min(row["recipes"].values()) < row["default_ms"]
  assert row["over_recipe"] >= 1
  first, second = rows_lib.targets([{**row, "module": "step"}])
  assert first.is_met and not second.is_met


@pytest.mark.parametrize("key", ["default_ms", "best_recipe_ms"])
def test_a_row_that_is_behind_is_named(key):
  times = {"default_ms": 2.0, "best_recipe_ms": 2.0, "tuned_ms": 1.5, key: 1.0}
  row: dict[str, Any] = {
    "module": "step",
    "cluster": "1x8xh100",
    "recipes": {"recipe": times["best_recipe_ms"]},
    "over_recipe": times["best_recipe_ms"] / times["tuned_ms"],
    **times,
  }
  behind, _ = rows_lib.targets([row])
  assert not behind.is_met
  assert "step on 1x8xh100" in behind.found


def test_every_case_is_on_every_gpu():
  by_gpu = {
    gpu: {(c.module, c.cluster.removesuffix(gpu)) for c in cases_lib.cases(gpu)}
    for gpu in cases_lib.GPUS
  }
  h100 = by_gpu["h100"]
  assert all(found == h100 for found in by_gpu.values())
  for names in ("moe", "llama-8b", "phi-2/fsdp", "mixtral_8x7b_bf16_2x8"):
    assert names in {module for module, _ in h100}
