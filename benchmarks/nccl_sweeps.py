# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""What a setting changes: measured ratios of times, beside the model's.

A search lives off differences between settings, not off times. `--data` holds
nccl_tests/sweeps.csv, where one knob is varied and all else is fixed. Of each
series the first value is compared with every other: the time under that one
over the time under the first. Series are judged whose knob the model has
(NCCL_ALGO, NCCL_PROTO, NCCL_NVLS_ENABLE, and what a tuner plugin sets) on
hardware that can be told from its description; the others are left to other
benchmarks.

A forced algorithm or protocol is NCCL's own choice among those left. A forced
number of channels leaves the rest of NCCL's choice as it is: that is how the
B300's one-channel rows come to jump fivefold where NCCL goes from LL to NVLS.

Two groups come of each knob, of the ratios' errors and of their signs: whether
what is predicted to be faster is faster, counted where the measured times are
at least 5 % apart.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
import csv
import dataclasses
import itertools
import pathlib
import re
from typing import Any

from benchmarks import groups
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
_LEAST_DIFFERENCE = 0.05


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Case:
  """What runs, but for the setting."""

  cluster: cluster_lib.Cluster
  key: collective_lib.TuningKey


def compare(folder: pathlib.Path) -> Iterator[groups.Group]:
  """Groups of sweeps.csv in the folder, by knob."""
  path = folder / "sweeps.csv"
  if not path.exists():
    return
  found: dict[str, list[groups.Comparison]] = {}
  with path.open(encoding="utf-8", newline="") as file:
    lines = list(csv.DictReader(file))
  for series in _series(lines):
    for comparison in _ratios(series):
      found.setdefault(series[0]["knob"], []).append(comparison)
  for knob in sorted(found):
    yield groups.of_comparisons(f"sweeps, ratios: {knob}", found[knob])
    yield from _signs(knob, found[knob])


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


def _ratios(
  series: Sequence[Mapping[str, str]],
) -> Iterator[groups.Comparison]:
  case = _case(series[0])
  if case is None or series[0]["metric"] not in _PER_TIME:
    return
  settings = [_setting(case, line["knob"], line["value"]) for line in series]
  if settings[0] is None:
    return
  base_us = _us(case, settings[0])
  for line, setting in zip(series[1:], settings[1:], strict=True):
    if setting is None or line["value"] == series[0]["value"]:
      continue
    yield groups.Comparison(
      what=(
        f"{line['hardware']}, {line['workload']}, {line['knob']} "
        f"{line['value']} over {series[0]['value']}"
      ),
      measured=float(series[0]["figure"]) / float(line["figure"]),
      predicted=_us(case, setting) / base_us,
    )


def _signs(
  knob: str, comparisons: Sequence[groups.Comparison]
) -> Iterator[groups.Group]:
  apart = [c for c in comparisons if abs(c.measured - 1) >= _LEAST_DIFFERENCE]
  wrong = [
    f"{c.what}: measured {c.measured:.3g}, predicted {c.predicted:.3g}"
    for c in apart
    if (c.measured - 1) * (c.predicted - 1) <= 0
  ]
  if apart:
    yield groups.of_matches(f"sweeps, signs: {knob}", wrong, len(apart))


def _us(case: _Case, setting: collective_lib.Setting) -> float:
  return collective_lib.predict(case.key, setting, case.cluster).time_us


def _case(line: Mapping[str, str]) -> _Case | None:
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
    return _Case(cluster=cluster, key=key)
  if node := _IN_NODE.match(line["hardware"]):
    gpu = _GPUS.get(node["gpu"], node["gpu"].lower())
    if gpu not in cluster_lib.gpu_names():
      return None
    cluster = cluster_lib.parse(f"1x{node['all']}x{gpu}")
    num_ranks = int(node["some"] or node["all"])
    key = collective_lib.TuningKey(kind, num_ranks, 1, num_bytes)
    return _Case(cluster=cluster, key=key)
  return None


def _setting(
  case: _Case, knob: str, value: str
) -> collective_lib.Setting | None:
  """What NCCL runs under a value of a knob; None where that is not known."""
  default = collective_lib.default_setting(case.key, case.cluster)
  if value.startswith("default"):
    return default
  if found := re.fullmatch(r"(\d+) channels?", value):
    return dataclasses.replace(default, num_channels=int(found[1]))
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
