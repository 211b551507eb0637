# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Contention between a kernel and a collective that run side by side.

Lagom (arXiv 2602.20656) writes the time of kernel i beside collectives l..k as

    y_i  = sum_j f_ij * g_ij                                              (4)
    g_ij = ceil(mu_i / ((lambda - NC_j) * TB_i))                          (5)
    f_ij = theta_ij + (lambda - NC_j) * TB_i * D_i / (Bbar - V_j)         (6)

with mu_i blocks of the kernel, TB_i of them on each of lambda SMs, D_i bytes
per block, the memory bandwidth Bbar, the channels NC_j of the collective (each
takes an SM) and the bandwidth V_j that it draws. This module adds the terms
that the paper leaves open, and the loss of the collective. docs/cost_model.md
has the errors.

*Sharing memory.* V_j is the bandwidth that a collective draws alone. A
memory-bound kernel always has waiting requests. (6) leaves it Bbar - V_j; here
it keeps at least half of Bbar. Its traffic takes memory_us / e_i alone, at its
rate e_i Bbar, and s_j times as long beside the collective:

    s_j = Bbar / (Bbar - min(V_j, Bbar / 2))
    s_j = 1 + c min(V_j / Bbar, 1/2), c = 4    if its bytes fit in half of L2
    s_j = 1 + V_j / Bbar                       if it is compute-bound

Bytes that fit in half of L2 (one of its two partitions) are still there from
the previous kernel, so the kernel alone never waits for memory. Beside a
collective, whose bytes go through L2, it does. c is fitted to four such kernels
of the H100 step, which slow down 1.9 to 3.6 times at V_j = 0.3 Bbar. A kernel
whose arithmetic takes more than half of its time prefetches its bytes in
bursts, so it and the collective share the bandwidth in proportion to Bbar and
V_j.

*Threads.* Some kernels are bound by the time that their threads take to start,
load, store and exit (threads_us of `kernel.KernelCost`). If their bytes come
from L2, all of that time is multiplied by s_j. If they come from memory, the
latency beside a collective is that of the kernel alone, and the kernel loses
time only if its traffic takes longer than its threads:

    max(s_j memory_us / e_i, threads_us) - max(memory_us / e_i, threads_us)

Such a kernel also loses no waves: an update in place of 134 MB, the only
measured one, slows down 1.04 times beside 24 channels.

*Partial waves.* (6) times (5) counts a full wave's bytes for the last wave too.
Here a kernel moves its own bytes, mu_i * D_i, in any number of waves:

    y_ij = (1 + w_i (g_ij / g_i0 - 1)) (y_i - memory_us / e_i)
           + s_j memory_us / e_i

with the first memory_us / e_i replaced by threads_us if that is longer. g_i0 is
the number of waves of the kernel alone, so a kernel without a collective takes
exactly its time alone. w_i is 1, except for kernels whose blocks wait for each
other (`grid.py`, which also has mu_i).

*The collective's loss.* A kernel accesses memory during the share m of its
time. Over the whole kernel, the collective runs at

    1 - m + m * Bbar / (Bbar + V_j)

of its speed alone. A collective that becomes ready in the middle of a kernel
needs SMs that the kernel's blocks occupy. XLA gives collectives the stream of
higher priority, so it gets the SMs of the blocks that retire first, on average
after half a wave.

*Collectives beside collectives.* Collectives of several streams run
concurrently. A kernel beside them loses to the sum of their channels and of
their bandwidths. They slow each other down if together they need more than all
of a resource: the links within nodes, the links between nodes, or the memory.
Then each slows down in proportion, as if they took turns:

    factor_j = max(1, sum of loads of a resource) over the resources of j

A collective bound by its links has load 1. So two collectives on one fabric
take as long as in sequence, except for their latencies, and two on different
fabrics hide each other. This is not measured; only collectives alone are.

*The split over collectives.* (4) would count all waves once per collective. A
kernel that overlaps several runs at the rate 1 / y_ij beside j. So it does the
share t_j / y_ij of its waves there, where t_j is the time of their overlap.
`replay/timeline.py` integrates that.
"""

from __future__ import annotations

import dataclasses
import math

from lagom_xla import cluster as cluster_lib
from lagom_xla.costs import collective as collective_lib
from lagom_xla.costs import kernel as kernel_lib

# c above: relative loss of a kernel whose traffic stays in L2, per Bbar drawn
# by a collective.
_L2_LOSS = 4.0


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Beside:
  """A kernel and a collective side by side, from start to end.

  Attributes:
    kernel_us: run time of the kernel.
    collective_factor: run time of the collective over that alone; at least 1.
    wait_us: wait of the collective for SMs if it becomes ready in the middle of
      the kernel; none if it starts together with the kernel.
  """

  kernel_us: float
  collective_factor: float
  wait_us: float


def beside(
  kernel: kernel_lib.KernelCost,
  collective: collective_lib.CollectiveCost,
  gpu: cluster_lib.Gpu,
  *,
  slowdown_scale: float = 1.0,
) -> Beside:
  """The slowdown of a kernel and a collective, or a copy, by each other.

  `slowdown_scale` multiplies the kernel's loss.
  """
  waves_alone = num_waves(kernel, gpu, 0)
  more_waves = num_waves(kernel, gpu, collective.num_channels) - waves_alone
  traffic_us = min(kernel.memory_us / kernel.memory_share, kernel.time_us)
  threads_us = min(kernel.threads_us, kernel.time_us)
  wave_us = (kernel.time_us - max(traffic_us, threads_us)) / waves_alone
  demand = collective.memory_gbps / gpu.hbm_gbps
  # As a sum, so that a kernel that loses nothing takes exactly its time alone.
  lost_us = more_waves * kernel.wave_loss * wave_us
  lost_us += _traffic_loss_us(kernel, traffic_us, threads_us, demand, gpu)
  busy_share = kernel.memory_us / kernel.time_us if kernel.time_us else 0.0
  pace = 1 - busy_share * demand / (1 + demand)
  return Beside(
    kernel_us=kernel.time_us + slowdown_scale * lost_us,
    collective_factor=1 / pace,
    wait_us=_wait_us(kernel, collective.num_channels, gpu, waves_alone),
  )


def _traffic_loss_us(
  kernel: kernel_lib.KernelCost,
  traffic_us: float,
  threads_us: float,
  demand: float,
  gpu: cluster_lib.Gpu,
) -> float:
  """Extra time of a kernel's traffic: (s_j - 1) memory_us / e_i.

  `traffic_us` and `threads_us` are times alone; `demand` is V_j / Bbar.
  """
  bound_us = max(traffic_us, threads_us)
  if bound_us <= kernel.time_us / 2:
    return traffic_us * demand
  drawn = min(demand, 0.5)
  if kernel.memory_us * gpu.hbm_gbps * 1e3 <= gpu.l2_bytes / 2:
    return bound_us * _L2_LOSS * drawn
  return max(traffic_us / (1 - drawn) - bound_us, 0.0)


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Together:
  """Concurrent collectives of several streams.

  Attributes:
    cost: the SMs and the memory bandwidth that they take together.
    factors: run time of each over that alone; at least 1.
  """

  cost: collective_lib.CollectiveCost
  factors: tuple[float, ...]


def together(
  collectives: tuple[collective_lib.CollectiveCost, ...], gpu: cluster_lib.Gpu
) -> Together:
  """The slowdown of concurrent collectives by each other."""
  if len(collectives) == 1:
    return Together(cost=collectives[0], factors=(1.0,))
  loads = [
    (c.within_load, c.between_load, c.memory_gbps / gpu.hbm_gbps)
    for c in collectives
  ]
  totals = [sum(of_all) for of_all in zip(*loads, strict=True)]
  factors = tuple(
    max([1.0, *(t for own, t in zip(of_one, totals, strict=True) if own > 0)])
    for of_one in loads
  )
  drawn_gbps = (
    c.memory_gbps / f for c, f in zip(collectives, factors, strict=True)
  )
  cost = collective_lib.CollectiveCost(
    time_us=max(c.time_us for c in collectives),
    num_channels=sum(c.num_channels for c in collectives),
    memory_gbps=sum(drawn_gbps),
  )
  return Together(cost=cost, factors=factors)


def num_waves(
  kernel: kernel_lib.KernelCost, gpu: cluster_lib.Gpu, num_channels: int
) -> int:
  """Waves of a kernel if `num_channels` SMs are taken (Lagom, equation 5)."""
  num_sms = max(gpu.num_sms - num_channels, 1)
  return math.ceil(kernel.num_blocks / (num_sms * kernel.blocks_per_sm))


def _wait_us(
  kernel: kernel_lib.KernelCost,
  num_channels: int,
  gpu: cluster_lib.Gpu,
  waves_alone: int,
) -> float:
  num_free_sms = gpu.num_sms - kernel.num_blocks / kernel.blocks_per_sm
  if num_channels <= max(num_free_sms, 0.0):
    return 0.0
  return kernel.time_us / waves_alone / 2
