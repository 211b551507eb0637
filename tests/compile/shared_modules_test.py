# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Large modules of other programs are scheduled or read unchanged.

They are XLA's own benchmark modules (partitioned, not optimized) and one that
XLA optimized in 2024. They are not part of the repository; without a directory
shared/data beside it, these tests are skipped.
"""

from __future__ import annotations

import collections
import pathlib
from typing import Any

import pytest

from lagom_xla import cluster as cluster_lib
from lagom_xla import validation
from lagom_xla.compile import load
from lagom_xla.compile import target as target_lib
from lagom_xla.passes import collectives
from lagom_xla.report import results
from lagom_xla.tuner import tuner

_DATA = pathlib.Path(__file__).resolve().parents[3] / "shared/data"


def path_of(name: str) -> pathlib.Path:
  path = _DATA / name
  if not path.exists():
    pytest.skip(f"shared/data/{name} is not there: it is too large to ship")
  return path


def inspected(name: str, cluster: str) -> dict[str, Any]:
  """The inspection of a module's schedule.

  Not of the step that runs, as short of memory as these are on so few devices:
  XLA takes a minute to compile the largest to the end.
  """
  target = load.load(str(path_of(name)), cluster_lib.parse(cluster))
  schedule = target_lib.of_module(target.schedule(), target.cluster, name=name)
  return validation.write(results.inspection(tuner.inspect(schedule)))


def test_llama_3_1_70b_gathers_and_scatters_the_bytes_of_its_shapes(h100s):
  # Sizes of Llama 3.1 70B's config.json: 80 layers of width 8192, 64 query and
  # 8 key and value heads of 128, 28672 hidden units, 128256 words.
  report = inspected("hlo/hlo_llama31_70b_bf16_16x8.hlo.xz", "16x8xh100")
  assert report["module"]["num_partitions"] == 16 * 8
  assert not report["loops_of_unknown_length"]
  assert report["overlaps"]
  layer = 2 * 8192 * 8192 + 2 * 8192 * 1024 + 3 * 8192 * 28672
  vocab = 8192 * 128256
  gathered = report["totals"]["all-gather"]["result_bytes"]
  # In bfloat16: layers for the forward and the backward pass, the rest once.
  # Norms are not sharded.
  assert gathered == 2 * (2 * 80 * layer + 2 * vocab)
  scattered = report["totals"]["reduce-scatter"]["operand_bytes"]
  assert scattered == 2 * (80 * layer + 2 * vocab)


def test_a_large_optimized_module_of_2024_is_read():
  name = (
    "pax_a100/module_0040.pjit__wrapped_step_fn."
    "sm_8.0_gpu_after_optimizations.hlo.pb.xz"
  )
  path_of(name)
  report = inspected(name, "1x4xa100_40")
  assert report["module"]["num_partitions"] == 4
  assert report["collectives"]
  assert report["overlaps"]
  assert report["gemm_flops"] > 0


def test_maxtexts_dump_is_partitioned_as_in_its_optimized_dump(h100s):
  # XLA of 2024 optimized the second from the first, with other options.
  stem = "maxtext_h100/module_0016.jit_train_step"
  ours, theirs = (
    _operand_bytes(f"{stem}.{stage}.hlo.pb.xz")
    for stage in ("before_optimizations", "sm_9.0_gpu_after_optimizations")
  )
  assert {"all-gather", "reduce-scatter", "all-to-all"} < set(ours)
  assert ours == theirs


def _operand_bytes(name: str) -> dict[str, int]:
  """The operand bytes of a step's collectives, by kind."""
  cluster = cluster_lib.parse("1x4xh100")
  scheduled = load.load(str(path_of(name)), cluster).schedule()
  total: collections.Counter[str] = collections.Counter()
  for collective in collectives.find(scheduled):
    total[collective.kind] += collective.operand_bytes * collective.executions
  return dict(total)
