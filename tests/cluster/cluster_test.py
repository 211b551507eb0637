# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Clusters are named as people name them, and their groups span nodes."""

from __future__ import annotations

import json
import pathlib

import hypothesis
from hypothesis import strategies as st
import pytest

import cluster_figures
from lagom_xla import cluster
from lagom_xla import errors


@hypothesis.given(
  num_nodes=st.integers(1, 2**11),
  gpus_per_node=st.integers(1, 128),
  gpu=st.sampled_from(cluster.gpu_names()),
)
def test_a_cluster_is_what_its_name_says(
  num_nodes: int, gpus_per_node: int, gpu: str
) -> None:
  name = f"{num_nodes}x{gpus_per_node}x{gpu}"
  parsed = cluster.parse(name)
  assert parsed.name == name
  assert parsed.gpu.name == gpu
  assert parsed.num_devices == num_nodes * gpus_per_node
  assert cluster.parse(name.upper().replace("_", "-")) == parsed
  as_json = json.loads(json.dumps(parsed.to_dict()))
  assert cluster.from_dict(as_json, where="a plan") == parsed


def test_the_clusters_of_the_paper_differ_in_their_network() -> None:
  a, b = cluster.parse("lagom_a"), cluster.parse("LAGOM-B")
  assert (a.num_nodes, a.gpus_per_node) == (b.num_nodes, b.gpus_per_node)
  assert (a.num_nodes, a.gpus_per_node) == (2, 8)
  assert a.gpu == b.gpu == cluster.parse("2x8xa40").gpu
  assert a.node.nvlink is not None and a.node.nvlink.topology == "pairs"
  assert a.node.nvlink.num_links * a.node.nvlink.link_gbps * 8 == 400
  assert a.node.num_nics * a.node.nic_gbps * 8 == 2 * 400
  assert b.node.nvlink is None
  assert b.node.num_nics * b.node.nic_gbps * 8 == 100


def test_gpus_without_nodes_are_one_node() -> None:
  assert cluster.parse("8xh100") == cluster.parse("1x8xh100")
  assert cluster.parse("4xA100") == cluster.parse("1x4xa100")


@pytest.mark.parametrize(
  ("text", "gpu", "fabric", "total_gbit"),
  [
    ("2xp5.48xlarge", "h100", "efa", 3200),
    ("4xp6-b200.48xlarge", "b200", "efa", 3200),
    ("2xp6-b300.48xlarge", "b300", "efa", 6400),
    ("8xa3-megagpu-8g", "h100", "tcpxo", 1600),
    ("2xND_H100_v5", "h100", "infiniband", 3200),
    ("2xp4d.24xlarge", "a100_40", "efa", 400),
  ],
)
def test_machines_are_named_as_people_rent_them(
  text: str, gpu: str, fabric: str, total_gbit: int
) -> None:
  rented = cluster.parse(text)
  assert rented.name == text
  assert rented.num_nodes == int(text[0])
  assert rented.gpu.name == gpu
  assert rented.node.fabric == fabric
  assert rented.node.num_nics * rented.node.nic_gbps * 8 == total_gbit
  assert cluster.parse(text.upper().replace("-", "_")) == rented
  # What is inside the node is the GPU's own.
  assert rented.node.nvlink == cluster.parse(f"1x8x{gpu}").node.nvlink


def test_every_machine_has_its_source() -> None:
  folder = pathlib.Path(cluster.__file__).parent / "machines"
  names = cluster.machine_names()
  assert len(names) > 10
  for name in names:
    raw = json.loads((folder / f"{name}.json").read_text(encoding="utf-8"))
    assert len(raw["source"]) > 20
    rented = cluster.parse(f"3x{raw['name']}")
    assert rented.num_devices == 3 * raw["gpus_per_node"]


@hypothesis.given(st.data())
def test_a_group_spans_the_nodes_its_devices_lie_in(
  data: st.DataObject,
) -> None:
  pod = cluster.parse("4x8xh100")
  nodes = data.draw(st.sets(st.integers(0, 3), min_size=1))
  devices = [
    8 * node + local
    for node in nodes
    for local in data.draw(st.sets(st.integers(0, 7), min_size=1))
  ]
  order = data.draw(st.permutations(devices))
  assert pod.num_nodes_of(order) == pod.num_nccl_nodes_of(order) == len(nodes)


def test_an_nvlink_domain_over_many_nodes_is_one_node_to_nccl() -> None:
  racks = cluster.parse("36x4xgb200")
  assert racks.num_nodes_of(range(144)) == 36
  assert racks.num_nccl_nodes_of(range(72)) == 1
  assert racks.num_nccl_nodes_of(range(144)) == 2
  assert cluster.parse("2x72xgb200").num_nccl_nodes_of(range(144)) == 2


@pytest.mark.parametrize("device", [-1, 16])
def test_a_device_outside_the_cluster_is_named(device: int) -> None:
  with pytest.raises(errors.ClusterError, match=rf"device {device} .*0 to 15"):
    cluster.parse("2x8xh100").num_nodes_of([0, device])


def test_a_node_with_half_the_gpus_has_half_the_adapters() -> None:
  assert cluster.parse("2x4xh100").node.num_nics == 4
  assert cluster.parse("2x1xa40").node.num_nics == 1


@pytest.mark.parametrize(
  "text", ["", "h100", "8xh900", "2xp4", "1x8x", "axbxh100"]
)
def test_text_that_names_no_cluster_is_told_what_does(text: str) -> None:
  message = cluster_figures.error_of(text)
  assert message.startswith(f"cluster {text!r} is neither NODESxGPUSxGPU")
  assert "lagom_a, lagom_b" in message
  assert "h200" in message


@pytest.mark.parametrize(
  ("text", "message"),
  [
    ("1x8xh900", 'unknown GPU "h900"; known: a100_40, a100_80'),
    ("0x8xh100", "num_nodes is 0; it must be a whole number above 0"),
    ("1x-8xh100", "gpus_per_node is -8; it must be a whole number above 0"),
  ],
)
def test_a_cluster_of_an_unknown_gpu_or_size_is_refused(
  text: str, message: str
) -> None:
  assert message in cluster_figures.error_of(text)
