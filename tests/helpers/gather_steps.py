# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Steps of all-gathers beside kernels, as HLO text, and targets of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import fake_target
import hlo_text
from lagom_xla import cluster as cluster_lib
from lagom_xla.compile import config as config_lib
from lagom_xla.costs import step as step_lib
from lagom_xla.passes import hlo
from lagom_xla.passes.combine import table
from lagom_xla.search.xla import candidates
from lagom_xla.search.xla import knobs

H100 = cluster_lib.parse("1x8xh100")
KIB, MIB = 2**10, 2**20
# A kernel of this size has blocks for 128 of an H100's 132 SMs, all at once.
ONE_WAVE = 1024
GATHER = knobs.OPTIONS["all-gather"]


def module(
  *gathers: Sequence[int],
  kernels_us: float = 50.0,
  size: int = 256,
  plain_scatters: Sequence[int] = (),
  tail_us: float = 0.0,
) -> hlo.Module:
  """All-gathers, each beside one kernel of size x size; then one alone.

  The kernels are library calls, whose times XLA's estimates set.
  """
  lines = []
  for position, sizes in enumerate(gathers):
    start, done = hlo_text.all_gather(f"all-gather.{position}", *sizes)
    kernel = hlo_text.kernel(f"kernel.{position}", kernels_us, size=size)
    lines += [start, kernel, done]
  if tail_us:
    lines.append(hlo_text.kernel("tail", tail_us, size=size))
  for position, num_bytes in enumerate(plain_scatters):
    lines += [
      f"whole.{position} = f32[{num_bytes // 4}] custom-call(),"
      ' custom_call_target="AllocateBuffer"',
      f"reduce-scatter.{position} = f32[{num_bytes // 32}]"
      f" reduce-scatter(whole.{position}), {hlo_text.GATHER}, to_apply=add",
    ]
  body = "\n".join(lines)
  return hlo_text.load(f"""
  p = f32[{size},{size}] parameter(0)
{body}
  ROOT result = (f32[{size},{size}]) tuple(p)
""")


def target(
  schedule: Callable[[config_lib.XlaConfig], hlo.Module],
  *,
  is_read_only: bool = False,
) -> fake_target.FakeTarget:
  return fake_target.FakeTarget(
    name="step",
    cluster=H100,
    scheduled=schedule,
    is_scheduled=is_read_only,
  )


def step(module: hlo.Module) -> step_lib.Step:
  return step_lib.of_module(module, H100)


def tuned_us(candidate: candidates.Candidate) -> float:
  return candidate.tuned.step_time_us


APART = [[64 * KIB]] * 8
TOGETHER = [[64 * KIB] * 8]


def combines(config: config_lib.XlaConfig) -> hlo.Module:
  """What XLA does: beyond the default, eight all-gathers become one."""
  return module(*(TOGETHER if is_combined(config) else APART), kernels_us=3.0)


def is_combined(config: config_lib.XlaConfig) -> bool:
  return int(config.options.get(GATHER, 0)) > table.DEFAULT_BYTES
