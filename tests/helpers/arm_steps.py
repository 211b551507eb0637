# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Steps with an all-gather and a kernel that options speed up, and arms."""

from __future__ import annotations

import fake_target
import hlo_text
from lagom_xla import cluster as cluster_lib
from lagom_xla.compile import config as config_lib
from lagom_xla.passes import hlo
from lagom_xla.search.xla import arms as arms_lib
from lagom_xla.search.xla import candidates

H100 = cluster_lib.parse("1x8xh100")
KIB = 2**10
DOUBLED = "xla_gpu_enable_while_loop_double_buffering"
SLOP = "xla_gpu_memory_limit_slop_factor"
HEURISTIC = "xla_gpu_experimental_enable_heuristic_collective_combining"
EVERYTHING = {
  "xla_gpu_enable_triton_gemm",
  "xla_disable_hlo_passes",
  DOUBLED,
}


def step(
  kernels_us: float, *, is_full: bool = False, more: str = ""
) -> hlo.Module:
  """An exposed all-gather and a kernel, after other instructions.

  With `is_full`, the arguments take all of the memory.
  """
  start, done = hlo_text.all_gather("all-gather", 256 * KIB)
  large = "large = f32[64,16384,16384] parameter(1)" if is_full else ""
  return hlo_text.load(f"""
  p = f32[256,256] parameter(0)
  {large}
  {more}
  {start}
  {done}
  {hlo_text.kernel("kernel", kernels_us)}
  ROOT result = (f32[256,256]) tuple(kernel)
""")


def target(*fast: str, slow_us: float = 200.0) -> fake_target.FakeTarget:
  """A step that gets faster by a sixteenth with each option."""

  def schedule(config: config_lib.XlaConfig) -> hlo.Module:
    num_set = sum(name in config.options for name in fast)
    return step(slow_us * (1 - num_set / 16))

  return fake_target.of(schedule)


def arm(name: str, **options: bool | int | str) -> arms_lib.Arm:
  return arms_lib.Arm(name=name, config=config_lib.XlaConfig(options=options))


def us(candidate: candidates.Candidate) -> float:
  return candidate.under_nccl_defaults.step_time_us
