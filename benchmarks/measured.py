# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""NCCL's choices, lone collectives and lone products, beside the model."""

from __future__ import annotations

from collections.abc import Iterator
import functools
import math
import re

from benchmarks import data as data_lib
from benchmarks import groups
from benchmarks.collectives import lone_collective
from lagom_xla import cluster as cluster_lib
from lagom_xla.costs import gemm
from lagom_xla.costs import nccl

_NCCL_KINDS = {
  "AllReduce": "all-reduce",
  "AllGather": "all-gather",
  "ReduceScatter": "reduce-scatter",
  "Broadcast": "collective-broadcast",
  "Reduce": "reduce",
}
_NCCL_ALGORITHMS = {
  "RING": "ring",
  "TREE": "tree",
  "NVLS": "nvls",
  "NVLST": "nvlstree",
  "NVLSTREE": "nvlstree",
  "NVLS_TREE": "nvlstree",
  "PAT": "pat",
}
# "8xH100-SXM NVSwitch + 8x400Gb NIC"
_NODE = re.compile(
  r"(?P<gpus>\d+)x(?P<gpu>\w+)-SXM NVSwitch"
  r"(?: \+ (?P<nics>\d+)x(?P<gbits>\d+)Gb NIC)?"
)


def nccl_choices() -> Iterator[groups.Group]:
  """What NCCL 2.32.3 itself chooses and predicts."""
  table = data_lib.rows("nccl_2_32_3_choices")
  mismatches = []
  times = []
  for row in table:
    cluster, communicator = _described(row)
    kind = _NCCL_KINDS[row["collective"]]
    num_bytes = int(row["n_bytes"])
    key = (cluster, communicator, kind, num_bytes)
    chosen = nccl.default_setting(*key)
    wanted = (
      _NCCL_ALGORITHMS[row["algorithm"].upper()],
      row["protocol"].lower(),
      int(row["n_channels"]),
    )
    what = f"{row['node']}, {row['n_nodes']} nodes, {kind} {num_bytes} B"
    if wanted != (chosen.algorithm, chosen.protocol, chosen.num_channels):
      mismatches.append(f"{what}: NCCL says {wanted}, the model {chosen}")
    times.append(
      groups.Comparison(
        what=what,
        measured=float(row["predicted_time_us"]),
        predicted=nccl.predicted_time_us(*key, *wanted[:2]),
      )
    )
  yield groups.of_matches("NCCL's choices", mismatches, len(table))
  yield groups.of_comparisons("NCCL's own times", times)


def _described(
  row: dict[str, str],
) -> tuple[cluster_lib.Cluster, nccl.Communicator]:
  """The cluster and communicator of a row of the NCCL tables."""
  communicator = nccl.Communicator(
    num_ranks=int(row["n_ranks"]), num_nodes=int(row["n_nodes"])
  )
  return _cluster(row["node"], communicator.num_nodes), communicator


@functools.cache
def _cluster(node: str, num_nodes: int) -> cluster_lib.Cluster:
  found = _NODE.fullmatch(node)
  if found is None:
    raise ValueError(f"{node!r} is not a node this benchmark can describe.")
  # The library was asked about nodes with Intel CPUs.
  figures: dict[str, object] = {"cpu_vendor": "intel"}
  if found["nics"]:
    figures["num_nics"] = int(found["nics"])
    figures["nic_gbps"] = int(found["gbits"]) / 8
  raw = {
    "gpu": found["gpu"].lower().replace("a100", "a100_80"),
    "num_nodes": num_nodes,
    "gpus_per_node": int(found["gpus"]),
    "node": figures,
  }
  return cluster_lib.from_dict(raw, where=node)


# The table's names -> ours, with HLO's types.
_PRODUCT_GPUS = {"sm_90": "h100", "sm_100_B200": "b200"}


def products() -> Iterator[groups.Group]:
  """Lone matrix products, by GPU and precision."""
  by_group: dict[str, list[groups.Comparison]] = {}
  gpus = {
    device: cluster_lib.parse(f"1x8x{name}").gpu
    for device, name in _PRODUCT_GPUS.items()
  }
  for row in data_lib.rows("matmul_flops"):
    if row["device"] not in gpus:
      continue
    batch, m, n, k = (int(row[name]) for name in ("batch", "m", "n", "k"))
    shape = {"batch": batch, "m": m, "n": n, "k": k}
    lhs, _, rest = row["dtypes"].partition("x")
    rhs, _, out = rest.partition("->")
    flops = 2.0 * math.prod(shape.values())
    precision = "fp8" if lhs.startswith("f8") else lhs
    by_group.setdefault(f"products: {row['device']}, {precision}", []).append(
      groups.Comparison(
        what=f"{row['dtypes']} {shape}, us",
        measured=flops / float(row["flops_per_second"]) * 1e6,
        predicted=gemm.tabulated_us(
          gpus[row["device"]], (batch, m, n, k), (lhs, rhs, out)
        ),
      )
    )
  for name in sorted(by_group):
    yield groups.of_comparisons(name, by_group[name])


def collectives() -> Iterator[groups.Group]:
  """Lone collectives, by device, small ones apart."""
  by_group: dict[str, list[groups.Comparison]] = {}
  for row in lone_collective.read_table():
    size = "64 KiB and more" if row.is_large else "below 64 KiB"
    by_group.setdefault(f"collectives: {row.device}, {size}", []).append(
      groups.Comparison(
        what=f"{row.key.kind} of {row.num_bytes} B"
        f" over {row.key.num_ranks}, us",
        measured=row.time_us,
        predicted=row.predict_us(),
      )
    )
  for name in sorted(by_group):
    yield groups.of_comparisons(name, by_group[name])
