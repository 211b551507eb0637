# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""AutoCCL's measurements on A40s, beside the model.

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

from collections.abc import Iterator
import dataclasses

from benchmarks import groups
from lagom_xla import cluster as cluster_lib
from lagom_xla.costs import collective as collective_lib

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


def compare() -> Iterator[groups.Group]:
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
