# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Slowdowns reported in papers and posts, compared with the model.

Each is an *effect*: the change of a measurement. The error of a prediction is
its distance from the effect, over the effect. Details that the sources leave
open are chosen here:

*132 blocks on H100* (NVIDIA developer forums, 337991): a product of exactly 132
blocks fell from 80 % of the peak to 47 % beside an all-gather with 24 channels.
Here it is 1536 x 2816 x 8192 in tiles of 128 x 256.

*H200* (a training trace, in public notes): the product 8192 x 3072 x 3072 in
bf16 took 199.7 us alone, 15.5 % more beside SendRecv and 28.7 % more beside
AllGatherV. Here the collectives are a permute and an all-gather of 256 MiB over
8 GPUs, as run by NCCL.

*A40 over PCIe* (Lagom, arXiv 2602.20656, figure 3): an all-reduce of 32 MB over
8 GPUs took the same time with 16 and 32 channels and chunks of 16 KB, and the
FFN beside it 30.2 % longer. Here it is Phi-2's FFN, with 4096 rows.

*A40 in NVLink pairs* (AutoCCL, NSDI 2025, table 6): an all-gather of 80 MB lost
12.8 % of its bandwidth to a light and 39.3 % to a heavy product. Here these are
3456 x 128 x 3456 of figure 9, which is limited by memory, and 3456 x 3456 x
3456. The model cannot reach the heavy figure: an all-gather that uses 30 of 696
GB/s cannot lose more than an eighth to memory. The rest must be waits for SMs,
because that benchmark does not give collectives a stream of higher priority.
"""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks import groups as groups_lib
from lagom_xla import cluster as cluster_lib
from lagom_xla.costs import collective as collective_lib
from lagom_xla.costs import contention
from lagom_xla.costs import gemm
from lagom_xla.costs import kernel as kernel_lib

_MIB = 2**20


def groups() -> Iterator[groups_lib.Group]:
  """A group for each reported effect; values are shares unless named."""
  for effects in (
    _one_wave_on_h100(),
    _products_on_h200(),
    _all_reduce_on_a40(),
    _all_gather_on_a40(),
  ):
    for what, measured, predicted in effects:
      comparison = groups_lib.Comparison(what, measured, predicted)
      yield groups_lib.of_comparisons(f"reported: {what}", [comparison])


# What, measured, predicted.
_Effects = Iterator[tuple[str, float, float]]


def _one_wave_on_h100() -> _Effects:
  cluster = cluster_lib.parse("1x8xh100")
  m, n, k = 12 * 128, 11 * 256, 8192
  peak = cluster.gpu.matmul_peak_tflops["bf16"]
  time_us = 2 * m * n * k / (0.80 * peak * 1e6)
  product = _product(cluster.gpu, (m, n, k), time_us, blocks=(132, 1))
  gather = _collective(cluster, "all-gather", 256 * _MIB)
  kernel_us = contention.beside(product, gather, cluster.gpu).kernel_us
  yield (
    "H100, one wave beside an all-gather, loss of peak",
    0.80 - 0.47,
    0.80 * (1 - product.time_us / kernel_us),
  )


def _products_on_h200() -> _Effects:
  cluster = cluster_lib.parse("1x8xh200")
  product = _product(cluster.gpu, (8192, 3072, 3072), 199.7)
  for what, kind, measured in (
    ("SendRecv", "collective-permute", 0.155),
    ("AllGatherV", "all-gather", 0.287),
  ):
    collective = _collective(cluster, kind, 256 * _MIB)
    kernel_us = contention.beside(product, collective, cluster.gpu).kernel_us
    yield (
      f"H200, product beside {what}, slowdown",
      measured,
      kernel_us / product.time_us - 1,
    )


def _all_reduce_on_a40() -> _Effects:
  cluster = cluster_lib.parse("lagom_b")
  product = _product(cluster.gpu, (4096, 10240, 2560))
  narrow, wide = (
    _collective(
      cluster,
      "all-reduce",
      32 * _MIB,
      collective_lib.Setting(
        algorithm="ring",
        protocol="simple",
        num_channels=num_channels,
        chunk_bytes=16 * 1024,
      ),
    )
    for num_channels in (16, 32)
  )
  yield (
    "A40, all-reduce, time at 16 over 32 channels",
    1.0,
    narrow.time_us / wide.time_us,
  )
  narrow_us, wide_us = (
    contention.beside(product, collective, cluster.gpu).kernel_us
    for collective in (narrow, wide)
  )
  yield (
    "A40, product beside 32 over 16 channels, slowdown",
    0.302,
    wide_us / narrow_us - 1,
  )


def _all_gather_on_a40() -> _Effects:
  cluster = cluster_lib.parse("lagom_a")
  collective = _collective(cluster, "all-gather", 80_000_000)
  for what, shape, measured in (
    ("light", (3456, 128, 3456), 0.128),
    ("heavy", (3456, 3456, 3456), 0.393),
  ):
    product = _product(cluster.gpu, shape)
    beside = contention.beside(product, collective, cluster.gpu)
    yield (
      f"A40, all-gather beside a {what} product, loss of bandwidth",
      measured,
      1 - 1 / beside.collective_factor,
    )


def _product(
  gpu: cluster_lib.Gpu,
  shape: tuple[int, int, int],
  time_us: float | None = None,
  *,
  blocks: tuple[int, int] | None = None,
) -> kernel_lib.KernelCost:
  """A bf16 product; time and blocks are predicted unless given."""
  m, n, k = shape
  if time_us is None:
    time_us = gemm.predict_us(gpu, (1, m, n, k), ("bf16",) * 3)
  num_blocks, blocks_per_sm = blocks or gemm.blocks(gpu, (1, m, n, k), "bf16")
  num_bytes = 2 * (m * k + k * n + m * n)
  return kernel_lib.KernelCost(
    time_us=time_us,
    memory_us=min(num_bytes / (gpu.hbm_gbps * 1e3), time_us),
    num_blocks=num_blocks,
    blocks_per_sm=blocks_per_sm,
    source="measured",
  )


def _collective(
  cluster: cluster_lib.Cluster,
  kind: str,
  num_bytes: int,
  setting: collective_lib.Setting | None = None,
) -> collective_lib.CollectiveCost:
  """A collective over 8 GPUs of a node, with NCCL's choice or a setting."""
  key = collective_lib.TuningKey(kind, 8, 1, num_bytes)
  setting = setting or collective_lib.default_setting(key, cluster)
  return collective_lib.predict(key, setting, cluster)
