# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Steps of all-gathers beside kernels, as HLO text."""

from __future__ import annotations

from collections.abc import Sequence

import hlo_text
from lagom_xla import cluster as cluster_lib
from lagom_xla.costs import step as step_lib
from lagom_xla.passes import hlo

H100 = cluster_lib.parse("1x8xh100")
KIB, MIB = 2**10, 2**20
# A kernel of this size has blocks for 128 of an H100's 132 SMs, all at once.
ONE_WAVE = 1024


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


def step(module: hlo.Module) -> step_lib.Step:
  return step_lib.of_module(module, H100)
