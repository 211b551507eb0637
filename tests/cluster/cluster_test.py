# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Clusters by name, file or devices: figures with sources, or a refusal."""

from __future__ import annotations

import copy
import dataclasses
import json
import pathlib
import types
from typing import Any

import hypothesis
from hypothesis import strategies as st
import pytest

from lagom_xla import cluster
from lagom_xla import errors


def _leaves(raw: object, path: str = "") -> dict[str, Any]:
  """Every value in nested objects, by its dotted path."""
  if not isinstance(raw, dict):
    return {path: raw}
  nested = (_leaves(v, f"{path}.{k}" if path else k) for k, v in raw.items())
  return {k: v for part in nested for k, v in part.items()}


def _error_of(text: str) -> str:
  """The error message of a refused --cluster."""
  with pytest.raises(errors.ClusterError) as caught:
    cluster.parse(text)
  return str(caught.value)


@hypothesis.given(
  num_nodes=st.integers(1, 2**11),
  gpus_per_node=st.integers(1, 128),
  gpu=st.sampled_from(cluster.gpu_names()),
)
def test_a_cluster_name_gives_its_nodes_and_gpus(num_nodes, gpus_per_node, gpu):
  name = f"{num_nodes}x{gpus_per_node}x{gpu}"
  parsed = cluster.parse(name)
  assert parsed.name == name
  assert parsed.gpu.name == gpu
  assert parsed.num_devices == num_nodes * gpus_per_node
  assert cluster.parse(name.upper().replace("_", "-")) == parsed
  as_json = json.loads(json.dumps(parsed.to_dict()))
  assert cluster.from_dict(as_json, where="a plan") == parsed


def test_clusters_of_the_paper_differ_in_nvlink_and_network():
  a, b = cluster.parse("lagom_a"), cluster.parse("LAGOM-B")
  assert (a.num_nodes, a.gpus_per_node) == (b.num_nodes, b.gpus_per_node)
  assert (a.num_nodes, a.gpus_per_node) == (2, 8)
  assert a.gpu == b.gpu == cluster.parse("2x8xa40").gpu
  assert a.node.nvlink is not None and a.node.nvlink.topology == "pairs"
  assert a.node.nvlink.num_links * a.node.nvlink.link_gbps * 8 == 400
  assert a.node.num_nics * a.node.nic_gbps * 8 == 2 * 400
  assert b.node.nvlink is None
  assert b.node.num_nics * b.node.nic_gbps * 8 == 100


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
def test_cloud_machine_types_are_known_by_name(text, gpu, fabric, total_gbit):
  rented = cluster.parse(text)
  assert rented.name == text
  assert rented.num_nodes == int(text[0])
  assert rented.gpu.name == gpu
  assert rented.node.fabric == fabric
  assert rented.node.num_nics * rented.node.nic_gbps * 8 == total_gbit
  assert cluster.parse(text.upper().replace("-", "_")) == rented
  # Links inside the node follow from the GPU.
  assert rented.node.nvlink == cluster.parse(f"1x8x{gpu}").node.nvlink


@hypothesis.given(st.data())
def test_a_group_spans_the_nodes_of_its_devices(data):
  pod = cluster.parse("4x8xh100")
  nodes = data.draw(st.sets(st.integers(0, 3), min_size=1))
  devices = [
    8 * node + local
    for node in nodes
    for local in data.draw(st.sets(st.integers(0, 7), min_size=1))
  ]
  order = data.draw(st.permutations(devices))
  assert pod.num_nodes_of(order) == pod.num_nccl_nodes_of(order) == len(nodes)


def test_an_nvlink_domain_over_many_nodes_is_one_node_to_nccl():
  racks = cluster.parse("36x4xgb200")
  assert racks.num_nodes_of(range(144)) == 36
  assert racks.num_nccl_nodes_of(range(72)) == 1
  assert racks.num_nccl_nodes_of(range(144)) == 2
  assert cluster.parse("2x72xgb200").num_nccl_nodes_of(range(144)) == 2


@pytest.mark.parametrize("device", [-1, 16])
def test_a_device_outside_the_cluster_is_named(device):
  with pytest.raises(errors.ClusterError, match=rf"device {device} .*0 to 15"):
    cluster.parse("2x8xh100").num_nodes_of([0, device])


def test_a_node_with_half_the_gpus_has_half_the_adapters():
  assert cluster.parse("2x4xh100").node.num_nics == 4
  assert cluster.parse("2x1xa40").node.num_nics == 1


@pytest.mark.parametrize(
  "text", ["", "h100", "8xh900", "2xp4", "1x8x", "axbxh100"]
)
def test_an_unknown_cluster_is_refused_with_the_known_names(text):
  message = _error_of(text)
  assert message.startswith(f"unknown cluster {text!r}: write NODESxGPUSxGPU")
  assert "lagom_a, lagom_b" in message
  assert "h200" in message


@pytest.mark.parametrize(
  ("text", "message"),
  [
    ("1x8xh900", 'unknown GPU "h900"; known: a100_40, a100_80'),
    ("0x8xh100", "num_nodes is 0; it must be a whole number above 0"),
    ("1x-8xh100", "gpus_per_node is -8; it must be a whole number above 0"),
    (
      "16xh100",
      "one node of 16 GPUs, but nodes have 8 at most: write 2x8xh100",
    ),
    ("12xh100", "write 1x12xh100 if you mean one node"),
  ],
)
def test_a_cluster_of_an_unknown_gpu_or_size_is_refused(text, message):
  assert message in _error_of(text)


_WHOLE = cluster.parse("1x8xh100").to_dict()


def _write(path: pathlib.Path, raw: object) -> str:
  path.write_text(json.dumps(raw), encoding="utf-8")
  return str(path)


def _at(raw: dict[str, Any], path: str) -> tuple[dict[str, Any], str]:
  *parents, last = path.split(".")
  for key in parents:
    raw = raw[key]
  return raw, last


def test_a_cluster_file_overrides_single_values_of_a_known_gpu(tmp_path):
  raw = {
    "num_nodes": 4,
    "gpus_per_node": 4,
    "gpu": {"base": "H100", "hbm_gbps": 3000},
    "node": {"num_nics": 2, "nvlink": {"num_links": 6}},
  }
  mine = cluster.parse(_write(tmp_path / "mine.json", raw))
  theirs = cluster.parse("4x4xh100")
  assert mine.name == "mine"
  assert (mine.num_nodes, mine.gpus_per_node) == (4, 4)
  assert mine.gpu.hbm_gbps == 3000.0
  assert mine.gpu.num_sms == theirs.gpu.num_sms
  assert mine.node.num_nics == 2
  assert mine.node.nvlink is not None and theirs.node.nvlink is not None
  assert mine.node.nvlink.num_links == 6
  assert mine.node.nvlink.link_gbps == theirs.node.nvlink.link_gbps
  assert "memory_bandwidth: 3000000000000\n" in mine.target_config()


@pytest.mark.parametrize("path", _leaves(_WHOLE))
def test_a_missing_field_is_named_with_its_file(tmp_path, path):
  raw = copy.deepcopy(_WHOLE)
  parent, key = _at(raw, path)
  del parent[key]
  file = _write(tmp_path / "part.json", raw)
  # Fields with defaults: the file's name, 1, no calibration, and 1.
  if path in ("name", "num_nodes", "calibration", "processes_per_node"):
    assert cluster.parse(file).num_nodes == 1
  elif path.startswith("gpu.matmul_peak_tflops.") and key != "f32":
    assert key not in cluster.parse(file).gpu.matmul_peak_tflops
  else:
    message = _error_of(file)
    assert file in message
    assert path.removesuffix(".f32") in message


@pytest.mark.parametrize(
  "path", [p for p, v in _leaves(_WHOLE).items() if type(v) in (int, float)]
)
@pytest.mark.parametrize(
  "bad", [0, -1, "8", True, None, [8], float("nan"), 1e30]
)
def test_a_field_out_of_range_is_named_with_its_value(tmp_path, path, bad):
  raw = copy.deepcopy(_WHOLE)
  parent, key = _at(raw, path)
  parent[key] = bad
  message = _error_of(_write(tmp_path / "bad.json", raw))
  assert f"{path} is {json.dumps(bad)}; it must be" in message


@pytest.mark.parametrize(
  ("raw", "message"),
  [
    ([], "is []; it must be an object"),
    ({}, 'gpus_per_node is missing; give it, or start from a known GPU: "gpu"'),
    ({"gpu": 5}, "gpus_per_node is missing"),
    ({"gpu": "h101"}, 'unknown GPU "h101"; known: a100_40, a100_80, a40'),
    (
      {"gpu": "a10g"},
      "v100; describe others in a .json file (`lagom-xla schema",
    ),
    ({"gpu": {"base": ["h100"]}}, 'unknown GPU ["h100"]; known: a100_40'),
    ({"gpu": "h100", "node": None}, "node is null; it must be an object"),
    ({"gpu": "h100", "nodes": 2}, "nodes is unknown; known: name, num_nodes"),
    ({"gpu": {"base": "h100", "sms": 1}}, "gpu.sms is unknown; known: name"),
    ({"gpu": {"base": "h100", "device_name": ""}}, "must be text, not empty"),
    (
      {"gpu": {"base": "h100", "compute_capability": 9.0}},
      "gpu.compute_capability is 9.0; it must be a list of 2 whole numbers",
    ),
    (
      {"gpu": {"base": "h100", "matmul_peak_tflops": {"fp8": 2000}}},
      "matmul_peak_tflops has f64, f32, tf32, f16, bf16, f8, fp8; it must have"
      " f32, and only dtypes of",
    ),
    (
      {"gpu": {"base": "h100", "registers_per_block": 65537}},
      "registers_per_block is 65537; it must not exceed gpu.registers_per_sm",
    ),
    (
      {"gpu": "h100", "node": {"nvlink": {"topology": "torus"}}},
      'topology is "torus"; it must be one of nvswitch, cube_mesh, pairs',
    ),
    (
      {"gpu": "h100", "num_nodes": 2, "node": {"fabric": "token ring"}},
      'fabric is "token ring"; it must be one of infiniband, ',
    ),
  ],
)
def test_an_invalid_cluster_file_is_refused_in_one_line(tmp_path, raw, message):
  file = _write(tmp_path / "mine.json", raw)
  assert f"{file}: " in _error_of(file)
  assert message in _error_of(file)
  assert "\n" not in _error_of(file)


@pytest.mark.parametrize(
  ("content", "message"),
  [
    (b'{"gpu": "h100",\n "num_nodes": }', "line 2 is not JSON"),
    (b"", "line 1 is not JSON"),
    (b"\xff{}", "is not UTF-8 text"),
    (b'{"num_nodes": ' + b"9" * 5000 + b"}", "is not usable JSON"),
    (None, "cannot be read: No such file or directory"),
  ],
)
def test_a_cluster_file_that_is_not_json_is_named_with_the_line(
  tmp_path, content, message
):
  file = tmp_path / "broken.json"
  if content is not None:
    file.write_bytes(content)
  assert f"{file}: {message}" in _error_of(str(file))


@pytest.mark.parametrize(
  ("raw", "figures"),
  [
    ({"node": {"nic_gbps": 400}}, "node.nic_gbps is 400, but usually 50 "),
    ({"gpu": {"hbm_gbps": 3.35}}, "gpu.hbm_gbps is 3.35, but usually 3,35"),
    (
      {"node": {"nvlink": {"link_gbps": 200}}},
      "node.nvlink.link_gbps is 200, but usually 25 ",
    ),
    ({"gpu": {"clock_ghz": 1980}}, "gpu.clock_ghz is 1,980, but usually 1.98 "),
    ({"gpu": {"hbm_bytes": 80}}, "gpu.hbm_bytes is 80, but usually 8"),
    (
      {"gpu": {"matmul_peak_tflops": {"bf16": 0.989}}},
      "gpu.matmul_peak_tflops.bf16 is 0.989, but usually 989",
    ),
  ],
)
def test_a_value_that_seems_to_be_in_another_unit_raises_a_warning(
  tmp_path, raw, figures
):
  raw = {**raw, "gpu": {"base": "h100", **raw.get("gpu", {})}}
  path = _write(tmp_path / "mine.json", raw)
  with pytest.warns(RuntimeWarning, match=f"mine.json: {figures}"):
    cluster.parse(path)


_SPECS, _MACHINES = (
  sorted(pathlib.Path(cluster.__file__).with_name(name).glob("*.json"))
  for name in ("specs", "machines")
)


@pytest.mark.parametrize(
  ("name", "other"),
  [
    ("1x8xa100", "1x8xa100_80"),
    ("1x8xH100-NVL", "1x8xh100_nvl"),
    ("8xh100", "1x8xh100"),
    ("4xA100", "1x4xa100"),
  ],
)
def test_cluster_names_have_aliases(name, other):
  assert cluster.parse(name) == cluster.parse(other)


@pytest.mark.parametrize("path", _SPECS, ids=lambda path: path.stem)
def test_every_value_of_a_spec_has_a_source(path):
  raw = json.loads(path.read_text(encoding="utf-8"))
  sources = raw.pop("sources")
  figures = _leaves(raw).keys() - {"gpu", "gpu.name"}
  assert sources.keys() == figures
  assert all(len(source) > 3 for source in sources.values())


@pytest.mark.parametrize("path", _MACHINES, ids=lambda path: path.stem)
def test_every_machine_type_has_a_source(path):
  raw = json.loads(path.read_text(encoding="utf-8"))
  assert len(raw["source"]) > 20
  rented = cluster.parse(f"3x{raw['name']}")
  assert rented.num_devices == 3 * raw["gpus_per_node"]


@pytest.mark.parametrize("name", cluster.gpu_names())
def test_peak_rates_of_each_gpu_are_consistent(name):
  gpu = cluster.parse(f"1x8x{name}").gpu
  peaks = gpu.matmul_peak_tflops
  # Clocks and lanes are measured or from XLA, peaks are from data sheets.
  assert gpu.vector_f32_tflops == pytest.approx(peaks["f32"], rel=0.02)
  assert peaks.get("bf16", peaks["f16"]) == peaks["f16"]
  if "tf32" in peaks:
    assert peaks["bf16"] == pytest.approx(2 * peaks["tf32"], rel=0.03)
  if "f8" in peaks:
    # NVIDIA gives an L40S 733 where twice 362.05 would be 724.
    assert peaks["f8"] == pytest.approx(2 * peaks["bf16"], rel=0.013)
  if "s8" in peaks:
    assert "f8" not in peaks
    assert peaks["s8"] == pytest.approx(2 * peaks["bf16"], rel=0.013)


def test_only_gpus_that_cuda_13_dropped_have_a_compile_obstacle():
  gpus = {
    name: cluster.parse(f"1x8x{name}").gpu for name in cluster.gpu_names()
  }
  obstacles = {name: gpu.compile_obstacle for name, gpu in gpus.items()}
  assert "capability 7.0" in (obstacles.pop("v100") or "")
  assert set(obstacles.values()) == {None}


@pytest.mark.parametrize("name", cluster.gpu_names())
def test_effective_host_bandwidth_is_60_to_100_percent_of_the_link(name):
  link = cluster.parse(f"1x8x{name}").node.link_to_host
  assert 0.6 * link.gbps < link.effective_gbps < link.gbps


def test_the_host_link_defaults_to_pcie():
  raw = cluster.parse("1x8xh100").to_dict()
  raw["node"]["host_link"] = None
  node = cluster.from_dict(raw, where="a test").node
  assert node.link_to_host.gbps == node.pcie_gbps
  assert node.link_to_host.effective_gbps == node.pcie_effective_gbps


def _devices(
  count: int,
  *,
  kind: str = "NVIDIA H100 80GB HBM3",
  per_process: int,
  per_slice: int,
) -> Any:
  return [
    types.SimpleNamespace(
      device_kind=kind,
      process_index=n // per_process,
      slice_index=n // per_slice,
    )
    for n in range(count)
  ]


@pytest.mark.parametrize("name", cluster.gpu_names())
def test_devices_of_a_known_kind_make_up_a_cluster_of_that_gpu(name):
  expected = cluster.parse(f"2x4x{name}")
  kind = expected.gpu.device_name
  devices = _devices(8, kind=kind, per_process=4, per_slice=4)
  assert cluster.of_devices(devices) == expected


@pytest.mark.parametrize(
  ("count", "per_process", "per_slice", "name"),
  [
    (16, 8, 8, "2x8xh100"),
    (16, 8, 16, "2x8xh100"),
    (16, 1, 8, "2x8xh100"),
    (16, 1, 1, "16x1xh100"),
    (16, 16, 16, "1x16xh100"),
    (1, 1, 1, "1x1xh100"),
  ],
)
def test_nodes_are_found_from_processes_or_slices_of_devices(
  count, per_process, per_slice, name
):
  devices = _devices(count, per_process=per_process, per_slice=per_slice)
  found = cluster.of_devices(devices)
  assert dataclasses.replace(found, processes_per_node=1) == cluster.parse(name)
  assert found.processes_per_node == found.gpus_per_node // per_process


_EIGHT = _devices(8, per_process=8, per_slice=8)


@pytest.mark.parametrize(
  ("devices", "message"),
  [
    (_devices(8, kind="TPU v5", per_process=8, per_slice=8), "are 'TPU v5';"),
    (
      _EIGHT + _devices(8, kind="NVIDIA A40", per_process=8, per_slice=8),
      "are 'NVIDIA A40' and 'NVIDIA H100 80GB HBM3';",
    ),
    (_EIGHT + _devices(2, per_process=1, per_slice=8), "nodes have 1 or 9"),
    ([], "the devices are none;"),
  ],
  ids=["unknown", "mixed", "uneven", "none"],
)
def test_devices_that_make_up_no_known_cluster_are_refused(devices, message):
  with pytest.raises(errors.ClusterError, match=message):
    cluster.of_devices(devices)
