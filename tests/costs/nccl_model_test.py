# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""NCCL's own model: equal to the real library's, and plausible elsewhere.

tests/benchmarks/accuracy_test.py compares its choices with the library's.
"""

from __future__ import annotations

import functools
from typing import Any

from hypothesis import assume
from hypothesis import given
from hypothesis import strategies as st
import pytest

from benchmarks import data as data_lib
from lagom_xla import cluster as cluster_lib
from lagom_xla.costs import nccl
from lagom_xla.costs.nccl import graph as graph_lib

_KINDS = {
  "AllReduce": "all-reduce",
  "AllGather": "all-gather",
  "ReduceScatter": "reduce-scatter",
}
# The library was asked about nodes with Intel CPUs.
_NODES = {
  "8xH100-SXM NVSwitch": ("h100", 50.0),
  "8xH100-SXM NVSwitch + 8x400Gb NIC": ("h100", 50.0),
  "8xA100-SXM NVSwitch": ("a100_80", 25.0),
  "8xA100-SXM NVSwitch + 8x200Gb NIC": ("a100_80", 25.0),
}


def _rows(name: str) -> list[dict[str, str]]:
  rows = data_lib.rows(f"nccl_2_32_3_{name}")
  assert rows
  return rows


@functools.cache
def _cluster(gpu: str, num_nodes: int, **node: Any) -> cluster_lib.Cluster:
  raw = {"gpu": gpu, "num_nodes": num_nodes, "node": node}
  return cluster_lib.from_dict(raw, where=gpu)


def _described(
  row: dict[str, str],
) -> tuple[cluster_lib.Cluster, nccl.Communicator]:
  gpu, nic_gbps = _NODES[row["node"]]
  num_nodes = int(row["n_nodes"])
  cluster = _cluster(gpu, num_nodes, nic_gbps=nic_gbps, cpu_vendor="intel")
  return cluster, nccl.Communicator(
    num_ranks=int(row["n_ranks"]), num_nodes=num_nodes
  )


def test_latencies_and_bandwidths_equal_the_real_librarys():
  for row in _rows("latency_bandwidth"):
    algorithm = row["algorithm"].lower().replace("nvlst", "nvlstree")
    pair = (algorithm, row["protocol"].lower())
    key = (*_described(row), _KINDS[row["collective"]], *pair)
    # The table is rounded to 0.1.
    latency = float(row["latency_us"])
    assert nccl.latency_us(*key) == pytest.approx(latency, abs=0.051), row
    bandwidth = float(row["bandwidth_gbps"])
    assert nccl.bandwidth_gbps(*key) == pytest.approx(bandwidth, abs=0.051), row


def test_graphs_equal_the_real_librarys():
  for row in _rows("graphs"):
    graphs = graph_lib.search(*_described(row))
    graph = getattr(graphs, row["graph"])
    assert graph.num_channels == int(row["n_channels"]), row
    assert graph.intra_gbps == float(row["bw_intra_gbps"]), row
    assert graph.inter_gbps == float(row["bw_inter_gbps"]), row
    assert graph.is_chain == (row["pattern"] == "3"), row
    assert graphs.num_channels == int(row["comm_n_channels"]), row


# What NCCL 2.32.3 itself says of nodes that the tables lack: GPU, its node,
# ranks per node, nodes, then ring and tree as (channels, GB/s in and between
# nodes), NVLS heads likewise, and the communicator's channels.
@pytest.mark.parametrize(
  ("gpu", "ranks", "nodes", "ring", "tree", "nvls", "num_channels"),
  [
    ("h100", 4, 1, (12, 30, 30), (12, 30, 30), (4, 60, 60), 24),
    ("h100", 2, 1, (12, 30, 30), (12, 60, 60), (2, 60, 60), 24),
    ("h100", 4, 2, (8, 24, 24), (8, 48, 24), (4, 48, 48), 16),
    ("h100", 1, 4, (2, 24, 24), (2, 48, 24), None, 4),
    ("a100_80", 4, 2, (4, 24, 24), (4, 48, 24), None, 8),
    ("a100_80", 2, 1, (12, 20, 20), (12, 40, 40), None, 24),
    ("b200", 8, 1, (16, 45, 45), (16, 45, 45), (8, 80, 90), 32),
    ("b200", 8, 2, (8, 48, 48), (8, 96, 48), (8, 48, 48), 16),
  ],
)
def test_graphs_of_partial_nodes_equal_nccls(
  gpu, ranks, nodes, ring, tree, nvls, num_channels
):
  cluster = _cluster(gpu, nodes, cpu_vendor="intel")
  communicator = nccl.Communicator(num_ranks=ranks * nodes, num_nodes=nodes)
  found = graph_lib.search(cluster, communicator)

  def numbers(graph: graph_lib.Graph | None) -> tuple[float, ...] | None:
    if graph is None:
      return None
    return graph.num_channels, graph.intra_gbps, graph.inter_gbps

  assert numbers(found.ring) == ring
  assert numbers(found.tree) == tree
  assert numbers(found.nvls) == nvls
  assert found.num_channels == num_channels


# Also asked of NCCL 2.32.3: kind, bytes, algorithm, protocol, channels, time.
@pytest.mark.parametrize(
  ("gpu", "ranks", "nodes", "kind", "size", "pair", "channels", "time_us"),
  [
    ("b200", 8, 1, "all-gather", 1 << 26, ("ring", "ll128"), 32, 119.05),
    ("b200", 8, 1, "all-gather", 1 << 28, ("ring", "simple"), 32, 368.08),
    ("h100", 1, 8, "all-gather", 1 << 17, ("pat", "simple"), 3, 46.04),
    ("h100", 1, 8, "reduce-scatter", 65536, ("pat", "simple"), 1, 44.22),
  ],
)
def test_choices_on_other_clusters_equal_nccls(
  gpu, ranks, nodes, kind, size, pair, channels, time_us
):
  cluster = _cluster(gpu, nodes, cpu_vendor="intel")
  communicator = nccl.Communicator(num_ranks=ranks * nodes, num_nodes=nodes)
  setting = nccl.default_setting(cluster, communicator, kind, size)
  assert (setting.algorithm, setting.protocol) == pair
  assert setting.num_channels == channels
  time = nccl.predicted_time_us(cluster, communicator, kind, size, *pair)
  assert time == pytest.approx(time_us, rel=1e-3)


def test_default_chunk_sizes_equal_nccls():
  cluster = _cluster("h100", 1)
  node = nccl.Communicator(num_ranks=8, num_nodes=1)

  def chunk(kind: str, num_bytes: int) -> int:
    return nccl.default_setting(cluster, node, kind, num_bytes).chunk_bytes

  assert chunk("all-gather", 1 << 30) == 2 << 20
  assert chunk("all-gather", 1 << 14) == 32 << 10
  assert chunk("all-gather", 1 << 24) == 576_000
  assert chunk("all-reduce", 1 << 28) == 64 << 10
  assert chunk("all-reduce", 1 << 31) == 128 << 10
  assert chunk("collective-broadcast", 1 << 28) == 512 << 10


_GPUS = st.sampled_from(cluster_lib.gpu_names())
_ALL_KINDS = st.sampled_from(
  [
    *_KINDS.values(),
    *("collective-broadcast", "reduce", "collective-permute"),
    *("all-to-all", "ragged-all-to-all"),
  ]
)


_Key = tuple[cluster_lib.Cluster, nccl.Communicator, str]


@st.composite
def _keys(draw: st.DrawFn) -> _Key:
  nodes = draw(st.sampled_from([1, 2, 3, 8]))
  cluster = _cluster(draw(_GPUS), nodes)
  sizes = [n for n in (1, 2, 4, 8) if n <= cluster.gpus_per_node]
  ranks = nodes * draw(st.sampled_from(sizes))
  communicator = nccl.Communicator(num_ranks=ranks, num_nodes=nodes)
  return cluster, communicator, draw(_ALL_KINDS)


_SIZES = st.integers(1, 1 << 34)


@given(key=_keys(), num_bytes=_SIZES)
def test_the_default_setting_is_valid_and_predicted_fastest(
  key: _Key, num_bytes: int
):
  cluster, communicator, kind = key
  setting = nccl.default_setting(*key, num_bytes)
  chosen = (setting.algorithm, setting.protocol)
  pairs = nccl.candidates(*key)
  assert chosen in pairs
  least = 0 if communicator.num_ranks == 1 else 1
  most = nccl.max_channels(cluster, communicator, setting.algorithm)
  assert least <= setting.num_channels <= most <= 64
  assert setting.chunk_bytes % nccl.chunk_grain_bytes(setting.protocol) == 0
  assert 0 < setting.chunk_bytes <= nccl.max_chunk_bytes(*chosen)
  if kind not in nccl.SEND_RECV:  # NCCL goes only by size there.
    time_us = nccl.predicted_time_us(*key, num_bytes, *chosen)
    for pair in pairs:
      assert time_us <= nccl.predicted_time_us(*key, num_bytes, *pair)


@given(key=_keys(), sizes=st.tuples(_SIZES, _SIZES))
def test_rings_and_messages_are_never_faster_with_more_bytes(key: _Key, sizes):
  # NCCL lets Blackwell's latency fall with the size.
  assume(key[0].gpu.compute_capability[0] != 10)
  fewer, more = sorted(sizes)
  for pair in nccl.candidates(*key):
    if pair[0] not in ("ring", "p2p"):
      continue  # NCCL corrects trees by size, up and down.
    time = nccl.predicted_time_us(*key, fewer, *pair)
    assert 0 <= time <= nccl.predicted_time_us(*key, more, *pair)


@given(gpu=_GPUS, kind=_ALL_KINDS, num_bytes=_SIZES)
def test_a_single_rank_costs_nothing(gpu, kind, num_bytes):
  alone = nccl.Communicator(num_ranks=1, num_nodes=1)
  key = (_cluster(gpu, 1), alone, kind)
  setting = nccl.default_setting(*key, num_bytes)
  assert setting.num_channels == 0
  pair = (setting.algorithm, setting.protocol)
  assert nccl.predicted_time_us(*key, num_bytes, *pair) == 0


def test_ampere_allows_ll128_for_rings_but_not_trees_between_nodes():
  cluster = _cluster("a100_80", 2)
  communicator = nccl.Communicator(num_ranks=16, num_nodes=2)
  pairs = nccl.candidates(cluster, communicator, "all-reduce")
  assert ("ring", "ll128") in pairs
  assert ("tree", "ll128") not in pairs  # Its trees pass through a CPU.


def test_messages_use_ll_only_when_small_and_within_a_node():
  for nodes, protocol in ((1, "ll"), (2, "simple")):
    communicator = nccl.Communicator(num_ranks=8 * nodes, num_nodes=nodes)
    key = (_cluster("h100", nodes), communicator, "collective-permute")
    assert nccl.default_setting(*key, 4096).protocol == protocol
    assert nccl.default_setting(*key, 1 << 28).protocol == "simple"


def test_an_all_to_all_runs_at_the_rate_of_its_slower_link():
  node, pair = _cluster("h100", 1), _cluster("h100", 2)
  inside = nccl.Communicator(num_ranks=8, num_nodes=1)
  across = nccl.Communicator(num_ranks=16, num_nodes=2)
  fast = nccl.bandwidth_gbps(node, inside, "all-to-all", "p2p", "simple")
  slow = nccl.bandwidth_gbps(pair, across, "all-to-all", "p2p", "simple")
  assert fast == pytest.approx(18 * 20.6 * 8 / 7)
  assert slow == pytest.approx(48 * 16 / 8)


def test_errors_name_the_invalid_argument():
  cluster = _cluster("h100", 1)
  node = nccl.Communicator(num_ranks=8, num_nodes=1)
  with pytest.raises(ValueError, match="NCCL has no collective 'all-sum'"):
    nccl.candidates(cluster, node, "all-sum")
  with pytest.raises(ValueError, match="no 'tree' with 'll' for all-gather"):
    nccl.latency_us(cluster, node, "all-gather", "tree", "ll")
  with pytest.raises(ValueError, match="at least one rank"):
    nccl.Communicator(num_ranks=0, num_nodes=1)
  with pytest.raises(ValueError, match="NCCL has no protocol 'LL'"):
    nccl.chunk_grain_bytes("LL")
  with pytest.raises(ValueError, match="NCCL has no algorithm 'rings'"):
    nccl.max_channels(cluster, node, "rings")
