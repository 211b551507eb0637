# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Compares rows of nccl-tests on real systems with predictions.

A folder holds rows.csv, with a row for each measured size, and systems.json,
with each system as a cluster. Sizes are of the whole buffer, times out of
place. If only a bus bandwidth was published, the time is derived from it.

On one node, nccl-tests is one process (`-g 8`), whose only thread launches each
GPU's part of a collective in turn. However few the bytes, a collective takes at
least as long as these launches, 4 to 6 us per GPU. Rows on one node are
compared with the longer of that and the collective's time.

The model assumes NCCL's own choice, so rows with an environment that forces
another are skipped. A system's fabric comes from its adapters in systems.json;
without a named one, it is InfiniBand.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
import dataclasses
import json
import os
import pathlib
import re
from typing import Any
from unittest import mock

from benchmarks import data
from benchmarks import groups
from benchmarks.collectives import lone_collective
from lagom_xla import cluster as cluster_lib
from lagom_xla.calibrate import log
from lagom_xla.calibrate import samples as samples_lib
from lagom_xla.costs import collective as collective_lib
from lagom_xla.costs import nccl
from lagom_xla.costs import wire
from lagom_xla.costs.nccl import environment
from lagom_xla.costs.wire import path

_FORCED = ("NCCL_ALGO", "NCCL_PROTO", "channel (by a tuner")
# Words that identify a fabric in the description of adapters; the first counts.
_FABRICS = {
  "tcpxo": r"tcp-?xo|fastrak",
  "tcpx": r"tcp-?x",
  "efa": r"\befa",
  "slingshot": r"slingshot|cassini|\bcxi",
  "roce": r"\broce",
}
# Title of the groups of systems that no fit saw.
UNSEEN = "nccl-tests, systems that no fit saw"
# Rows of at least this size show bandwidth.
_LARGE_BYTES = 512 * 1024 * 1024


@dataclasses.dataclass(frozen=True, kw_only=True)
class Row(lone_collective.MeasuredCall):
  """One row of nccl-tests; its bytes are those of the whole buffer."""

  system: str

  @property
  def fabric(self) -> str:
    """The network between its nodes, unless NVLink connects them."""
    return self.cluster.node.fabric if self.key.num_nodes > 1 else "NVLink"

  @property
  def site(self) -> str:
    """The site: the first part of the system's name."""
    return self.system.partition("-")[0]

  @property
  def shows_path(self) -> bool:
    """Whether it depends on a fitted path; NCCL's own model predicts others."""
    key = self.key
    return path.Call(
      self.cluster, key.communicator, key.kind, key.num_bytes, self.setting
    ).is_measured

  def predict_us(
    self,
    paths: wire.Paths | None = None,
    apart: lone_collective.SetApart | None = None,
  ) -> float:
    """Predicted time as nccl-tests measures it."""
    wire_us = self.wire_us(paths)
    if self.cluster.num_nodes > 1:
      return wire_us
    if apart is None:
      apart = lone_collective.fitted()
    launch_us = apart.launch_us
    launch_us += apart.launch_channel_us * self.setting.num_channels
    return max(wire_us, self.key.num_ranks * launch_us)

  def compared(self, predicted_us: float | None = None) -> groups.Comparison:
    """Comparison with a prediction, by default the model's."""
    what = f"{self.system}, {self.key.kind} of {self.key.num_bytes} B"
    return self.comparison(what, predicted_us)


def rows(folder: pathlib.Path) -> list[Row]:
  """The rows of 64 KiB and more under NCCL's own choices."""
  systems = json.loads((folder / "systems.json").read_text(encoding="utf-8"))
  clusters = {name: _cluster(name, system) for name, system in systems.items()}
  # Some systems used only a part of their nodes' GPUs.
  num_ranks = {
    name: clusters[name].num_nodes
    * system.get("gpus_per_node", clusters[name].gpus_per_node)
    for name, system in systems.items()
  }
  return [
    _row(
      raw,
      clusters[raw["system"]],
      num_ranks[raw["system"]],
      f"{systems[raw['system']].get('environment', '')} {raw['env']}",
    )
    for raw in data.rows(folder / "rows.csv")
    if int(raw["bytes"]) >= samples_lib.LEAST_BYTES
    and not any(word in raw["env"] for word in _FORCED)
  ]


def compare(folder: pathlib.Path) -> Iterator[groups.Group]:
  """Groups of rows on one node, and on several by size and by fabric."""
  yield from grouped(
    "nccl-tests", [(row, row.predict_us()) for row in rows(folder)]
  )


def by_what_fits_saw(
  title: str, predicted: Iterable[tuple[Row, float]], seen: Collection[str]
) -> Iterator[groups.Group]:
  """Groups of rows with predicted times, by whether the fits saw the system.

  For systems that the fits saw, predictions must be from fits without them.
  """
  predicted = list(predicted)
  for name, is_seen in ((title, True), (UNSEEN, False)):
    some = [pair for pair in predicted if (pair[0].system in seen) == is_seen]
    yield from grouped(name, some)


def grouped(
  title: str, predicted: Iterable[tuple[Row, float]]
) -> Iterator[groups.Group]:
  """Groups of rows with their predicted times in microseconds."""
  yield from groups.by_name(
    f"{title}: ",
    (
      (name, row.compared(time_us))
      for row, time_us in predicted
      for name in _group_names(row)
    ),
  )


def _group_names(row: Row) -> Iterator[str]:
  if row.cluster.num_nodes == 1:
    yield "one node, 64 KiB and more"
    yield f"one node, {row.model_system}"
    return
  yield "several nodes, 64 KiB and more"
  yield f"several nodes, {row.fabric}"
  if row.key.num_bytes >= _LARGE_BYTES:
    yield "several nodes, 512 MiB and more"


def _cluster(name: str, system: Mapping[str, Any]) -> cluster_lib.Cluster:
  raw, nic = system["cluster"], system["nic"]
  found = (f for f, p in _FABRICS.items() if re.search(p, nic, re.IGNORECASE))
  node = {"fabric": next(found, "infiniband"), **raw.get("node", {})}
  return cluster_lib.from_dict({**raw, "node": node}, where=name)


def _version(text: str) -> nccl.Version:
  """The first version in a row's text, or the newest if it has none."""
  found = re.match(r"(\d+)\.(\d+)", text)
  return (int(found[1]), int(found[2])) if found else nccl.NEWEST


def _setting(
  key: collective_lib.TuningKey,
  cluster: cluster_lib.Cluster,
  version: nccl.Version,
  environ: str,
) -> collective_lib.Setting:
  """NCCL's choice among the settings that the environment allows."""
  variables = dict(re.findall(r"(NCCL_\w+)=(\S+)", environ))
  costed = {n: v for n, v in variables.items() if n in environment.COSTED}
  with mock.patch.dict(os.environ, costed):
    return collective_lib.default_setting(key, cluster, version)


def _row(
  raw: Mapping[str, str],
  cluster: cluster_lib.Cluster,
  num_ranks: int,
  environ: str,
) -> Row:
  num_bytes = int(raw["bytes"])
  num_nodes = cluster.num_nccl_nodes_of(range(num_ranks))
  kind = log.KINDS[raw["collective"]]
  key = collective_lib.TuningKey(kind, num_ranks, num_nodes, num_bytes)
  if raw["time_us"]:
    time_us = float(raw["time_us"])
  else:
    share = log.bus_share(raw["collective"], num_ranks)
    time_us = share * num_bytes / (float(raw["busbw_gbps"]) * 1e3)
  return Row(
    system=raw["system"],
    cluster=cluster,
    key=key,
    setting=_setting(key, cluster, _version(raw["nccl_version"]), environ),
    time_us=time_us,
  )
