# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Collectives whose channels or algorithm were forced, beside the model.

nccl_tests/sweeps.csv of `--data` holds figures of one machine with one knob
varied. Two kinds of them say how well the model knows settings that NCCL does
not choose:

*One channel.* All-reduces on B300s of which a tuner plugin set the channels
alone. Bus bandwidth jumps from 6.9 to 30.4 GB/s between 2 and 4 MiB, where the
model has NCCL change from ring/LL to NVLS, so each row is held against NCCL's
own algorithm for its size.

*Another algorithm.* How much longer a collective takes with NVLS switched off
than with it. The sources do not say which rows NCCL ran by NVLS where they are
alike, so rows count in which they differ by 2 % or more.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
import csv
import dataclasses
import pathlib
import re

from benchmarks import groups
from lagom_xla import cluster as cluster_lib
from lagom_xla.costs import collective as collective_lib
from lagom_xla.costs import nccl

_GPUS = re.compile(r"(?P<num>\d+) (?:of 8 )?(?P<gpu>B200|B300|H200)\b")
_WORKLOAD = re.compile(r"all_reduce (?P<mib>\d+) MiB")
# B300s have B200's NVLink.
_CLUSTERS = {"B200": "1x8xb200", "B300": "1x8xb200", "H200": "1x8xh200"}
_LEAST_DIFFERENCE = 0.02


def compare(folder: pathlib.Path) -> Iterator[groups.Group]:
  """The groups of the folder nccl_tests; none where there are no sweeps."""
  path = folder / "sweeps.csv"
  if not path.is_file():
    return
  with path.open(encoding="utf-8", newline="") as file:
    rows = list(csv.DictReader(file))
  for name, found in (
    ("sweeps: one channel", list(_one_channel(rows))),
    ("sweeps: another algorithm", list(_other_algorithm(rows))),
  ):
    if found:
      yield groups.of_comparisons(name, found)


def _one_channel(
  rows: list[dict[str, str]],
) -> Iterator[groups.Comparison]:
  for row in rows:
    described = _described(row)
    if described is None or row["value"] != "1 channel":
      continue
    cluster, key = described
    default = collective_lib.default_setting(key, cluster)
    yield groups.Comparison(
      what=f"one channel, {row['hardware']}, {row['workload']}, us",
      measured=_all_reduce_us(key, float(row["figure"])),
      predicted=collective_lib.predict(
        key, dataclasses.replace(default, num_channels=1), cluster
      ).time_us,
    )


def _other_algorithm(
  rows: list[dict[str, str]],
) -> Iterator[groups.Comparison]:
  pairs: dict[tuple[str, ...], dict[str, dict[str, str]]] = {}
  for row in rows:
    if row["knob"] == "NCCL_NVLS_ENABLE" and _described(row):
      case = row["source"], row["hardware"], row["workload"]
      # Of several measurements by one program the last counts.
      pairs.setdefault(case, {})[row["value"]] = row
  for (_, hardware, workload), pair in pairs.items():
    if len(pair) < 2:
      continue
    without, with_it = pair["0"], pair["default or 1"]
    measured = float(with_it["figure"]) / float(without["figure"])
    if abs(measured - 1) < _LEAST_DIFFERENCE:
      continue
    described = _described(without)
    assert described is not None
    yield groups.Comparison(
      what=f"ring over NVLS, {hardware}, {workload}",
      measured=measured,
      predicted=_most_us("ring", *described) / _most_us("nvls", *described),
    )


def _most_us(
  algorithm: str,
  cluster: cluster_lib.Cluster,
  key: collective_lib.TuningKey,
) -> float:
  """With the channels and chunks that NCCL gives an algorithm at most."""
  grain = nccl.chunk_grain_bytes("simple")
  setting = nccl.Setting(
    algorithm=algorithm,
    protocol="simple",
    num_channels=nccl.max_channels(cluster, key.communicator, algorithm),
    chunk_bytes=nccl.max_chunk_bytes(algorithm, "simple") // grain * grain,
  )
  return collective_lib.predict(key, setting, cluster).time_us


def _described(
  row: Mapping[str, str],
) -> tuple[cluster_lib.Cluster, collective_lib.TuningKey] | None:
  gpus = _GPUS.match(row["hardware"])
  workload = _WORKLOAD.match(row["workload"])
  if gpus is None or workload is None or row["metric"] != "busbw":
    return None
  key = collective_lib.TuningKey(
    kind="all-reduce",
    num_ranks=int(gpus["num"]),
    num_nodes=1,
    num_bytes=int(workload["mib"]) * 2**20,
  )
  return cluster_lib.parse(_CLUSTERS[gpus["gpu"]]), key


def _all_reduce_us(key: collective_lib.TuningKey, busbw_gbps: float) -> float:
  share = 2 * (key.num_ranks - 1) / key.num_ranks
  return share * key.num_bytes / (1e3 * busbw_gbps)
