# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""PyTorch's kernels beside NCCL's on A100s, with the grids of both.

Rows are kernels of traces that were published with HolisticTraceAnalysis
(facebookresearch, MIT): what one takes alone, what it takes where a NCCL kernel
runs for at least 95 % of its time, how many blocks it has, and how many of them
fit an SM. Neither kernel's bytes are given, so only the waves are predicted,
equation (5) of `contention.py`.

NCCL's SendRecv kernels are all-to-alls of unequal parts there, and their blocks
leave one by one, each when its peers have what it had for them. On average half
of the SMs are taken.
"""

from __future__ import annotations

import collections
from collections.abc import Iterator, Mapping
import csv
import pathlib

from benchmarks import groups as groups_lib
from lagom_xla import cluster as cluster_lib
from lagom_xla.costs import collective as collective_lib
from lagom_xla.costs import contention
from lagom_xla.costs import kernel as kernel_lib

_SEND_RECV = "ncclKernel_SendRecv"
_GPUS = {"A100": "a100_40"}


def groups(folder: pathlib.Path) -> Iterator[groups_lib.Group]:
  """Products and all else, of every table in a folder."""
  by_name = collections.defaultdict(list)
  for path in sorted(folder.glob("*.csv")):
    with path.open(encoding="utf-8", newline="") as file:
      for row in csv.DictReader(file):
        name = "products" if row["cls"] == "gemm" else "other kernels"
        by_name[f"PyTorch on A100: {name} beside NCCL"].append(_compare(row))
  for name, comparisons in sorted(by_name.items()):
    yield groups_lib.of_comparisons(name, comparisons)


def _compare(row: Mapping[str, str]) -> groups_lib.Comparison:
  gpu = cluster_lib.parse(f"1x8x{_GPUS[row['gpu'].partition('-')[0][:4]]}").gpu
  lone_us = float(row["lone_us"])
  kernel = kernel_lib.KernelCost(
    time_us=lone_us,
    memory_us=0.0,
    num_blocks=int(float(row["ctas"])),
    blocks_per_sm=int(float(row["cta_per_sm"])),
    source="measured",
  )
  num_channels = int(row["nccl_grid"].partition("x")[0])
  if row["nccl_kernel"].startswith(_SEND_RECV):
    num_channels = -(-num_channels // 2)
  collective = collective_lib.CollectiveCost(
    time_us=0.0, num_channels=num_channels, memory_gbps=0.0
  )
  slowed = contention.beside(kernel, collective, gpu)
  return groups_lib.Comparison(
    what=f"{row['grid']} blocks beside {row['nccl_grid']} of "
    f"{row['nccl_kernel'].partition('_Sum')[0]}",
    measured=float(row["beside_us"]) / lone_us,
    predicted=slowed.kernel_us / lone_us,
  )
