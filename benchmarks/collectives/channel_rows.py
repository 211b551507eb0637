# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Measured all-reduces with fewer channels than NCCL's choice.

benchmarks/data/channels has rows with 1 to 32 channels for one algorithm and
protocol at a time. If a row takes nearly twice as long as the one with twice
its channels, only channels limit it, and it shows the rate of one channel,
which is the same on 4, 8 and 16 nodes. The rows of four nodes of H200s and of
the B300s set the channel rates of costs/wire/ (fit_paths.py). `compare` judges
these on the other clusters' rows.
"""

from __future__ import annotations

import collections
from collections.abc import Iterator, Mapping, Sequence
import dataclasses
import statistics

from benchmarks import data
from benchmarks import groups
from benchmarks.collectives import lone_collective
from lagom_xla import cluster as cluster_lib
from lagom_xla.costs import collective as collective_lib
from lagom_xla.costs import wire

# Clusters whose rows set the channel rates. No fit sees the others.
_FITTED = ("1x8xb300", "4xp5en.48xlarge")
# The least speedup by twice the channels if only channels limit a row. Without
# latencies it would be 2.
_LEAST_SPEEDUP = 1.8


@dataclasses.dataclass(frozen=True, kw_only=True)
class Row(lone_collective.MeasuredCall):
  """An all-reduce of all GPUs of a cluster."""

  cluster_name: str

  @property
  def num_channels(self) -> int:
    """Channels of the setting."""
    return self.setting.num_channels

  @property
  def channel_gbps(self) -> float:
    """Rate of its busiest channel, in GB/s."""
    share_bytes = self.key.num_bytes / self.num_channels
    handed_on = wire.handed_on(
      self.key.communicator, self.key.kind, self.setting.algorithm
    )
    return handed_on * share_bytes / (1e3 * self.time_us)


def read() -> list[Row]:
  """All rows."""
  return [_row(line) for line in data.rows("channels/rows")]


def _row(line: Mapping[str, str]) -> Row:
  cluster = cluster_lib.parse(line["cluster"])
  key = collective_lib.TuningKey(
    "all-reduce", cluster.num_devices, cluster.num_nodes, int(line["bytes"])
  )
  return Row(
    cluster_name=line["cluster"],
    cluster=cluster,
    key=key,
    setting=lone_collective.launched(
      key, cluster, line["algorithm"], line["protocol"], int(line["channels"])
    ),
    time_us=float(line["time_us"]),
  )


def bound_by_channels(rows: Sequence[Row]) -> list[Row]:
  """The rows whose measured time nearly halves with twice the channels."""

  def what(row: Row, num_channels: int) -> tuple[object, ...]:
    return row.cluster_name, row.path, row.key.num_bytes, num_channels

  known_us = {what(row, row.num_channels): row.time_us for row in rows}
  return [
    row
    for row in rows
    if (twice_us := known_us.get(what(row, 2 * row.num_channels)))
    and row.time_us / twice_us >= _LEAST_SPEEDUP
  ]


def channels_gbps() -> Mapping[str, Mapping[str, float]]:
  """Rate of a channel in GB/s, by system and path: medians over rows."""
  found = collections.defaultdict(lambda: collections.defaultdict(list))
  for row in bound_by_channels(read()):
    if row.cluster_name in _FITTED:
      found[row.model_system][row.path].append(row.channel_gbps)
  return {
    system: {
      path: float(f"{statistics.median(rates):.3g}")
      for path, rates in by_path.items()
    }
    for system, by_path in found.items()
  }


def compare() -> Iterator[groups.Group]:
  """Groups by path of the channel-limited rows that no fit saw."""
  yield from groups.by_name(
    "few channels: ",
    (
      (
        row.path,
        row.comparison(
          f"{row.cluster_name}, {row.key.num_bytes / 2**20:g} MiB,"
          f" {row.num_channels} channels"
        ),
      )
      for row in bound_by_channels(read())
      if row.cluster_name not in _FITTED
    ),
  )
