# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""The report of `lagom-xla inspect`, as docs/formats.md describes it."""

from __future__ import annotations

import json
import lzma
import pathlib
from typing import Any

import jax
import pytest

from commands import CLUSTER
from commands import MODEL
from commands import ROOT
from commands import TARGET
from commands import printed
from commands import run
from commands import write_steps
from lagom_xla import cluster as cluster_lib
from lagom_xla.compile import compiler
from lagom_xla.compile import load


@pytest.fixture(scope="module")
def inspected(h100s) -> dict[str, Any]:
  return printed("inspect", TARGET, CLUSTER, MODEL)


def test_all_of_a_step_is_printed(inspected):
  assert inspected["collectives"] and inspected["overlaps"]
  assert inspected["totals"].keys() == {
    collective["kind"] for collective in inspected["collectives"]
  }
  assert inspected["profile"] is None


def test_each_collective_names_a_line_of_a_file_that_there_is(inspected):
  for collective in inspected["collectives"]:
    file = pathlib.Path(collective["source_file"])
    line = file.read_text().splitlines()[collective["source_line"] - 1]
    assert line.strip()
    at = f"{file.name}:{collective['source_line']}"
    assert collective["source"].startswith(at)


def test_totals_are_sums_over_collectives_and_executions(inspected):
  sums: dict[str, dict[str, int]] = {}
  for c in inspected["collectives"]:
    row = sums.setdefault(
      c["kind"],
      dict.fromkeys(
        ("num_instructions", "num_executions", "operand_bytes", "result_bytes"),
        0,
      ),
    )
    row["num_instructions"] += 1
    row["num_executions"] += c["executions"]
    row["operand_bytes"] += c["executions"] * c["operand_bytes"]
    row["result_bytes"] += c["executions"] * c["result_bytes"]
  assert inspected["totals"] == sums
  assert inspected["module"]["num_partitions"] == 8


def test_overlaps_name_each_async_collective_once(inspected):
  by_name = {c["name"]: c for c in inspected["collectives"]}
  assert len(by_name) == len(inspected["collectives"])
  listed = [name for o in inspected["overlaps"] for name in o["collectives"]]
  assert sorted(listed) == sorted(
    name for name, c in by_name.items() if c["form"] == "async"
  )
  for overlap in inspected["overlaps"]:
    for name in overlap["collectives"]:
      c = by_name[name]
      assert c["executions"] == overlap["executions"]
      assert c["group_size"] * c["num_groups"] == 8
      assert c["spans_nodes"] is False
      num_kernels = len(overlap["kernels"])
      assert c["overlap"]["num_kernels"] <= num_kernels
      assert c["overlap"]["num_gemms"] <= c["overlap"]["num_kernels"]
  for c in by_name.values():
    if c["form"] == "sync":
      assert c["overlap"] == {"num_kernels": 0, "num_gemms": 0}


def test_the_example_in_formats_md_is_what_inspect_prints(inspected):
  _, _, rest = (ROOT / "docs/formats.md").read_text().partition("```json\n")
  example = json.loads(rest.partition("```")[0])
  assert example.keys() == inspected.keys()
  for key in ("totals", "gemm_flops", "loops_of_unknown_length"):
    assert example[key] == inspected[key]
  for key in ("collectives", "overlaps"):
    assert example[key][0].keys() == inspected[key][0].keys()


def test_a_group_over_two_nodes_says_so(h100s, tmp_path):
  step = write_steps(tmp_path)
  collectives = printed("inspect", step, "--cluster=2x4xh100")["collectives"]
  assert collectives and all(c["spans_nodes"] for c in collectives)


_SHIFTED = """\
HloModule shifted, is_scheduled=true, num_partitions=16

ENTRY main {
  p = f32[65536]{0} parameter(0)
  ROOT moved = f32[65536]{0} collective-permute(p), channel_id=1,
    source_target_pairs={{6,7},{7,8}}
}
"""


def test_a_chain_of_permutes_may_part_unevenly_over_nodes(tmp_path):
  file = tmp_path / "shifted.hlo"
  file.write_text(_SHIFTED)
  outcome = run("inspect", str(file), "--cluster=2x8xh100")
  assert outcome.status == 0
  assert "collective-permute of 262.1 kB over 3 GPUs" in outcome.out


def test_an_optimized_module_in_a_file_is_only_read(
  h100s, tmp_path, monkeypatch
):
  step = write_steps(tmp_path)
  compiled_for_gpus = load.load(step, cluster_lib.parse("1x8xh100"))
  compiled = compiled_for_gpus.compile().compiled
  assert compiled is not None
  module = str(tmp_path / "step.hlo.txt.xz")
  pathlib.Path(module).write_bytes(
    lzma.compress((compiled.as_text() or "").encode())
  )
  of_step = printed("inspect", step, CLUSTER)

  def compiles(*args: object, **kwargs: object) -> None:
    raise AssertionError("a compile was started")

  monkeypatch.setattr(compiler, "schedule", compiles)
  monkeypatch.setattr(jax.stages.Lowered, "compile", compiles)
  outcome = run("inspect", module, CLUSTER, "--format=json")
  assert outcome.err == ""
  assert len(of_step["overlaps"]) > 0
  assert _essence(json.loads(outcome.out)) == _essence(of_step)
  # What is optimized already has no XLA options left to try.
  plan = f"--out={tmp_path / 'plan'}"
  report = printed("tune", module, CLUSTER, plan)
  assert len(report["candidates"]) == 1
  assert report["peak_bytes"] == {"before": None, "after": None}
  assert report["plan"]["xla"]["options"] == {}


def _essence(report: dict[str, Any]) -> dict[str, Any]:
  """What the steps behind XLA's scheduler leave as it is.

  They may add a copy, and from JAX 0.11 on they print start and done of a sync
  collective as one instruction.
  """
  module = {
    k: v for k, v in report["module"].items() if k != "num_instructions"
  }
  collectives = [
    {k: v for k, v in c.items() if k != "name" or c["form"] == "async"}
    for c in report["collectives"]
  ]
  return {**report, "module": module, "collectives": collectives}
