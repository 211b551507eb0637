# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Rows of XLA's table of lone collectives, as lone_collective.py has them.

The measurements are rows of XLA's default_collective_perf_table. XLA's
generator (xla/tools/collective_perf_table_gen.cc) runs one collective of f32
in a module of its own, on all groups of that size at once, and divides the
larger of operand and result by the median run time. So

    time = bytes / throughput,  bytes = 4 result_elements,

times the devices of a group for a reduce-scatter, whose operand is the larger.
An all-to-all has one operand, cut along its only dimension.

4 pairs on eight devices are i to i + 4. As many pairs as devices are either
neighbours that exchange or a ring, which the table does not tell apart. In a
ring a rank's send and its receive share their channels, so of two rows the
slower one is taken for the ring.

What NCCL ran is not in the table. Algorithms, protocols, channels and chunks
are those of costs/nccl, with one rule of older NCCL that the rows show: a
message of sends and receives takes LL up to 512 KiB (16 KiB for each of the 32
channels that it could have), not up to 16 KiB for each that it has.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
import dataclasses

from benchmarks import data as data_lib
from benchmarks.collectives import lone_collective
from lagom_xla.costs import collective as collective_lib
from lagom_xla.costs import nccl

_OLD_LL_BYTES = 32 * 16384
_PERMUTE = "permute.simple"
# Neighbours that exchange over more channels have to share some.
_MOST_LONE_CHANNELS = 4


def read(*, old_rule: bool = True) -> list[lone_collective.Row]:
  """The measurements on NVIDIA GPUs.

  Args:
    old_rule: whether sends and receives take LL as in older NCCL.
  """
  found = [
    _row(line, old_rule)
    for line in data_lib.rows("collective_throughput")
    if line["device"] in lone_collective.CLUSTERS
    # A time that was too short for the clock.
    and float(line["throughput_bytes_per_second"]) > 0
  ]
  return [*map(_told_apart(found), found)]


def _told_apart(
  rows: Sequence[lone_collective.Row],
) -> Callable[[lone_collective.Row], lone_collective.Row]:
  """Marks the faster of two permutes of one size that share no channel."""
  slowest_us: dict[tuple[str, int, int], float] = {}
  for row in rows:
    if row.path == _PERMUTE:
      key = (row.device, row.num_pairs, row.num_bytes)
      slowest_us[key] = max(slowest_us.get(key, 0.0), row.time_us)

  def mark(row: lone_collective.Row) -> lone_collective.Row:
    key = (row.device, row.num_pairs, row.num_bytes)
    is_faster = row.path == _PERMUTE and row.time_us < slowest_us[key]
    if is_faster and row.setting.num_channels <= _MOST_LONE_CHANNELS:
      return dataclasses.replace(row, is_one_way=True)
    return row

  return mark


def _row(line: Mapping[str, str], old_rule: bool) -> lone_collective.Row:
  kind, device = line["opcode"], line["device"]
  cluster = lone_collective.cluster_of(device)
  num_bytes = 4 * int(line["result_elements"])
  time_us = 1e6 * num_bytes / float(line["throughput_bytes_per_second"])
  num_pairs = 0
  if kind == "collective-permute":
    num_pairs = int(line["source_target_pairs"])
    num_ranks = max(num_pairs, cluster.gpus_per_node)
  else:
    num_ranks = int(line["devices_per_group"])
  if kind == "reduce-scatter":
    num_bytes *= num_ranks
    time_us *= num_ranks
  # The larger of operand and result is NCCL's size, too.
  key = collective_lib.TuningKey(
    kind=kind, num_ranks=num_ranks, num_nodes=1, num_bytes=num_bytes
  )
  setting = nccl.default_setting(cluster, key.communicator, kind, num_bytes)
  if old_rule and kind in nccl.SEND_RECV:
    num_messages = 1 if kind == "collective-permute" else num_ranks
    protocol = "ll" if num_bytes <= num_messages * _OLD_LL_BYTES else "simple"
    chunk_bytes = 2**15 if protocol == "ll" else 2**19
    setting = dataclasses.replace(
      setting, protocol=protocol, chunk_bytes=chunk_bytes
    )
  return lone_collective.Row(
    cluster=cluster,
    key=key,
    setting=setting,
    time_us=time_us,
    device=device,
    num_pairs=num_pairs,
    is_one_way=setting.protocol == "simple" and 0 < num_pairs < num_ranks,
  )
