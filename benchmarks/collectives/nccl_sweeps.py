# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""What a setting changes: measured ratios of times, beside the model's.

A search lives off differences between settings, not off times. `--data` holds
nccl_tests/sweeps.csv, where one knob is varied and all else is fixed. Of each
series the first value is compared with every other: the time under that one
over the time under the first. Those are read whose knob the model has
(NCCL_ALGO, NCCL_PROTO, NCCL_NVLS_ENABLE, and what a tuner plugin sets) on
hardware that can be told from its description.

A forced algorithm or protocol is NCCL's own choice among those left. A forced
number of channels leaves algorithm and protocol as they are: that is how the
B300's one-channel rows come to jump fivefold where NCCL goes from LL to NVLS.
The chunk is NCCL's for the share of so many.

Two groups come of each knob, of the ratios' errors and of their signs: whether
what is predicted to be faster is faster, counted where the measured times are
at least 5 % apart. Three more say how well settings are known that NCCL does
not choose, whatever the knob: how long one channel takes; and how much longer
another algorithm or protocol takes than NCCL's own, where ranks' parts are
short and where they are long (`costs/settings_lib.py`).

Xu et al., AutoCCL (NSDI 2025), tables 3 to 6, vary what the model has
(algorithm, channels, chunk) and what it has not (threads, and whether GPUs of
a node hand on through the host's memory, SHM, or directly, P2P). No parameter
was fitted to them. Its clusters are Lagom's: A40s in NVLink pairs with 2
adapters of 400 Gb/s (lagom_a), and over PCIe with one of 100 Gb/s (lagom_b).
Figures are published as bandwidth, or as what one setting gains over another,
so all but one are compared as ratios of times. *Clean* are those that vary only
what the model has.
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
from lagom_xla.costs import settings as settings_lib
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


_LEAST_DIFFERENCE = 0.05


def compare(folder: pathlib.Path) -> Iterator[groups.Group]:
  """Groups of sweeps.csv in the folder: by knob, and of unchosen settings."""
  path = folder / "sweeps.csv"
  if not path.exists():
    return
  found: dict[str, list[groups.Comparison]] = {}
  unchosen: dict[str, list[groups.Comparison]] = {}
  for runs in series(path):
    first = runs[0]
    found.setdefault(first.knob, []).extend(
      _ratio(run, first) for run in runs[1:] if run.value != first.value
    )
    for name, comparison in _unchosen(runs):
      unchosen.setdefault(f"sweeps: {name}", []).append(comparison)
  for knob in sorted(filter(found.get, found)):
    yield groups.of_comparisons(f"sweeps, ratios: {knob}", found[knob])
    yield from _signs(knob, found[knob])
  for name in sorted(unchosen):
    yield groups.of_comparisons(name, unchosen[name])


def _ratio(run: Run, base: Run) -> groups.Comparison:
  return groups.Comparison(
    what=f"{run.what}, {run.knob} {run.value} over {base.value}",
    measured=run.measured_us / base.measured_us,
    predicted=run.predicted_us / base.predicted_us,
  )


def _unchosen(
  runs: Sequence[Run],
) -> Iterator[tuple[str, groups.Comparison]]:
  """Settings that NCCL does not choose, by what is known of them.

  One channel is compared by its time; another algorithm or protocol by how much
  longer it takes than NCCL's own, of which the last of several runs counts.
  """
  own = [run for run in runs if run.setting == run.case.default]
  for run in runs:
    default = run.case.default
    if run.setting == default:
      continue
    if run.value == "1 channel":
      compared = groups.Comparison(
        what=f"{run.what}, {run.value}, us",
        measured=run.measured_us,
        predicted=run.predicted_us,
      )
      yield "one channel", compared
    elif own:
      is_long = settings_lib.has_long_parts(run.case.key)
      length = "long" if is_long else "short"
      yield f"another algorithm, {length} parts", _ratio(run, own[-1])


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


_KIB, _MB, _MIB = 2**10, 10**6, 2**20


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Run:
  """One collective of a table under one setting.

  Attributes:
    cluster: its name.
    key: the collective.
    setting: what the model has of how it runs.
    outside: what the model has not: threads and transport.
  """

  cluster: str
  key: collective_lib.TuningKey
  setting: collective_lib.Setting
  outside: tuple[int, str]

  @property
  def time_us(self) -> float:
    """Predicted."""
    return collective_lib.predict(
      self.key, self.setting, cluster_lib.parse(self.cluster)
    ).time_us


def _run(
  cluster: str,
  key: collective_lib.TuningKey,
  algorithm: str,
  num_channels: int,
  chunk_bytes: int,
  outside: tuple[int, str],
) -> _Run:
  return _Run(
    cluster=cluster,
    key=key,
    setting=collective_lib.Setting(
      algorithm=algorithm,
      protocol="simple",
      num_channels=num_channels,
      chunk_bytes=chunk_bytes,
    ),
    outside=outside,
  )


def _gather(cluster: str, *setting: int, outside: tuple[int, str]) -> _Run:
  key = collective_lib.TuningKey("all-gather", 8, 1, 80 * _MB)
  channels, chunk_bytes = setting
  return _run(cluster, key, "ring", channels, chunk_bytes, outside)


def _reduce(
  num_mb: int, num_nodes: int, algorithm: str, *setting: int, threads: int
) -> _Run:
  key = collective_lib.TuningKey(
    "all-reduce", 8 * num_nodes, num_nodes, num_mb * _MB
  )
  channels, chunk_bytes = setting
  outside = (threads, "default")
  return _run("lagom_b", key, algorithm, channels, chunk_bytes, outside)


_PCIE_DEFAULT = _gather("lagom_b", 2, 2 * _MIB, outside=(256, "SHM"))
_PCIE_BEST = _gather("lagom_b", 8, 32 * _KIB, outside=(96, "P2P"))
_PCIE_FEW = _gather("lagom_b", 2, 32 * _KIB, outside=(96, "P2P"))
_PAIRS_DEFAULT = _gather("lagom_a", 8, 2 * _MIB, outside=(512, "P2P"))
_PAIRS_BEST = _gather("lagom_a", 64, 108 * _KIB, outside=(512, "SHM"))
_RING_16 = _reduce(64, 2, "ring", 2, 512 * _KIB, threads=256)
_TREE_16 = _reduce(64, 2, "tree", 2, 512 * _KIB, threads=256)
_TREE_16_BEST = _reduce(64, 2, "tree", 8, 59 * _KIB, threads=160)
_TREE_8 = _reduce(15, 1, "tree", 8, 59 * _KIB, threads=160)
_RING_8 = _reduce(15, 1, "ring", 10, 27 * _KIB, threads=128)

# Table: one run, another, and the time of the second over that of the first.
_RATIOS = (
  ("3: 2 over 8 channels, chunks of 32 KiB", _PCIE_BEST, _PCIE_FEW, 2.69),
  ("3: NCCL's default over the best", _PCIE_BEST, _PCIE_DEFAULT, 1.23),
  ("4: NCCL's default over the best", _PAIRS_BEST, _PAIRS_DEFAULT, 1.28),
  ("5: tree over ring, 16 GPUs", _RING_16, _TREE_16, 4.0 / 5.4),
  ("5: tuned over untuned tree, 16 GPUs", _TREE_16, _TREE_16_BEST, 5.4 / 8.9),
  ("5: ring over tree, both tuned, 8 GPUs", _TREE_8, _RING_8, 8.1 / 8.8),
)


def compare_autoccl() -> Iterator[groups.Group]:
  """Ratios that are clean, those that are not, and the one bandwidth."""
  clean, mixed = [], []
  for what, one, other, measured in _RATIOS:
    compared = groups.Comparison(
      what=f"table {what}",
      measured=measured,
      predicted=other.time_us / one.time_us,
    )
    (clean if one.outside == other.outside else mixed).append(compared)
  yield groups.of_comparisons("AutoCCL, A40, ratios: clean", clean)
  yield groups.of_comparisons(
    "AutoCCL, A40, ratios: threads or transport varied too", mixed
  )
  yield groups.of_comparisons("AutoCCL, A40, bandwidth", [_default_bandwidth()])


def _default_bandwidth() -> groups.Comparison:
  """Table 6's all-gather in NVLink pairs by itself, under NCCL's default.

  Taken for nccl-tests' bus bandwidth.
  """
  key = _PAIRS_DEFAULT.key
  sent_bytes = key.num_bytes * (key.num_ranks - 1) / key.num_ranks
  return groups.Comparison(
    what="table 6: all-gather of 80 MB in NVLink pairs, GB/s",
    measured=30.08,
    predicted=sent_bytes / (1e3 * _PAIRS_DEFAULT.time_us),
  )
