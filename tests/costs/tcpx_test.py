# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Google's fabrics: TCPX, which runs one kind of collective, and TCPXO."""

from __future__ import annotations

import pytest

from lagom_xla import cluster as cluster_lib
from lagom_xla.costs import collective as collective_lib
from lagom_xla.costs import nccl

_MIB = 2**20


def _all_gather_us(name: str, num_bytes: int) -> float:
  cluster = cluster_lib.parse(name)
  key = collective_lib.TuningKey(
    kind="all-gather",
    num_ranks=cluster.num_devices,
    num_nodes=cluster.num_nodes,
    num_bytes=num_bytes,
  )
  setting = collective_lib.default_setting(key, cluster)
  return collective_lib.predict(key, setting, cluster).time_us


@pytest.mark.parametrize("kind", ["all-reduce", "all-gather", "reduce-scatter"])
def test_tcpx_runs_rings_of_simple_alone_but_only_between_nodes(kind: str):
  cluster = cluster_lib.parse("2xa3-highgpu-8g")
  across, within = (
    nccl.candidates(
      cluster, nccl.Communicator(num_ranks=8 * nodes, num_nodes=nodes), kind
    )
    for nodes in (2, 1)
  )
  assert across == (("ring", "simple"),)
  assert ("nvls", "simple") in within


def test_tcpxo_has_no_ll_but_within_nodes():
  cluster = cluster_lib.parse("2xa3-megagpu-8g")
  across, within = (
    nccl.candidates(
      cluster,
      nccl.Communicator(num_ranks=8 * nodes, num_nodes=nodes),
      "all-reduce",
    )
    for nodes in (2, 1)
  )
  assert {protocol for _, protocol in across} == {"ll128", "simple"}
  assert ("ring", "ll") in within


def test_tcpx_reaches_what_google_expects_of_its_adapters():
  # 150 of each 200 Gbit/s, on four of them; a gather sends 15 of 16 parts.
  num_bytes = 8 * 1024 * _MIB
  sent_bytes = num_bytes * 15 / 16
  gbps = sent_bytes / (1e3 * _all_gather_us("2xa3-highgpu-8g", num_bytes))
  assert gbps == pytest.approx(4 * 150 / 8, rel=0.01)


@pytest.mark.parametrize(
  ("mebibytes", "measured_us"),
  [
    (8, 166.6),
    (16, 204.6),
    (32, 284.0),
    (128, 808.3),
    (512, 2892.3),
    (1024, 5532.7),
    (8192, 42713.0),
  ],
)
def test_tcpxo_is_as_published_with_no_row_in_the_fit(
  mebibytes: int, measured_us: float
):
  # On two a3-megagpu-8g: examples/clusters/a3mega/README.md of dstackai/dstack
  # at 30a0dd5. 64 MiB are left out: there Google's profile keeps to LL128.
  predicted_us = _all_gather_us("2xa3-megagpu-8g", mebibytes * _MIB)
  assert predicted_us == pytest.approx(measured_us, rel=0.08)
