# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""The contention of a kernel and a collective that run side by side.

Lagom (arXiv 2602.20656) writes the time of kernel i beside collectives l..k as

    y_i  = sum_j f_ij * g_ij                                              (4)
    g_ij = ceil(mu_i / ((lambda - NC_j) * TB_i))                          (5)
    f_ij = theta_ij + (lambda - NC_j) * TB_i * D_i / (Bbar - V_j)         (6)

with mu_i blocks of the kernel, TB_i of them on each of lambda SMs, D_i bytes
per block, Bbar the memory bandwidth, NC_j the channels of the collective (each
takes an SM) and V_j the bandwidth that it draws. It says nothing of what the
collective loses. What is left open there is settled here:

*Sharing memory.* V_j is what a collective draws alone. While a kernel moves
bytes it asks for all of Bbar, the two together for Bbar + V_j, and each gets
its share of what there is. So the kernel moves at Bbar / (1 + V_j / Bbar), and
the collective at Bbar / (Bbar + V_j) of its pace: (6) holds, with V_j times
that in place of V_j.

*Partial waves.* (6) times (5) moves a full wave's bytes in the last wave too.
Here a kernel moves its own bytes, mu_i * D_i, however many waves it takes:

    y_ij = g_ij * theta_i + memory_us * (1 + V_j / Bbar)

and theta_i, the pure compute time of a wave, is what the lone run time leaves:
theta_i = (y_i - memory_us) / g_i0. So a kernel beside nothing takes its lone
time exactly, one that fills the GPU once goes from one wave to two, and none
runs faster than alone.

*What the collective loses.* A kernel asks for memory in the share m of its time
that its traffic takes. Over the whole kernel the collective makes

    1 - m + m * Bbar / (Bbar + V_j)

of its lone pace. One that could start in the middle of a kernel needs SMs that
the kernel's blocks are on: XLA gives collectives the stream of higher priority,
so it gets those that retire first, which on average are half a wave away.

*The split over collectives.* (4) would count all waves once per collective.
A kernel that meets several runs at the rate 1 / y_ij while it is beside j, so
it does the share t_j / y_ij of its waves there, t_j being the time they meet;
`replay/streams.py` integrates that.
"""

from __future__ import annotations

import dataclasses
import math

from lagom_xla import cluster as cluster_lib
from lagom_xla.costs import collective as collective_lib
from lagom_xla.costs import kernel as kernel_lib


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Beside:
  """A kernel and a collective side by side, from start to end.

  Attributes:
    kernel_us: run time of the kernel.
    collective_factor: run time of the collective, over its lone one; at least
      1.
    wait_us: what the collective waits for SMs if it could start in the middle
      of the kernel; none if it starts together with the kernel.
  """

  kernel_us: float
  collective_factor: float
  wait_us: float


def beside(
  kernel: kernel_lib.KernelCost,
  collective: collective_lib.CollectiveCost,
  gpu: cluster_lib.Gpu,
) -> Beside:
  """What a kernel and a collective do to each other."""
  waves_alone = num_waves(kernel, gpu, 0)
  more_waves = num_waves(kernel, gpu, collective.num_channels) - waves_alone
  wave_us = (kernel.time_us - kernel.memory_us) / waves_alone
  demand = collective.memory_gbps / gpu.hbm_gbps
  # As a sum, so that a kernel that loses nothing takes exactly its lone time.
  lost_us = more_waves * wave_us + kernel.memory_us * demand
  memory_share = kernel.memory_us / kernel.time_us if kernel.time_us else 0.0
  pace = 1 - memory_share * demand / (1 + demand)
  return Beside(
    kernel_us=kernel.time_us + lost_us,
    collective_factor=1 / pace,
    wait_us=_wait_us(kernel, collective.num_channels, gpu),
  )


def num_waves(
  kernel: kernel_lib.KernelCost, gpu: cluster_lib.Gpu, num_channels: int
) -> int:
  """Waves of a kernel when `num_channels` SMs are taken. Lagom, equation 5."""
  num_sms = max(gpu.num_sms - num_channels, 1)
  return math.ceil(kernel.num_blocks / (num_sms * kernel.blocks_per_sm))


def _wait_us(
  kernel: kernel_lib.KernelCost, num_channels: int, gpu: cluster_lib.Gpu
) -> float:
  num_free_sms = gpu.num_sms - kernel.num_blocks / kernel.blocks_per_sm
  if num_channels <= max(num_free_sms, 0.0):
    return 0.0
  return kernel.time_us / num_waves(kernel, gpu, 0) / 2
