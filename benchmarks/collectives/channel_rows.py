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

from collections.abc import Iterator, Mapping, Sequence
import csv
import dataclasses
import pathlib
import statistics

from benchmarks import data
from benchmarks import groups
from lagom_xla import cluster as cluster_lib
from lagom_xla.costs import collective as collective_lib
from lagom_xla.costs import wire
from lagom_xla.costs.nccl import launch

_PATH = pathlib.Path(data.__file__).with_name("channels") / "rows.csv"
# Whose rows fix channels' rates; of the others none is seen by a fit.
_FITTED = ("1x8xb300", "4xp5en.48xlarge")
# Twice the channels take so much less where only channels bound: 2 but for
# latencies.
_LEAST_SPEEDUP = 1.8


@dataclasses.dataclass(frozen=True, kw_only=True)
class Row:
  """An all-reduce of all GPUs of a cluster."""

  cluster_name: str
  algorithm: str
  protocol: str
  num_bytes: int
  num_channels: int
  time_us: float

  @property
  def path(self) -> str:
    """The name of the parameters that it shows."""
    return f"{self.algorithm}.{self.protocol}"

  @property
  def key(self) -> collective_lib.TuningKey:
    """Of the collective."""
    cluster = cluster_lib.parse(self.cluster_name)
    return collective_lib.TuningKey(
      "all-reduce", cluster.num_devices, cluster.num_nodes, self.num_bytes
    )

  @property
  def channel_gbps(self) -> float:
    """What one of its channels hands on, where that is most."""
    key = self.key
    share_bytes = key.num_bytes / self.num_channels
    handed_on = wire.handed_on(key.communicator, key.kind, self.algorithm)
    return handed_on * share_bytes / (1e3 * self.time_us)

  def predict_us(self) -> float:
    """By the model, with NCCL's chunk for so many channels."""
    cluster, key = cluster_lib.parse(self.cluster_name), self.key
    pair = self.algorithm, self.protocol
    share_bytes = self.num_bytes // self.num_channels
    setting = collective_lib.Setting(
      algorithm=self.algorithm,
      protocol=self.protocol,
      num_channels=self.num_channels,
      chunk_bytes=launch.chunk_bytes(
        cluster, key.communicator, key.kind, share_bytes, *pair
      ),
    )
    return collective_lib.predict(key, setting, cluster).time_us


def read() -> list[Row]:
  """All rows."""
  with _PATH.open(encoding="utf-8", newline="") as file:
    return [
      Row(
        cluster_name=line["cluster"],
        algorithm=line["algorithm"],
        protocol=line["protocol"],
        num_bytes=int(line["bytes"]),
        num_channels=int(line["channels"]),
        time_us=float(line["time_us"]),
      )
      for line in csv.DictReader(file)
    ]


def bound_by_channels(rows: Sequence[Row]) -> list[Row]:
  """The rows that twice the channels would nearly halve, as measured."""
  known = {dataclasses.replace(row, time_us=0.0): row.time_us for row in rows}

  def speedup(row: Row) -> float:
    twice = dataclasses.replace(
      row, num_channels=2 * row.num_channels, time_us=0.0
    )
    return row.time_us / known.get(twice, row.time_us)

  return [row for row in rows if speedup(row) >= _LEAST_SPEEDUP]


def channels_gbps() -> Mapping[str, Mapping[str, float]]:
  """What a channel copies, by measured system and path: medians of rows."""
  found: dict[str, dict[str, list[float]]] = {}
  for row in bound_by_channels(read()):
    if row.cluster_name in _FITTED:
      system = wire.system_of(cluster_lib.parse(row.cluster_name))
      by_path = found.setdefault(system, {})
      by_path.setdefault(row.path, []).append(row.channel_gbps)
  return {
    system: {
      path: float(f"{statistics.median(rates):.3g}")
      for path, rates in by_path.items()
    }
    for system, by_path in found.items()
  }


def compare() -> Iterator[groups.Group]:
  """Groups of the rows that no fit saw, by path: times that channels bound."""
  found: dict[str, list[groups.Comparison]] = {}
  for row in bound_by_channels(read()):
    if row.cluster_name not in _FITTED:
      comparison = groups.Comparison(
        what=f"{row.cluster_name}, {row.num_bytes / 2**20:g} MiB,"
        f" {row.num_channels} channels, us",
        measured=row.time_us,
        predicted=row.predict_us(),
      )
      found.setdefault(row.path, []).append(comparison)
  for path in sorted(found):
    yield groups.of_comparisons(f"few channels: {path}", found[path])
