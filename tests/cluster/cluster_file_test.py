# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""A cluster file's figures replace a GPU's, or are refused with their name."""

from __future__ import annotations

import copy
import json
import pathlib
from typing import Any

import pytest

import cluster_figures
from lagom_xla import cluster

_WHOLE = cluster.parse("1x8xh100").to_dict()


def _write(path: pathlib.Path, raw: object) -> str:
  path.write_text(json.dumps(raw), encoding="utf-8")
  return str(path)


def _at(raw: dict[str, Any], path: str) -> tuple[dict[str, Any], str]:
  *parents, last = path.split(".")
  for key in parents:
    raw = raw[key]
  return raw, last


def test_a_file_replaces_single_figures_of_a_known_gpu(
  tmp_path: pathlib.Path,
) -> None:
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


@pytest.mark.parametrize("path", cluster_figures.leaves(_WHOLE))
def test_a_missing_field_is_named_with_its_file(
  tmp_path: pathlib.Path, path: str
) -> None:
  raw = copy.deepcopy(_WHOLE)
  parent, key = _at(raw, path)
  del parent[key]
  file = _write(tmp_path / "part.json", raw)
  # Their defaults: the file's name, 1, and nothing measured.
  if path in ("name", "num_nodes", "calibration"):
    assert cluster.parse(file).num_nodes == 1
  elif path.startswith("gpu.matmul_peak_tflops.") and key != "f32":
    assert key not in cluster.parse(file).gpu.matmul_peak_tflops
  else:
    message = cluster_figures.error_of(file)
    assert file in message
    assert path.removesuffix(".f32") in message


@pytest.mark.parametrize(
  "path",
  [
    p
    for p, v in cluster_figures.leaves(_WHOLE).items()
    if type(v) in (int, float)
  ],
)
@pytest.mark.parametrize(
  "bad", [0, -1, "8", True, None, [8], float("nan"), 1e30]
)
def test_a_figure_out_of_range_is_named_with_its_value(
  tmp_path: pathlib.Path, path: str, bad: object
) -> None:
  raw = copy.deepcopy(_WHOLE)
  parent, key = _at(raw, path)
  parent[key] = bad
  message = cluster_figures.error_of(_write(tmp_path / "bad.json", raw))
  assert f"{path} is {json.dumps(bad)}; it must be" in message


@pytest.mark.parametrize(
  ("raw", "message"),
  [
    ([], "is []; it must be an object"),
    ({}, 'gpus_per_node is missing; give it, or start from a known GPU: "gpu"'),
    ({"gpu": 5}, "gpus_per_node is missing"),
    ({"gpu": "h101"}, 'unknown GPU "h101"; known: a100_40, a100_80, a40'),
    ({"gpu": "a10g"}, "v100; a .json file describes others (`lagom-xla schema"),
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
      "matmul_peak_tflops has f64, f32, tf32, f16, bf16, f8, fp8; it must have "
      "f32, and no other than",
    ),
    (
      {"gpu": {"base": "h100", "registers_per_block": 65537}},
      "registers_per_block is 65537; it must not exceed gpu.registers_per_sm",
    ),
    (
      {"gpu": "h100", "node": {"nvlink": {"topology": "torus"}}},
      'topology is "torus"; it must be one of nvswitch, cube_mesh, pairs',
    ),
  ],
)
def test_a_file_that_breaks_a_rule_is_refused_in_one_line(
  tmp_path: pathlib.Path, raw: object, message: str
) -> None:
  file = _write(tmp_path / "mine.json", raw)
  assert f"{file}: " in cluster_figures.error_of(file)
  assert message in cluster_figures.error_of(file)
  assert "\n" not in cluster_figures.error_of(file)


@pytest.mark.parametrize(
  ("content", "message"),
  [
    (b'{"gpu": "h100",\n "num_nodes": }', "line 2 is not JSON"),
    (b"", "line 1 is not JSON"),
    (b"\xff{}", "is not UTF-8 text"),
    (b'{"num_nodes": ' + b"9" * 5000 + b"}", "is not usable as JSON"),
  ],
)
def test_a_file_that_is_not_json_is_named_with_its_line(
  tmp_path: pathlib.Path, content: bytes, message: str
) -> None:
  file = tmp_path / "broken.json"
  file.write_bytes(content)
  assert f"{file}: {message}" in cluster_figures.error_of(str(file))


def test_a_file_that_does_not_exist_is_named() -> None:
  assert cluster_figures.error_of("no/such.json") == (
    "no/such.json: cannot be read: No such file or directory"
  )


@pytest.mark.parametrize(
  ("raw", "figures"),
  [
    ({"node": {"nic_gbps": 400}}, "node.nic_gbps is 400, where .* is 50"),
    ({"gpu": {"hbm_gbps": 3.35}}, "gpu.hbm_gbps is 3.35, where .* is 3,35"),
    (
      {"node": {"nvlink": {"link_gbps": 200}}},
      "node.nvlink.link_gbps is 200, where .* is 25",
    ),
  ],
)
def test_a_rate_in_another_unit_is_asked_about(
  tmp_path: pathlib.Path, raw: dict[str, Any], figures: str
) -> None:
  raw = {**raw, "gpu": {"base": "h100", **raw.get("gpu", {})}}
  path = _write(tmp_path / "mine.json", raw)
  with pytest.warns(RuntimeWarning, match=f"mine.json: {figures}"):
    cluster.parse(path)


@pytest.mark.parametrize("nic_gbps", [0.125, 1.25, 12.5, 100])
def test_networks_that_are_sold_are_not_asked_about(
  tmp_path: pathlib.Path, nic_gbps: float
) -> None:
  raw = {"gpu": {"base": "h100"}, "node": {"nic_gbps": nic_gbps}}
  found = cluster.parse(_write(tmp_path / "mine.json", raw))
  assert found.node.nic_gbps == nic_gbps  # Warnings are errors.
