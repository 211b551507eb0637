# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Measured lone collectives, and what the table that holds them means.

The measurements are rows of XLA's default_collective_perf_table. XLA's
generator (xla/tools/collective_perf_table_gen.cc) runs one collective of f32
in a module of its own, on all groups of that size at once, and divides the
larger of operand and result by the median run time. So

    time = bytes / throughput,  bytes = 4 result_elements,

times the devices of a group for a reduce-scatter, whose operand is the larger.
An all-to-all has one operand, cut along its only dimension. Times hold the
launch of the module. A permute is repeated in a loop on the device, and its
time is one turn's; 4 pairs are i to i + 4 on eight devices, and as many pairs
as devices are either neighbours that exchange or a ring, which the table does
not tell apart.

What NCCL ran is not in the table. Algorithms, protocols, channels and chunks
are those of costs/nccl, with one rule of older NCCL that the rows show: a
message of sends and receives takes LL up to 512 KiB (16 KiB for each of the 32
channels that it could have), not up to 16 KiB for each that it has.
"""

from __future__ import annotations

from collections.abc import Mapping
import dataclasses
import functools

from benchmarks import data as data_lib
from lagom_xla import cluster as cluster_lib
from lagom_xla.costs import nccl
from lagom_xla.costs import wire

# sm_103 is a GB300, whose NVLink and NVLink switch are a GB200's.
CLUSTERS = {
  "sm_90": "1x8xh100",
  "sm_100_B200": "1x8xb200",
  "sm_100_GB200": "18x4xgb200",
  "sm_103": "18x4xgb200",
}
# Smaller ones are mostly the host's time.
LARGE_BYTES = 65536
_OLD_LL_BYTES = 32 * 16384


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Row:
  """One measurement.

  Attributes:
    device: as the table calls it.
    kind: HLO opcode.
    num_ranks: devices of a group.
    num_bytes: the larger of operand and result, which is NCCL's size too.
    time_us: measured.
    setting: what NCCL ran, as far as its rules are known.
  """

  device: str
  kind: str
  num_ranks: int
  num_bytes: int
  time_us: float
  setting: nccl.Setting

  @property
  def cluster(self) -> cluster_lib.Cluster:
    """Where it was measured."""
    return _cluster(self.device)

  @property
  def communicator(self) -> nccl.Communicator:
    """A group; all groups lie in one NVLink domain."""
    return nccl.Communicator(num_ranks=self.num_ranks, num_nodes=1)

  @property
  def system(self) -> str:
    """The system whose parameters it shows."""
    return wire.system_of(self.cluster)

  @property
  def path(self) -> str:
    """The name of the parameters that it shows."""
    return wire.path_name(
      self.cluster, self.communicator, self.kind, self.setting
    )

  @property
  def is_large(self) -> bool:
    """Whether it is large enough to be judged by."""
    return self.num_bytes >= LARGE_BYTES

  def predict_us(self, paths: wire.Paths | None = None) -> float:
    """The model's time."""
    return wire.time_us(
      self.cluster,
      self.communicator,
      self.kind,
      self.num_bytes,
      self.setting,
      paths,
    )


def read(*, old_rule: bool = True) -> list[Row]:
  """The measurements on NVIDIA GPUs.

  Args:
    old_rule: whether sends and receives take LL as in older NCCL.
  """
  return [
    _row(line, old_rule)
    for line in data_lib.rows("collective_throughput")
    if line["device"] in CLUSTERS
    # A time that was too short for the clock.
    and float(line["throughput_bytes_per_second"]) > 0
  ]


@functools.cache
def _cluster(device: str) -> cluster_lib.Cluster:
  return cluster_lib.parse(CLUSTERS[device])


def _row(line: Mapping[str, str], old_rule: bool) -> Row:
  kind, device = line["opcode"], line["device"]
  cluster = _cluster(device)
  num_bytes = 4 * int(line["result_elements"])
  time_us = 1e6 * num_bytes / float(line["throughput_bytes_per_second"])
  if kind == "collective-permute":
    num_pairs = int(line["source_target_pairs"])
    num_ranks = max(num_pairs, cluster.gpus_per_node)
  else:
    num_ranks = int(line["devices_per_group"])
  if kind == "reduce-scatter":
    num_bytes *= num_ranks
    time_us *= num_ranks
  communicator = nccl.Communicator(num_ranks=num_ranks, num_nodes=1)
  setting = nccl.default_setting(cluster, communicator, kind, num_bytes)
  if old_rule and kind in nccl.SEND_RECV:
    num_messages = 1 if kind == "collective-permute" else num_ranks
    protocol = "ll" if num_bytes <= num_messages * _OLD_LL_BYTES else "simple"
    chunk_bytes = 2**15 if protocol == "ll" else 2**19
    setting = dataclasses.replace(
      setting, protocol=protocol, chunk_bytes=chunk_bytes
    )
  return Row(
    device=device,
    kind=kind,
    num_ranks=num_ranks,
    num_bytes=num_bytes,
    time_us=time_us,
    setting=setting,
  )
