# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""How much slower a kernel runs beside a collective.

Lagom (arXiv 2602.20656) writes the time of kernel i beside collectives l..k as

    y_i  = sum_j f_ij * g_ij                                              (4)
    g_ij = ceil(mu_i / ((lambda - NC_j) * TB_i))                          (5)
    f_ij = theta_ij + (lambda - NC_j) * TB_i * D_i / (Bbar - V_j)         (6)

with mu_i blocks of the kernel, TB_i of them on each of lambda SMs, D_i bytes
per block, Bbar the memory bandwidth, NC_j the channels of the collective (each
takes an SM) and V_j the bandwidth that it draws. Two things are left open
there, and settled here:

*Partial waves.* (6) times (5) moves a full wave's bytes in the last wave too.
Here a kernel moves its own bytes, mu_i * D_i, however many waves it takes:

    y_ij = g_ij * theta_i + memory_us * Bbar / (Bbar - V_j)

and theta_i, the pure compute time of a wave, is what the lone run time leaves:
theta_i = (y_i - memory_us) / g_i0. So a kernel beside nothing takes its lone
time exactly, one that fills the GPU once goes from one wave to two, and none
runs faster than alone.

*The split over collectives.* (4) would count all waves once per collective.
A kernel that meets several runs at the rate 1 / y_ij while it is beside j, so
it does the share t_j / y_ij of its waves there, t_j being the time they meet;
`timeline.py` integrates that.
"""

from __future__ import annotations

import math

from lagom_xla import cluster as cluster_lib
from lagom_xla.costs import collective as collective_lib
from lagom_xla.costs import kernel as kernel_lib

# A collective never starves a kernel of memory bandwidth altogether.
_LEAST_BANDWIDTH_SHARE = 0.1


def num_waves(
  kernel: kernel_lib.KernelCost, gpu: cluster_lib.Gpu, num_channels: int
) -> int:
  """Waves of a kernel when `num_channels` SMs are taken. Lagom, equation 5."""
  num_sms = max(gpu.num_sms - num_channels, 1)
  return math.ceil(kernel.num_blocks / (num_sms * kernel.blocks_per_sm))


def slowed_us(
  kernel: kernel_lib.KernelCost,
  collective: collective_lib.CollectiveCost,
  gpu: cluster_lib.Gpu,
) -> float:
  """Run time of a kernel that is beside a collective from start to end."""
  waves_alone = num_waves(kernel, gpu, 0)
  more_waves = num_waves(kernel, gpu, collective.num_channels) - waves_alone
  wave_us = (kernel.time_us - kernel.memory_us) / waves_alone
  share = max(1 - collective.memory_gbps / gpu.hbm_gbps, _LEAST_BANDWIDTH_SHARE)
  # As a sum of what is lost, so that losing nothing changes no digit.
  lost_us = more_waves * wave_us + kernel.memory_us * (1 / share - 1)
  return kernel.time_us + lost_us
