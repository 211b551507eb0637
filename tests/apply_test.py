# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""A plan's folder: whole or not at all, and shell files that bash sources."""

from __future__ import annotations

import os
import pathlib
import subprocess

import pytest

from lagom_xla import cluster as cluster_lib
from lagom_xla import errors
from lagom_xla import plan as plan_lib
from lagom_xla.apply import files
from lagom_xla.apply import nccl_env
from lagom_xla.apply.nccl import rules as rules_lib
from lagom_xla.apply.nccl import table
from lagom_xla.costs import collective as collective_lib
from lagom_xla.costs import nccl
from lagom_xla.flags import options as xla_options
from lagom_xla.flags import syntax as flag_syntax
from lagom_xla.search.nccl import channel_cap
from lagom_xla.search.xla import thresholds

H100 = cluster_lib.parse("1x8xh100")
_MIB = 2**20
_GATHER = thresholds.OPTIONS["all-gather"]
_SETTING = nccl.Setting(
  algorithm="ring", protocol="simple", num_channels=4, chunk_bytes=131072
)
_KEY = collective_lib.TuningKey("all-gather", 8, 1, 16 * _MIB)
_CALL = collective_lib.Call(num_bytes=16 * _MIB, num_arrays=1)


def _plan(
  *,
  name: str = "jit_step",
  options: dict[str, bool | int | str] | None = None,
  env: dict[str, str] | None = None,
) -> plan_lib.Plan:
  return plan_lib.Plan(
    module_name=name,
    module_fingerprint="0123456789abcdef",
    cluster=H100,
    xla_options={_GATHER: 128 * _MIB} if options is None else options,
    nccl_env={"NCCL_MAX_CTAS": "8"} if env is None else env,
    nccl_settings=(
      plan_lib.NcclSetting(
        key=_KEY, calls=(_CALL,), setting=_SETTING, default=_SETTING
      ),
    ),
    prediction=plan_lib.Prediction(
      default_us=4.0, xla_us=3.0, nccl_env_us=2.0, nccl_settings_us=1.0
    ),
  )


def _sourced(path: pathlib.Path, variable: str, **env: str) -> str:
  """What a variable is after bash sourced a file, strictly."""
  return subprocess.run(
    [
      "bash",
      "-euc",
      f'source "$1"; printf %s "${{{variable}-unset}}"',
      "-",
      str(path),
    ],
    env={"PATH": os.environ["PATH"], **env},
    check=True,
    capture_output=True,
    text=True,
  ).stdout


# The folder.


def test_a_folder_holds_the_plan_and_what_a_launcher_sources(tmp_path):
  folder = tmp_path / "runs" / "plan"
  written = files.write(_plan(), folder)
  assert sorted(written) == sorted(folder.iterdir())
  assert sorted(path.name for path in written) == [
    "env.sh",
    "kubernetes.yaml",
    "nccl_env.sh",
    "nccl_table.bin",
    "plan.json",
    "slurm.sh",
    "xla_flags.sh",
  ]
  assert plan_lib.load(folder) == _plan()
  assert list(folder.parent.iterdir()) == [folder]


def test_a_folder_replaces_an_older_plan_wholly(tmp_path):
  folder = tmp_path / "plan"
  files.write(_plan(name="old"), folder)
  files.write(_plan(name="new"), folder)
  assert plan_lib.load(folder).module_name == "new"
  assert list(tmp_path.iterdir()) == [folder]


def test_an_empty_folder_may_become_a_plan(tmp_path):
  files.write(_plan(), tmp_path)
  assert plan_lib.load(tmp_path) == _plan()


@pytest.mark.parametrize("names", [["train.py"], ["plan.json", "train.py"]])
def test_a_folder_with_anything_else_in_it_is_refused(tmp_path, names):
  for name in names:
    (tmp_path / name).write_text("precious")
  with pytest.raises(errors.PlanError, match="something else"):
    files.check(tmp_path)
  with pytest.raises(errors.PlanError, match=str(tmp_path)):
    files.write(_plan(), tmp_path)
  assert sorted(path.name for path in tmp_path.iterdir()) == names
  assert (tmp_path / names[0]).read_text() == "precious"


def test_a_file_in_the_folders_place_is_refused(tmp_path):
  path = tmp_path / "plan"
  path.write_text("precious")
  with pytest.raises(errors.PlanError, match="something else"):
    files.write(_plan(), path)
  assert path.read_text() == "precious"


def test_a_folder_that_cannot_be_made_is_an_error(tmp_path):
  (tmp_path / "file").write_text("")
  folder = tmp_path / "file" / "plan"
  with pytest.raises(errors.PlanError, match=f"Cannot write {folder}: .+"):
    files.write(_plan(), folder)


def test_a_failure_leaves_the_older_plan_as_it_was(tmp_path, monkeypatch):
  folder = tmp_path / "plan"
  files.write(_plan(name="old"), folder)
  rename = pathlib.Path.rename

  def fails(self: pathlib.Path, target: pathlib.Path) -> pathlib.Path:
    if self.name == "fresh":
      raise OSError(28, "No space left on device")
    return rename(self, target)

  monkeypatch.setattr(pathlib.Path, "rename", fails)
  with pytest.raises(errors.PlanError, match="No space left on device"):
    files.write(_plan(name="new"), folder)
  assert plan_lib.load(folder).module_name == "old"
  assert list(tmp_path.iterdir()) == [folder]


def test_a_link_to_a_plan_stays_one(tmp_path):
  files.write(_plan(name="old"), tmp_path / "plan")
  (tmp_path / "latest").symlink_to(tmp_path / "plan")
  files.write(_plan(name="new"), tmp_path / "latest")
  assert (tmp_path / "latest").is_symlink()
  assert plan_lib.load(tmp_path / "plan").module_name == "new"


def test_others_may_read_a_plan(tmp_path):
  files.write(_plan(), tmp_path / "plan")
  (tmp_path / "usual").mkdir()
  assert (tmp_path / "plan").stat().st_mode == (
    (tmp_path / "usual").stat().st_mode
  )


def test_settings_per_key_are_a_table_for_the_tuner_plugin(tmp_path):
  files.write(_plan(), tmp_path / "plan")
  (rule,) = table.read(tmp_path / "plan" / "nccl_table.bin").rules
  assert rule == rules_lib.Rule(
    kind="all-gather",
    num_ranks=8,
    num_nodes=1,
    min_bytes=16 * _MIB,
    max_bytes=16 * _MIB,
    algorithm="ring",
    protocol="simple",
    num_channels=4,
    chunk_bytes=131072,
  )


def test_a_plan_that_an_older_version_wrote_is_replaced(tmp_path):
  folder = tmp_path / "plan"
  files.write(_plan(name="old"), folder)
  (folder / "nccl_table.bin").rename(folder / "nccl_settings.csv")
  files.write(_plan(name="new"), folder)
  assert plan_lib.load(folder).module_name == "new"
  assert not (folder / "nccl_settings.csv").exists()


# What bash makes of it.


def test_bash_sources_xla_flags(tmp_path):
  plan = _plan(
    options={_GATHER: 128 * _MIB, "xla_gpu_enable_nccl_user_buffers": True}
  )
  files.write(plan, tmp_path / "plan")
  flags = _sourced(tmp_path / "plan" / "xla_flags.sh", "XLA_FLAGS")
  assert flags.split() == [
    "--xla_gpu_all_gather_combine_threshold_bytes=134217728",
    "--xla_gpu_enable_nccl_user_buffers=true",
  ]


def test_a_plans_flags_come_after_those_that_are_there(tmp_path):
  files.write(_plan(), tmp_path / "plan")
  flags = _sourced(
    tmp_path / "plan" / "xla_flags.sh", "XLA_FLAGS", XLA_FLAGS="--xla_a=1"
  )
  assert flags.split() == ["--xla_a=1", f"--{_GATHER}=134217728"]


def test_values_reach_the_environment_as_they_are(tmp_path):
  value = "a b'c\"d$e`f"
  plan = _plan(options={"xla_dump_to": value}, env={"NCCL_TEXT": value})
  files.write(plan, tmp_path / "plan")
  flags = _sourced(tmp_path / "plan" / "xla_flags.sh", "XLA_FLAGS")
  ((flag,), rest) = flag_syntax.parse(flags)
  assert (flag.name, flag.value, rest) == ("xla_dump_to", value, "")
  assert _sourced(tmp_path / "plan" / "nccl_env.sh", "NCCL_TEXT") == value


def test_bash_sources_nccls_environment(tmp_path):
  files.write(_plan(), tmp_path / "plan")
  path = tmp_path / "plan" / "nccl_env.sh"
  assert _sourced(path, "NCCL_MAX_CTAS") == "8"


def test_a_plan_that_sets_nothing_changes_nothing(tmp_path):
  files.write(_plan(options={}, env={}), tmp_path / "plan")
  flags = tmp_path / "plan" / "xla_flags.sh"
  assert _sourced(flags, "XLA_FLAGS") == "unset"
  assert _sourced(flags, "XLA_FLAGS", XLA_FLAGS="--xla_a=1") == "--xla_a=1"
  env = tmp_path / "plan" / "nccl_env.sh"
  assert _sourced(env, "NCCL_MAX_CTAS") == "unset"


def test_flags_are_spelled_as_xla_reads_them():
  options = {
    "xla_gpu_enable_nccl_user_buffers": True,
    "xla_gpu_autotune_level": 2,
    "xla_dump_to": "folder",
    "xla_gpu_enable_triton_gemm": False,
    "xla_gpu_all_gather_mode": "COLLECTIVES_PEER_MEMORY",
  }
  assert xla_options.xla_flags(options) == (
    "--xla_dump_to=folder --xla_gpu_all_gather_mode=peer"
    " --xla_gpu_autotune_level=2 --xla_gpu_enable_nccl_user_buffers=true"
    " --xla_gpu_enable_triton_gemm=false"
  )


def test_a_cap_is_an_environment_variable_and_no_cap_is_none():
  cap = channel_cap.Cap(max_channels=6, configuration={}, step_time_us=1.0)
  assert nccl_env.variables(cap) == {"NCCL_MAX_CTAS": "6"}
  cap = channel_cap.Cap(max_channels=None, configuration={}, step_time_us=1.0)
  assert nccl_env.variables(cap) == {}
