# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""All-reduces with fewer channels than NCCL gives them, as measured.

benchmarks/data/channels has them: one algorithm and protocol at a time, with 1
to 32 channels. Where a row takes nearly twice as long as the one with twice its
channels, channels bound it and nothing else does; there it shows what one
channel copies, which is the same on 4, 8 and 16 nodes. So the rows of four
nodes of H200s and of the B300s fix the rates of costs/wire/'s channels
(fit_paths.py), and `compare` judges them on the other clusters' rows.
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

# Whose rows fix channels' rates; of the others none is seen by a fit.
_FITTED = ("1x8xb300", "4xp5en.48xlarge")
# Twice the channels take so much less where only channels bound: 2 but for
# latencies.
_LEAST_SPEEDUP = 1.8


@dataclasses.dataclass(frozen=True, kw_only=True)
class Row(lone_collective.MeasuredCall):
  """An all-reduce of all GPUs of a cluster."""

  cluster_name: str

  @property
  def num_channels(self) -> int:
    """That it was given."""
    return self.setting.num_channels

  @property
  def channel_gbps(self) -> float:
    """What one of its channels hands on, where that is most."""
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
  """The rows that twice the channels would nearly halve, as measured."""

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
  """What a channel copies, by measured system and path: medians of rows."""
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
  """Groups of the rows that no fit saw, by path: times that channels bound."""
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
