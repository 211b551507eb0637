# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Rows of nccl-tests on real systems, beside what the model predicts for them.

`--data` holds nccl_tests/rows.csv, with a row for each measured size, and
systems.json, with each system as a cluster. Rows are those of nccl-tests: sizes
are of the whole buffer, times out of place. Where only a bus bandwidth was
published the time follows from it, by the factors of nccl-tests'
doc/PERFORMANCE.md.

The model takes NCCL's own choice. So rows are left out whose environment forces
another algorithm, protocol or number of channels.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
import csv
import json
import pathlib

from benchmarks import groups
from lagom_xla import cluster as cluster_lib
from lagom_xla.costs import collective as collective_lib

_KINDS = {
  "all_gather": "all-gather",
  "all_reduce": "all-reduce",
  "reduce_scatter": "reduce-scatter",
  "alltoall": "all-to-all",
  "sendrecv": "collective-permute",
}
_FORCED = ("NCCL_ALGO", "NCCL_PROTO", "channel (by a tuner")
# Below, rows are of the host's noise; from the large ones on, of bandwidth.
_LEAST_BYTES = 64 * 1024
_LARGE_BYTES = 512 * 1024 * 1024


def compare(folder: pathlib.Path) -> Iterator[groups.Group]:
  """Times on one node, on several, and of large buffers on several."""
  systems = json.loads((folder / "systems.json").read_text(encoding="utf-8"))
  clusters = {
    name: cluster_lib.from_dict(system["cluster"], where=name)
    for name, system in systems.items()
  }
  found: dict[str, list[groups.Comparison]] = {}
  with (folder / "rows.csv").open(encoding="utf-8", newline="") as file:
    for row in csv.DictReader(file):
      num_bytes = int(row["bytes"])
      is_forced = any(word in row["env"] for word in _FORCED)
      if is_forced or num_bytes < _LEAST_BYTES:
        continue
      cluster = clusters[row["system"]]
      comparison = _comparison(row, cluster, num_bytes)
      for group in _groups(cluster, num_bytes):
        found.setdefault(group, []).append(comparison)
  for name in sorted(found):
    yield groups.of_comparisons(name, found[name])


def _groups(cluster: cluster_lib.Cluster, num_bytes: int) -> Iterator[str]:
  if cluster.num_nodes == 1:
    yield "nccl-tests: one node, 64 KiB and more"
    return
  yield "nccl-tests: several nodes, 64 KiB and more"
  if num_bytes >= _LARGE_BYTES:
    yield "nccl-tests: several nodes, 512 MiB and more"


def _comparison(
  row: Mapping[str, str], cluster: cluster_lib.Cluster, num_bytes: int
) -> groups.Comparison:
  key = collective_lib.TuningKey(
    kind=_KINDS[row["collective"]],
    num_ranks=cluster.num_devices,
    num_nodes=cluster.num_nccl_nodes_of(range(cluster.num_devices)),
    num_bytes=num_bytes,
  )
  setting = collective_lib.default_setting(key, cluster)
  return groups.Comparison(
    what=f"{row['system']}, {key.kind} of {num_bytes} B, us",
    measured=_measured_us(row, key),
    predicted=collective_lib.predict(key, setting, cluster).time_us,
  )


def _measured_us(
  row: Mapping[str, str], key: collective_lib.TuningKey
) -> float:
  if row["time_us"]:
    return float(row["time_us"])
  share = 1.0
  if key.kind != "collective-permute":
    share = (key.num_ranks - 1) / key.num_ranks
  if key.kind == "all-reduce":
    share *= 2
  return share * key.num_bytes / (float(row["busbw_gbps"]) * 1e3)
