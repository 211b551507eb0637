# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""The published JSON schemas, and the docs generated from them."""

from __future__ import annotations

import json
import pathlib
import re
import subprocess
import sys

import jsonschema
import pytest

from commands import run
from lagom_xla import cluster as cluster_lib
from lagom_xla import errors

_SPECS = sorted(
  pathlib.Path(cluster_lib.__file__).with_name("specs").glob("*.json")
)


_CLUSTER = jsonschema.Draft202012Validator(cluster_lib.schema())


_OUTERMOST = {
  "plan": ["Plan"],
  "cluster": ["Cluster"],
  "inspect": ["Inspection"],
  "tune": ["Tuning"],
  "verify": ["Verification"],
  "profile": ["Profile"],
  "report": ["Report"],
  "explain": ["Explanation"],
  "whatif": ["Comparison"],
  "calibrate": ["Calibrated"],
  "clusters": ["Known"],
  "doctor": ["Checkup"],
  "flags": ["Planned", "Checked", "Merged"],
  "knobs": ["KnownKnob"],
  "trials": ["TrialLine"],
}


@pytest.mark.parametrize("file", _OUTERMOST)
def test_each_json_schema_is_valid_and_describes_every_field(file):
  schema = json.loads(run("schema", file).out)
  jsonschema.Draft202012Validator.check_schema(schema)
  if "title" in schema:
    outermost = [schema["title"]]
  else:  # A choice, or a list.
    parts = schema["anyOf"] if "anyOf" in schema else [schema["items"]]
    outermost = [part["$ref"].removeprefix("#/$defs/") for part in parts]
  assert outermost == _OUTERMOST[file]
  own = [schema] if "title" in schema else []
  for part in (*own, *schema.get("$defs", {}).values()):
    for field, rule in part["properties"].items():
      assert rule.get("description"), (part["title"], field)


@pytest.mark.parametrize("file", _OUTERMOST)
def test_markdown_tables_are_unique_and_begin_with_the_outermost(file):
  tables = run("schema", file, "--format=markdown").out
  headlines = re.findall(r"^`(\w+)`: ", tables, re.M)
  outermost = _OUTERMOST[file]
  assert headlines[: len(outermost)] == outermost
  assert len(set(headlines)) == len(headlines)


@pytest.mark.parametrize("path", _SPECS, ids=lambda path: path.stem)
def test_every_shipped_cluster_file_follows_the_schema(path):
  _CLUSTER.validate(json.loads(path.read_text(encoding="utf-8")))


def test_complete_and_derived_clusters_follow_the_schema():
  _CLUSTER.validate(cluster_lib.parse("2x4xgb200").to_dict())
  _CLUSTER.validate({"num_nodes": 4, "gpu": {"base": "h100", "hbm_gbps": 3000}})


@pytest.mark.parametrize(
  "raw",
  [
    {"gpu": "h100", "nodes": 2},
    {"gpu": {"base": "h100", "num_sms": 0}},
    {"gpu": {"base": "h100", "matmul_peak_tflops": {"fp8": 2000}}},
    {"gpu": "h100", "node": {"nvlink": {"topology": "torus"}}},
  ],
)
def test_clusters_that_the_schema_refuses_are_not_read(raw):
  assert not _CLUSTER.is_valid(raw)
  with pytest.raises(errors.ClusterError):
    cluster_lib.from_dict(raw, where="a cluster")


def test_pydantic_is_not_imported_before_a_command_runs():
  code = "import sys, lagom_xla.cli.main; print('pydantic' in sys.modules)"
  child = subprocess.run(
    [sys.executable, "-c", code], capture_output=True, text=True, check=True
  )
  assert child.stdout == "False\n"
