# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Ratios of times between settings: measured and predicted.

A search depends on differences between settings, not on absolute times. Each
series of nccl_tests/sweeps.csv in --data varies one knob. The time under every
value is compared as a ratio to that under the first. Series are used if the
model has the knob (NCCL_ALGO, NCCL_PROTO, NCCL_NVLS_ENABLE, and settings of a
tuner plugin) and the description identifies the hardware. With a forced
algorithm or protocol, NCCL chooses among the remaining ones; a forced number of
channels keeps both. The chunk is NCCL's for that number of channels.

Groups are of ratios, and of signs: whether the setting predicted to be faster
is faster, if times differ by 5 %. Three more groups are for settings that NCCL
does not choose (`costs/settings.py`).

AutoCCL (Xu et al., NSDI 2025), tables 3 to 6, also varies knobs that the model
lacks: threads, and whether GPUs of a node communicate through the host's memory
(SHM) or directly (P2P). *Clean* ratios vary only knobs of the model. Its
clusters are Lagom's: A40s in NVLink pairs (lagom_a) and over PCIe (lagom_b).
"""

from __future__ import annotations

import collections
from collections.abc import Iterator, Mapping, Sequence
import dataclasses
import itertools
import pathlib
import re
from typing import Any

from benchmarks import data
from benchmarks import groups
from benchmarks.collectives import lone_collective
from lagom_xla import cluster as cluster_lib
from lagom_xla.calibrate import log
from lagom_xla.costs import collective as collective_lib
from lagom_xla.costs import nccl
from lagom_xla.costs import settings as settings_lib
from lagom_xla.costs.nccl import launch

_UNITS = {"KiB": 2**10, "MiB": 2**20, "GiB": 2**30}
_WORKLOAD = re.compile(
  r"(?P<kind>all_reduce|all_gather|reduce_scatter)"
  r" (?P<size>\d+) (?P<unit>[KMG]iB)"
)
# "4 of 8 B200", "8 B300 SXM6"
_IN_NODE = re.compile(r"(?:(?P<some>\d+) of )?(?P<all>\d+) (?P<gpu>[A-Z]+\d+)")
# "GB200, 12 GPUs on 3 racks": the GPUs of a rack are one node for NCCL.
_ON_RACKS = re.compile(r"GB200, (?P<gpus>\d+) GPUs on (?P<racks>\d+) racks")
# B300s have the NVLink of B200s.
_GPUS = {"B300": "b200"}
_LEAST_DIFFERENCE = 0.05


@dataclasses.dataclass(frozen=True, kw_only=True)
class Run(lone_collective.MeasuredCall):
  """A time under one value of a knob, derived from a measured bandwidth."""

  what: str
  knob: str
  value: str

  @property
  def is_default(self) -> bool:
    """Whether this is NCCL's own choice."""
    default = collective_lib.default_setting(self.key, self.cluster)
    return self.setting == default

  def over(self, base: Run) -> groups.Comparison:
    """Comparison of the time ratio to another run of its series."""
    return groups.Comparison(
      f"{self.what}, {self.knob} {self.value} over {base.value}",
      self.time_us / base.time_us,
      self.predict_us() / base.predict_us(),
    )


def _series(path: pathlib.Path) -> Iterator[Sequence[Run]]:
  """The series of sweeps.csv that the model covers, sorted.

  A series has several lines, which differ only in the knob's value.
  """

  def fixed(line: Mapping[str, str]) -> tuple[str, ...]:
    columns = ("source", "hardware", "workload", "knob", "metric")
    return tuple(line[name] for name in columns)

  for _, members in itertools.groupby(
    sorted(data.rows(path), key=fixed), fixed
  ):
    series = list(members)
    if len(series) > 1 and (runs := _runs(series)):
      yield runs


def _runs(series: Sequence[Mapping[str, str]]) -> list[Run]:
  """The lines of a series that the model covers; [] if not the first line."""
  case, metric = _case(series[0]), series[0]["metric"]
  if case is None or metric not in ("busbw", "algbw"):
    return []
  cluster, key = case
  share = 1.0
  if metric == "busbw":
    share = log.bus_share(key.kind.replace("-", "_"), key.num_ranks)
  runs = []
  for line in series:
    setting = _setting(cluster, key, line["knob"], line["value"])
    if setting is None and not runs:
      return []
    if setting is not None:
      runs.append(
        Run(
          what=f"{line['hardware']}, {line['workload']}",
          knob=line["knob"],
          value=line["value"],
          cluster=cluster,
          key=key,
          setting=setting,
          time_us=share * key.num_bytes / (1e3 * float(line["figure"])),
        )
      )
  return runs


def _case(
  line: Mapping[str, str],
) -> tuple[cluster_lib.Cluster, collective_lib.TuningKey] | None:
  """The cluster and the collective of a line; None if unknown."""
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
    num_ranks = cluster.num_devices
  elif node := _IN_NODE.match(line["hardware"]):
    gpu = _GPUS.get(node["gpu"], node["gpu"].lower())
    if gpu not in cluster_lib.gpu_names():
      return None
    cluster = cluster_lib.parse(f"1x{node['all']}x{gpu}")
    num_nodes, num_ranks = 1, int(node["some"] or node["all"])
  else:
    return None
  key = collective_lib.TuningKey(kind, num_ranks, num_nodes, num_bytes)
  return cluster, key


def _setting(
  cluster: cluster_lib.Cluster,
  key: collective_lib.TuningKey,
  knob: str,
  value: str,
) -> collective_lib.Setting | None:
  """NCCL's setting under a value of a knob; None if unknown."""
  default = collective_lib.default_setting(key, cluster)
  if value.startswith("default"):
    return default
  if found := re.fullmatch(r"(\d+) channels?", value):
    pair = default.algorithm, default.protocol
    return lone_collective.launched(key, cluster, *pair, int(found[1]))
  algorithm, _, protocol = value.lower().partition("/")
  if knob == "NCCL_NVLS_ENABLE" and value == "0":
    return forced(key, cluster, without="nvls")
  if knob == "NCCL_PROTO":
    return forced(key, cluster, protocol=algorithm)
  if knob == "NCCL_ALGO" or protocol:
    return forced(key, cluster, algorithm=algorithm, protocol=protocol)
  return None


def forced(
  key: collective_lib.TuningKey,
  cluster: cluster_lib.Cluster,
  *,
  algorithm: str = "",
  protocol: str = "",
  without: str = "-",
) -> collective_lib.Setting | None:
  """NCCL's choice under a forced algorithm or protocol; None if impossible.

  An empty name allows any. Algorithms whose names start with `without` are
  excluded.
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
  return lone_collective.launched(key, cluster, *best, num_channels)


def compare(folder: pathlib.Path) -> Iterator[groups.Group]:
  """Groups of the folder's sweeps.csv: by knob, and for unchosen settings."""
  path = folder / "sweeps.csv"
  if not path.exists():
    return
  series = list(_series(path))
  ratios = collections.defaultdict(list)
  for first, *others in series:
    ratios[first.knob] += [
      run.over(first) for run in others if run.value != first.value
    ]
  for knob in sorted(filter(ratios.get, ratios)):
    yield groups.of_comparisons(f"sweeps, ratios: {knob}", ratios[knob])
    apart = [
      c for c in ratios[knob] if abs(c.measured - 1) >= _LEAST_DIFFERENCE
    ]
    wrong = [str(c) for c in apart if (c.measured - 1) * (c.predicted - 1) <= 0]
    if apart:
      yield groups.of_matches(f"sweeps, signs: {knob}", wrong, len(apart))
  yield from groups.by_name(
    "sweeps: ", itertools.chain.from_iterable(map(_unchosen, series))
  )


def _unchosen(runs: Sequence[Run]) -> Iterator[tuple[str, groups.Comparison]]:
  """Comparisons of settings that NCCL does not choose, by part.

  For one channel, the comparison is of its time; for another algorithm or
  protocol, of its time over that of NCCL's own choice, from the last such run.
  """
  own = [run for run in runs if run.is_default]
  for run in runs:
    if run.is_default:
      continue
    if run.value == "1 channel":
      yield "one channel", run.comparison(f"{run.what}, {run.value}")
    elif own:
      is_long = settings_lib.has_long_parts(run.key)
      length = "long" if is_long else "short"
      yield f"another algorithm, {length} parts", run.over(own[-1])


_KIB, _MB = 2**10, 10**6

# AutoCCL's runs: cluster; kind, ranks, nodes and bytes; algorithm, channels and
# chunk, under Simple; and the knobs that the model lacks: threads and
# transport.
_GATHER = ("all-gather", 8, 1, 80 * _MB)
_REDUCE_8 = ("all-reduce", 8, 1, 15 * _MB)
_REDUCE_16 = ("all-reduce", 16, 2, 64 * _MB)
_AUTOCCL = {
  "PCIe default": ("lagom_b", _GATHER, ("ring", 2, 2048), (256, "SHM")),
  "PCIe best": ("lagom_b", _GATHER, ("ring", 8, 32), (96, "P2P")),
  "PCIe few": ("lagom_b", _GATHER, ("ring", 2, 32), (96, "P2P")),
  "pairs default": ("lagom_a", _GATHER, ("ring", 8, 2048), (512, "P2P")),
  "pairs best": ("lagom_a", _GATHER, ("ring", 64, 108), (512, "SHM")),
  "ring 16": ("lagom_b", _REDUCE_16, ("ring", 2, 512), (256, "")),
  "tree 16": ("lagom_b", _REDUCE_16, ("tree", 2, 512), (256, "")),
  "tree 16 best": ("lagom_b", _REDUCE_16, ("tree", 8, 59), (160, "")),
  "tree 8": ("lagom_b", _REDUCE_8, ("tree", 8, 59), (160, "")),
  "ring 8": ("lagom_b", _REDUCE_8, ("ring", 10, 27), (128, "")),
}
# Table: two runs, and the time of the second over that of the first.
_RATIOS = {
  "3: 2 over 8 channels, chunks of 32 KiB": ("PCIe best", "PCIe few", 2.69),
  "3: NCCL's default over the best": ("PCIe best", "PCIe default", 1.23),
  "4: NCCL's default over the best": ("pairs best", "pairs default", 1.28),
  "5: tree over ring, 16 GPUs": ("ring 16", "tree 16", 4.0 / 5.4),
  "5: tuned over untuned tree, 16 GPUs": (
    *("tree 16", "tree 16 best"),
    5.4 / 8.9,
  ),
  "5: ring over tree, both tuned, 8 GPUs": ("tree 8", "ring 8", 8.1 / 8.8),
}


def compare_autoccl() -> Iterator[groups.Group]:
  """Groups of clean ratios, of the other ratios, and of the one bandwidth."""
  found: dict[bool, list[groups.Comparison]] = {True: [], False: []}
  for what, (one, other, measured) in _RATIOS.items():
    ratio = _autoccl_us(other) / _autoccl_us(one)
    is_clean = _AUTOCCL[one][-1] == _AUTOCCL[other][-1]
    found[is_clean].append(groups.Comparison(f"table {what}", measured, ratio))
  title = "AutoCCL, A40, ratios: "
  yield groups.of_comparisons(f"{title}clean", found[True])
  yield groups.of_comparisons(
    f"{title}threads or transport varied too", found[False]
  )
  # Assumes that the table has the bus bandwidth of nccl-tests.
  gbps = 80 * _MB * 7 / 8 / (1e3 * _autoccl_us("pairs default"))
  what = "table 6: all-gather of 80 MB in NVLink pairs, GB/s"
  yield groups.of_comparisons(
    "AutoCCL, A40, bandwidth", [groups.Comparison(what, 30.08, gbps)]
  )


def _autoccl_us(name: str) -> float:
  cluster, key, (algorithm, num_channels, chunk_kib), _ = _AUTOCCL[name]
  setting = collective_lib.Setting(
    algorithm=algorithm,
    protocol="simple",
    num_channels=num_channels,
    chunk_bytes=chunk_kib * _KIB,
  )
  return collective_lib.predict(
    collective_lib.TuningKey(*key), setting, cluster_lib.parse(cluster)
  ).time_us
