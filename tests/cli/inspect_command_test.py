# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""`lagom-xla inspect` and `profile`, and profiles as their and tune's input."""

from __future__ import annotations

import lzma
import pathlib
from typing import Any

import jax
import pytest

from commands import CLUSTER
from commands import HLO
from commands import MODEL
from commands import TARGET
from commands import printed
from commands import run
from commands import write_steps
from lagom_xla import cluster as cluster_lib
from lagom_xla import plan as plan_lib
from lagom_xla.cli import options as options_lib
from lagom_xla.compile import compiler
from lagom_xla.compile import load
from lagom_xla.flags import nccl_channels
from lagom_xla.profiling import profile as profile_lib
from lagom_xla.tuner import tuner
from simulated_run import H100S
from simulated_run import OWN_US
from simulated_run import process_of
from simulated_run import profile_of
import xspace_text


@pytest.fixture(scope="module")
def inspected(h100s) -> dict[str, Any]:
  return printed("inspect", TARGET, CLUSTER, MODEL)


def test_inspect_prints_collectives_overlaps_and_totals(inspected):
  assert inspected["collectives"] and inspected["overlaps"]
  assert inspected["totals"].keys() == {
    collective["kind"] for collective in inspected["collectives"]
  }
  assert inspected["profile"] is None


def test_each_collective_names_an_existing_source_line(inspected):
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


def test_groups_over_two_nodes_are_reported_to_span_nodes(h100s, tmp_path):
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


def test_a_permute_chain_may_split_unevenly_over_nodes(tmp_path):
  file = tmp_path / "shifted.hlo"
  file.write_text(_SHIFTED)
  outcome = run("inspect", str(file), "--cluster=2x8xh100")
  assert outcome.status == 0
  assert "collective-permute of 262.1 kB over 3 GPUs" in outcome.out


def test_an_optimized_module_in_a_file_is_not_compiled_again(
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
  only_read = printed("inspect", module, CLUSTER)
  # The steps behind XLA's scheduler may add a copy and rename synchronous ones.
  for kept in ("overlaps", "totals", "gemm_flops"):
    assert only_read[kept] == of_step[kept] != []
  # An optimized module has no XLA options left to try.
  plan = f"--out={tmp_path / 'plan'}"
  report = printed("tune", module, CLUSTER, plan)
  assert len(report["candidates"]) == 1
  assert report["peak_bytes"] == {"before": None, "after": None}
  assert report["plan"]["xla"]["options"] == {}


@pytest.fixture(scope="module")
def profile(fsdp_scan) -> profile_lib.Profile:
  return profile_of(fsdp_scan)


@pytest.fixture(scope="module")
def folder(tmp_path_factory, fsdp_scan) -> pathlib.Path:
  """A folder with the module and, in `trace`, its profile."""
  found = tmp_path_factory.mktemp("profiled")
  (found / "step.hlo.pb").write_bytes(fsdp_scan.proto.SerializeToString())
  xspace_text.write(found / "trace", process_of(fsdp_scan))
  return found


def test_inspect_with_a_profile_shows_measured_over_predicted(folder):
  arguments = (
    "inspect",
    str(folder / "step.hlo.pb"),
    CLUSTER,
    f"--profile={folder / 'trace'}",
  )
  text = run(*arguments, "--verbose").out
  assert "Measured over predicted" in text
  assert "have measured costs, " in text
  assert "9 times in 10" in text
  found = printed(*arguments)
  assert {"gemm", "all-gather"} <= {
    r["kind"] for r in found["profile"]["ratios"]
  }


def test_a_profile_is_priced_under_the_channel_cap_of_xla_flags(
  folder, monkeypatch
):
  monkeypatch.setenv("XLA_FLAGS", f"--{nccl_channels.OPTION}=2")
  target = load.load(str(folder / "step.hlo.pb"), H100S)
  with options_lib.pricing(str(folder / "trace"), target):
    step = tuner.inspect(target)
  for key, setting in step.default.items():
    assert setting.num_channels <= 2
    # The measured time, less the slowdown by kernels.
    assert 0.5 * OWN_US < step.predict(key, setting).time_us <= OWN_US + 1e-3


@pytest.mark.parametrize("command", ["inspect", "tune"])
def test_a_profile_of_another_step_is_refused(command, folder, tmp_path):
  module = tmp_path / "another.hlo"
  module.write_text(HLO)
  options = [f"--out={tmp_path / 'plan'}"] if command == "tune" else []
  said = run(
    *(command, str(module), CLUSTER, *options),
    f"--profile={folder / 'trace'}",
  )
  assert said.status == 2
  assert "is not of step: it has none of its kernels" in said.err


def test_profile_shows_which_device_the_others_wait_for(folder):
  text = run("profile", str(folder / "trace"), "--verbose").out
  assert "Who waited for whom (measured" in text
  found = printed("profile", str(folder / "trace"))
  latest = max(found["devices"], key=lambda row: row["late_us"])
  assert latest["name"] == "host GPU:7"
  assert found["collectives"] and found["slowdowns"] and found["processes"]


def test_a_plan_records_the_profile_that_its_costs_come_from(
  folder, tmp_path, profile
):
  arguments = (
    "tune",
    str(folder / "step.hlo.pb"),
    CLUSTER,
    f"--out={tmp_path / 'plan'}",
  )
  text = run(*arguments, f"--profile={folder / 'trace'}").out
  assert "Costs come from the profile host" in text
  traced = plan_lib.load(tmp_path / "plan").profile
  assert traced is not None
  assert traced.began_at == "2026-02-02T02:40:00+00:00"
  assert traced.num_steps == len(profile.whole_steps)
  assert traced.num_devices == 8
  assert all(0 <= share <= 1 for share in traced.measured_shares.values())
  assert traced.measured_shares["all-gather"] == 1.0
  run(*arguments)
  assert plan_lib.load(tmp_path / "plan").profile is None
