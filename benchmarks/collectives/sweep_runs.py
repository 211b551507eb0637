# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Runs of sweeps.csv, each with the setting that NCCL had in it.

nccl_tests/sweeps.csv of `--data` has series in which one knob is varied and all
else is fixed. Those are read whose knob the model has (NCCL_ALGO, NCCL_PROTO,
NCCL_NVLS_ENABLE, and what a tuner plugin sets) on hardware that can be told
from its description; the others are left to other benchmarks.

A forced algorithm or protocol is NCCL's own choice among those left. A forced
number of channels leaves algorithm and protocol as they are: that is how the
B300's one-channel rows come to jump fivefold where NCCL goes from LL to NVLS.
The chunk is NCCL's for the share of so many.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
import csv
import dataclasses
import itertools
import pathlib
import re
from typing import Any

from lagom_xla import cluster as cluster_lib
from lagom_xla.costs import collective as collective_lib
from lagom_xla.costs import nccl
from lagom_xla.costs.nccl import launch

_UNITS = {"KiB": 2**10, "MiB": 2**20, "GiB": 2**30}
_WORKLOAD = re.compile(
  r"(?P<kind>all_reduce|all_gather|reduce_scatter)"
  r" (?P<size>\d+) (?P<unit>[KMG]iB)"
)
# "4 of 8 B200", "8 B300 SXM6"
_IN_NODE = re.compile(r"(?:(?P<some>\d+) of )?(?P<all>\d+) (?P<gpu>[A-Z]+\d+)")
# "GB200, 12 GPUs on 3 racks": a node of NCCL's is what a rack has of them.
_ON_RACKS = re.compile(r"GB200, (?P<gpus>\d+) GPUs on (?P<racks>\d+) racks")
# A B300's NVLink is a B200's.
_GPUS = {"B300": "b200"}
_PER_TIME = ("busbw", "algbw")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Case:
  """What runs, but for the setting."""

  cluster: cluster_lib.Cluster
  key: collective_lib.TuningKey

  @property
  def default(self) -> collective_lib.Setting:
    """What NCCL chooses by itself."""
    return collective_lib.default_setting(self.key, self.cluster)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Run:
  """A measured time, and what the model has for it.

  Attributes:
    what: the hardware and the collective, in words.
    knob: what is varied.
    value: of it.
    metric: of the figure.
    figure: bus or algorithm bandwidth.
    case: what ran.
    setting: how.
  """

  what: str
  knob: str
  value: str
  metric: str
  figure: float
  case: Case
  setting: collective_lib.Setting

  @property
  def predicted_us(self) -> float:
    """By the model."""
    key, cluster = self.case.key, self.case.cluster
    return collective_lib.predict(key, self.setting, cluster).time_us

  @property
  def measured_us(self) -> float:
    """From the bandwidth."""
    share = 1.0
    if self.metric == "busbw":
      passes = 2 if self.case.key.kind == "all-reduce" else 1
      num_ranks = self.case.key.num_ranks
      share = passes * (num_ranks - 1) / num_ranks
    return share * self.case.key.num_bytes / (1e3 * self.figure)


def series(path: pathlib.Path) -> Iterator[Sequence[Run]]:
  """The series of sweeps.csv that the model can run, in the file's order."""
  with path.open(encoding="utf-8", newline="") as file:
    lines = list(csv.DictReader(file))
  for found in _series(lines):
    if runs := _runs(found):
      yield runs


def _series(
  lines: Sequence[Mapping[str, str]],
) -> Iterator[list[Mapping[str, str]]]:
  """Lines that differ in the knob's value alone, if there are several."""

  def fixed(line: Mapping[str, str]) -> tuple[str, ...]:
    columns = ("source", "hardware", "workload", "knob", "metric")
    return tuple(line[name] for name in columns)

  for _, members in itertools.groupby(sorted(lines, key=fixed), key=fixed):
    series = list(members)
    if len(series) > 1:
      yield series


def _runs(series: Sequence[Mapping[str, str]]) -> list[Run]:
  """The lines of a series that the model can run, none if not the first."""
  case = _case(series[0])
  if case is None or series[0]["metric"] not in _PER_TIME:
    return []
  runs = []
  for line in series:
    setting = _setting(case, line["knob"], line["value"])
    if setting is None and not runs:
      return []
    if setting is not None:
      runs.append(
        Run(
          what=f"{line['hardware']}, {line['workload']}",
          knob=line["knob"],
          value=line["value"],
          metric=line["metric"],
          figure=float(line["figure"]),
          case=case,
          setting=setting,
        )
      )
  return runs


def _case(line: Mapping[str, str]) -> Case | None:
  workload = _WORKLOAD.match(line["workload"])
  if workload is None:
    return None
  num_bytes = int(workload["size"]) * _UNITS[workload["unit"]]
  kind = workload["kind"].replace("_", "-")
  if racks := _ON_RACKS.fullmatch(line["hardware"]):
    num_nodes = int(racks["racks"])
    per_node = int(racks["gpus"]) // num_nodes
    raw: dict[str, Any] = {"gpu": "gb200", "num_nodes": num_nodes}
    raw["gpus_per_node"] = per_node
    raw["node"] = {"num_nics": per_node, "nvlink": {"nodes_per_domain": 1}}
    cluster = cluster_lib.from_dict(raw, where=line["hardware"])
    key = collective_lib.TuningKey(
      kind, cluster.num_devices, num_nodes, num_bytes
    )
    return Case(cluster=cluster, key=key)
  if node := _IN_NODE.match(line["hardware"]):
    gpu = _GPUS.get(node["gpu"], node["gpu"].lower())
    if gpu not in cluster_lib.gpu_names():
      return None
    cluster = cluster_lib.parse(f"1x{node['all']}x{gpu}")
    num_ranks = int(node["some"] or node["all"])
    key = collective_lib.TuningKey(kind, num_ranks, 1, num_bytes)
    return Case(cluster=cluster, key=key)
  return None


def _setting(
  case: Case, knob: str, value: str
) -> collective_lib.Setting | None:
  """What NCCL runs under a value of a knob; None where that is not known."""
  default = case.default
  if value.startswith("default"):
    return default
  if found := re.fullmatch(r"(\d+) channels?", value):
    return _with_channels(case, int(found[1]))
  algorithm, _, protocol = value.lower().partition("/")
  if knob == "NCCL_NVLS_ENABLE" and value == "0":
    return forced(case.key, case.cluster, without="nvls")
  if knob == "NCCL_PROTO":
    return forced(case.key, case.cluster, protocol=algorithm)
  if knob == "NCCL_ALGO" or protocol:
    return forced(
      case.key, case.cluster, algorithm=algorithm, protocol=protocol
    )
  return None


def _with_channels(case: Case, num_channels: int) -> collective_lib.Setting:
  key, default = case.key, case.default
  chunk_bytes = launch.chunk_bytes(
    case.cluster,
    key.communicator,
    key.kind,
    key.num_bytes // num_channels,
    default.algorithm,
    default.protocol,
  )
  return dataclasses.replace(
    default, num_channels=num_channels, chunk_bytes=chunk_bytes
  )


def forced(
  key: collective_lib.TuningKey,
  cluster: cluster_lib.Cluster,
  *,
  algorithm: str = "",
  protocol: str = "",
  without: str = "-",
) -> collective_lib.Setting | None:
  """NCCL's choice among what it is left; None where that is nothing.

  Args:
    key: the collective.
    cluster: where it runs.
    algorithm: the only one allowed, if given.
    protocol: likewise.
    without: algorithms whose names start so are not allowed.
  """
  what = (cluster, key.communicator, key.kind)
  pairs = [
    pair
    for pair in nccl.candidates(*what)
    if algorithm in ("", pair[0])
    and protocol in ("", pair[1])
    and not pair[0].startswith(without)
  ]
  if not pairs:
    return None
  best = min(
    reversed(pairs),
    key=lambda pair: nccl.predicted_time_us(*what, key.num_bytes, *pair),
  )
  num_channels = launch.num_channels(*what[:2], key.num_bytes, *best)
  return collective_lib.Setting(
    algorithm=best[0],
    protocol=best[1],
    num_channels=num_channels,
    chunk_bytes=launch.chunk_bytes(*what, key.num_bytes // num_channels, *best),
  )
