# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Commands that read a profile: inspect and tune by it, and profile itself."""

from __future__ import annotations

import pathlib

import pytest

import commands
from lagom_xla import plan as plan_lib
from lagom_xla.cli import options as options_lib
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
def profile(fsdp_scan) -> profile_lib.Profile:
  return profile_of(fsdp_scan)


@pytest.fixture(scope="module")
def folder(tmp_path_factory, fsdp_scan) -> pathlib.Path:
  """A folder with the module and, in `trace`, its profile."""
  found = tmp_path_factory.mktemp("profiled")
  (found / "step.hlo.pb").write_bytes(fsdp_scan.proto.SerializeToString())
  xspace_text.write(found / "trace", process_of(fsdp_scan))
  return found


def test_inspect_says_how_far_off_predictions_were(folder):
  arguments = (
    "inspect",
    str(folder / "step.hlo.pb"),
    commands.CLUSTER,
    f"--profile={folder / 'trace'}",
  )
  text = commands.run(*arguments, "--verbose").out
  assert "Measured over predicted" in text
  assert "what the profile measured alone" in text
  assert "9 times in 10" in text
  found = commands.printed(*arguments)
  assert {"gemm", "all-gather"} <= {
    r["kind"] for r in found["profile"]["ratios"]
  }


def test_a_cap_in_xla_flags_is_the_one_under_which_the_profile_ran(
  folder, monkeypatch
):
  monkeypatch.setenv("XLA_FLAGS", f"--{nccl_channels.OPTION}=2")
  target = load.load(str(folder / "step.hlo.pb"), H100S)
  with options_lib.pricing(str(folder / "trace"), target):
    step = tuner.inspect(target)
  for key, setting in step.default.items():
    assert setting.num_channels <= 2
    # What it took, less what kernels took from it.
    assert 0.5 * OWN_US < step.predict(key, setting).time_us <= OWN_US + 1e-3


@pytest.mark.parametrize("command", ["inspect", "tune"])
def test_a_profile_of_another_step_prices_nothing(command, folder, tmp_path):
  module = tmp_path / "another.hlo"
  module.write_text(commands.HLO)
  options = [f"--out={tmp_path / 'plan'}"] if command == "tune" else []
  said = commands.run(
    *(command, str(module), commands.CLUSTER, *options),
    f"--profile={folder / 'trace'}",
  )
  assert said.status == 2
  assert "is of another step than step: it has none of its kernels" in said.err


def test_profile_shows_who_waits_for_whom(folder):
  text = commands.run("profile", str(folder / "trace"), "--verbose").out
  assert "Who waited for whom (measured" in text
  found = commands.printed("profile", str(folder / "trace"))
  latest = max(found["devices"], key=lambda row: row["late_us"])
  assert latest["name"] == "host GPU:7"
  assert found["collectives"] and found["slowdowns"] and found["processes"]


def test_a_plan_says_which_run_it_rests_on(folder, tmp_path, profile):
  arguments = (
    "tune",
    str(folder / "step.hlo.pb"),
    commands.CLUSTER,
    f"--out={tmp_path / 'plan'}",
  )
  text = commands.run(*arguments, f"--profile={folder / 'trace'}").out
  assert "Costs rest on the profile host" in text
  run = plan_lib.load(tmp_path / "plan").profile
  assert run is not None
  assert run.began_at == "2026-02-02T02:40:00+00:00"
  assert run.num_steps == len(profile.whole_steps)
  assert run.num_devices == 8
  assert all(0 <= share <= 1 for share in run.measured_shares.values())
  assert run.measured_shares["all-gather"] == 1.0
  commands.run(*arguments)
  assert plan_lib.load(tmp_path / "plan").profile is None
