# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""benchmarks.recipes says what plans are worth beside what others publish."""

from __future__ import annotations

from benchmarks.recipes import __main__ as command
from benchmarks.recipes import cases as cases_lib
import fake_target
import hlo_text
from lagom_xla import cluster as cluster_lib
from lagom_xla.compile import config as config_lib
from lagom_xla.flags import recipes
from lagom_xla.passes import hlo


def _schedule(config: config_lib.XlaConfig) -> hlo.Module:
  start, done = hlo_text.all_gather("all-gather", 2**18)
  is_doubled = "xla_gpu_enable_while_loop_double_buffering" in config.options
  kernel = hlo_text.kernel("kernel", 80.0 if is_doubled else 90.0)
  return hlo_text.load(f"""
  p = f32[256,256] parameter(0)
  {start}
  {done}
  {kernel}
  ROOT result = (f32[256,256]) tuple(kernel)
""")


def test_a_row_has_each_recipe_and_is_behind_none():
  target = fake_target.FakeTarget(
    name="step", cluster=cluster_lib.parse("1x8xh100"), scheduled=_schedule
  )
  row = command.searched(target)
  # Nothing in the schedule loops, so only recipes set what gains.
  assert row["from_default_ms"] == row["default_ms"]
  best_ms = min(row[recipe.name] for recipe in recipes.for_nodes(1))
  assert row["lower_bound_ms"] <= row["tuned_ms"] <= row["uncapped_ms"]
  assert row["tuned_ms"] <= best_ms < row["default_ms"]
  assert row["over_recipe"] == best_ms / row["tuned_ms"]
  first, second = command.table([{**row, "module": "step"}]).targets
  assert first.is_met and not second.is_met


def test_every_case_is_on_every_gpu():
  by_gpu = {
    gpu: {(c.module, c.cluster.removesuffix(gpu)) for c in cases_lib.cases(gpu)}
    for gpu in cases_lib.GPUS
  }
  h100 = by_gpu["h100"]
  assert all(found == h100 for found in by_gpu.values())
  for name in ("moe", "llama-8b", "phi-2/fsdp", "mixtral_8x7b_bf16_2x8"):
    assert name in {module for module, _ in h100}
