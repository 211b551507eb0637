# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Logs of nccl-tests from a machine with exactly the predicted times."""

from __future__ import annotations

from collections.abc import Sequence
import pathlib

from lagom_xla import cluster as cluster_lib
from lagom_xla.calibrate import calibration as calibration_lib
from lagom_xla.calibrate import log
from lagom_xla.costs import collective as collective_lib
from lagom_xla.passes.collectives import REDUCTIONS

NODE = cluster_lib.parse("1x8xh100")
TWO_NODES = cluster_lib.parse("2x8xh100")
SIZES = tuple(2**exponent for exponent in range(16, 33))
COMMAND = "./build/all_reduce_perf -b 64K -e 4G -f 2 -g 1"
_COLUMNS = (
  "#       size         count      type   redop    root     time   algbw"
  "   busbw #wrong     time   algbw   busbw #wrong"
)


def calibrated_by(
  cluster: cluster_lib.Cluster, **between_nodes: object
) -> cluster_lib.Cluster:
  """The cluster, with these calibrated factors between its nodes."""
  raw = cluster.to_dict()
  raw["calibration"] = {"between_nodes": between_nodes}
  return cluster_lib.from_dict(raw, where="a test")


def tuning_key(
  cluster: cluster_lib.Cluster,
  kind: str,
  num_bytes: int,
  multicasts: bool = True,
) -> collective_lib.TuningKey:
  """The key of a collective of the whole cluster."""
  return collective_lib.TuningKey(
    kind=kind,
    num_ranks=cluster.num_devices,
    num_nodes=cluster.num_nccl_nodes_of(range(cluster.num_devices)),
    num_bytes=num_bytes,
    multicasts=multicasts,
  )


def predicted_us(
  cluster: cluster_lib.Cluster,
  kind: str,
  num_bytes: int,
  multicasts: bool = True,
) -> float:
  """Predicted time of a collective of the whole cluster, with NCCL's choice."""
  key = tuning_key(cluster, kind, num_bytes, multicasts)
  setting = collective_lib.default_setting(key, cluster)
  return collective_lib.predict(key, setting, cluster).time_us


def row(
  program: str,
  num_ranks: int,
  num_bytes: int,
  us: float,
  element_type: str = "float",
) -> str:
  """A row of a program's table."""
  reduction = "sum" if log.KINDS[program] in REDUCTIONS else "none"
  root = 0 if program == "broadcast" else -1
  in_place = "N/A" if program in ("alltoall", "sendrecv") else "0"
  gbps = num_bytes / us / 1e3
  bus_gbps = gbps * log.bus_share(program, num_ranks)
  columns = f"{us:8.2f} {gbps:7.2f} {bus_gbps:7.2f}"
  return (
    f"{num_bytes:12d} {num_bytes // 4:13d} {element_type:>9s} {reduction:>7s}"
    f" {root:7d} {columns}      0 {columns}    {in_place:>3s}"
  )


def rows_of(
  cluster: cluster_lib.Cluster,
  program: str = "all_reduce",
  sizes: Sequence[int] = SIZES,
) -> list[str]:
  """The rows of a program on a machine with the predicted times."""
  kind = log.KINDS[program]
  return [
    row(program, cluster.num_devices, n, predicted_us(cluster, kind, n))
    for n in sizes
  ]


def _devices(
  cluster: cluster_lib.Cluster, gpus_per_process: int = 1
) -> list[str]:
  return [
    f"#  Rank {rank:2d} Group  0 Pid {7000 + rank // gpus_per_process} on node-"
    f"{rank // cluster.gpus_per_node} device {rank % 8:2d} [0000:{rank:02x}:00]"
    f" {cluster.gpu.device_name}"
    for rank in range(cluster.num_devices)
  ]


def log_of(
  cluster: cluster_lib.Cluster,
  program: str = "all_reduce",
  *,
  before: Sequence[str] = (),
  rows: Sequence[str] | None = None,
  gpus_per_thread: int = 1,
) -> str:
  """The whole output of a program."""
  return "\n".join(
    [
      "# nccl-tests version 2.18.3 nccl-headers=22907 nccl-library=22907",
      f"# Collective test starting: {program}_perf",
      f"# nThread 1 nGpus {gpus_per_thread} minBytes 65536 maxBytes 4294967296"
      " step: 2(factor) warmup iters: 5 iters: 20 agg iters: 1 validation: 1"
      " graph: 0",
      "#",
      "# Using devices",
      *_devices(cluster, gpus_per_thread),
      *before,
      _COLUMNS,
      *(rows_of(cluster, program) if rows is None else rows),
      "# Out of bounds values : 0 OK",
      "# Avg bus bandwidth    : 123.4",
    ]
  )


def measured(
  folder: pathlib.Path,
  text: str,
  cluster: cluster_lib.Cluster = TWO_NODES,
  name: str = "my.log",
) -> calibration_lib.Measured:
  """Writes a log, and reads it as that of a cluster."""
  path = folder / name
  path.write_text(text, encoding="utf-8")
  return calibration_lib.read(cluster, [path])


def calibrate(
  folder: pathlib.Path,
  text: str,
  cluster: cluster_lib.Cluster = TWO_NODES,
  name: str = "my.log",
) -> calibration_lib.Result:
  """Calibrates with a log, which must be read without problems."""
  found = measured(folder, text, cluster, name)
  assert found.problems == []
  return calibration_lib.calibrate(cluster, found)
