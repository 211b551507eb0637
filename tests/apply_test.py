# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""A plan's folder: whole or not at all, and shell files that bash sources."""

from __future__ import annotations

import csv
import os
import pathlib
import subprocess

import pytest

from lagom_xla import cluster as cluster_lib
from lagom_xla import plan as plan_lib
from lagom_xla.apply import check
from lagom_xla.apply import files
from lagom_xla.apply import nccl_env
from lagom_xla.apply import xla_options
from lagom_xla.costs import collective as collective_lib
from lagom_xla.costs import nccl
from lagom_xla.costs import step as step_lib
from lagom_xla.passes import collectives as collectives_lib
from lagom_xla.passes import hlo
from lagom_xla.passes import overlap as overlap_lib
from lagom_xla.search import channel_cap
from lagom_xla.search import combining

H100 = cluster_lib.parse("1x8xh100")
_MIB = 2**20
_GATHER = combining.OPTIONS["all-gather"]
_REDUCE = combining.OPTIONS["all-reduce"]
_SETTING = nccl.Setting(
  algorithm="ring", protocol="simple", num_channels=4, chunk_bytes=131072
)
_KEY = collective_lib.TuningKey("all-gather", 8, 1, 16 * _MIB)


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
      plan_lib.NcclSetting(key=_KEY, setting=_SETTING, default=_SETTING),
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
    "nccl_env.sh",
    "nccl_settings.csv",
    "plan.json",
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
  with pytest.raises(plan_lib.PlanError, match="something else"):
    files.check(tmp_path)
  with pytest.raises(plan_lib.PlanError, match=str(tmp_path)):
    files.write(_plan(), tmp_path)
  assert sorted(path.name for path in tmp_path.iterdir()) == names
  assert (tmp_path / names[0]).read_text() == "precious"


def test_a_file_in_the_folders_place_is_refused(tmp_path):
  path = tmp_path / "plan"
  path.write_text("precious")
  with pytest.raises(plan_lib.PlanError, match="something else"):
    files.write(_plan(), path)
  assert path.read_text() == "precious"


def test_a_folder_that_cannot_be_made_is_an_error(tmp_path):
  (tmp_path / "file").write_text("")
  folder = tmp_path / "file" / "plan"
  with pytest.raises(plan_lib.PlanError, match=f"Cannot write {folder}: .+"):
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
  with pytest.raises(plan_lib.PlanError, match="No space left on device"):
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


def test_settings_per_key_are_a_table(tmp_path):
  files.write(_plan(), tmp_path / "plan")
  with (tmp_path / "plan" / "nccl_settings.csv").open() as file:
    (row,) = csv.DictReader(file)
  assert row == {
    "collective": "all-gather",
    "num_ranks": "8",
    "num_nodes": "1",
    "num_bytes": str(16 * _MIB),
    "algorithm": "ring",
    "protocol": "simple",
    "num_channels": "4",
    "chunk_bytes": "131072",
  }


# What bash makes of it.


def test_bash_sources_xla_flags(tmp_path):
  plan = _plan(options={_GATHER: 128 * _MIB, "xla_gpu_some_switch": True})
  files.write(plan, tmp_path / "plan")
  flags = _sourced(tmp_path / "plan" / "xla_flags.sh", "XLA_FLAGS")
  assert flags.split() == [
    "--xla_gpu_all_gather_combine_threshold_bytes=134217728",
    "--xla_gpu_some_switch=true",
  ]


def test_a_plans_flags_come_after_those_that_are_there(tmp_path):
  files.write(_plan(), tmp_path / "plan")
  flags = _sourced(
    tmp_path / "plan" / "xla_flags.sh", "XLA_FLAGS", XLA_FLAGS="--xla_a=1"
  )
  assert flags.split() == ["--xla_a=1", f"--{_GATHER}=134217728"]


def test_values_reach_the_environment_as_they_are(tmp_path):
  value = "a b'c\"d$e`f"
  plan = _plan(options={"xla_text": value}, env={"NCCL_TEXT": value})
  files.write(plan, tmp_path / "plan")
  flags = _sourced(tmp_path / "plan" / "xla_flags.sh", "XLA_FLAGS")
  assert flags.strip() == f"--xla_text={value}"
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
  options = {"xla_b": True, "xla_a": 8, "xla_c": "text", "xla_d": False}
  assert xla_options.xla_flags(options) == (
    "--xla_a=8 --xla_b=true --xla_c=text --xla_d=false"
  )


def test_a_cap_is_an_environment_variable_and_no_cap_is_none():
  cap = channel_cap.Cap(max_channels=6, configuration={}, step_time_us=1.0)
  assert nccl_env.variables(cap) == {"NCCL_MAX_CTAS": "6"}
  cap = channel_cap.Cap(max_channels=None, configuration={}, step_time_us=1.0)
  assert nccl_env.variables(cap) == {}


# Whether it acted.


def _gathers(*sizes_mib: int) -> tuple[collectives_lib.Collective, ...]:
  return tuple(
    collectives_lib.Collective(
      name=f"all-gather.{i}",
      kind="all-gather",
      form="async",
      computation="main",
      start_id=i,
      done_id=i + 100,
      num_operands=1,
      operand_bytes=mib * _MIB // 8,
      result_bytes=mib * _MIB,
      element_type="bf16",
      groups=(tuple(range(8)),),
      pairs=(),
      executions=1,
      is_pipelined=False,
    )
    for i, mib in enumerate(sizes_mib)
  )


def test_an_option_that_combined_something_acted():
  (effect,) = check.xla_effects(
    {_GATHER: 128 * _MIB}, _gathers(16, 16, 32), _gathers(32, 32)
  )
  assert effect.acted
  assert effect.knob == _GATHER
  assert effect.value == str(128 * _MIB)
  assert effect.evidence == (
    "3 all-gathers became 2, of at most 32 MiB (before 32 MiB)"
  )


def test_an_option_that_did_nothing_is_said_to_have_no_effect():
  same = _gathers(16, 32)
  (effect,) = check.xla_effects({_GATHER: 128 * _MIB}, same, same[::-1])
  assert not effect.acted
  assert effect.evidence == (
    "no effect: the same 2 all-gathers, of the same sizes"
  )


def test_an_option_for_what_a_module_lacks_has_no_effect():
  (effect,) = check.xla_effects({_REDUCE: 0}, _gathers(16), _gathers(16, 8))
  assert not effect.acted
  assert effect.evidence == "no effect: there is no all-reduce"


def test_any_other_option_acts_if_collectives_changed():
  options = {"xla_gpu_some_switch": True}
  (effect,) = check.xla_effects(options, _gathers(16), _gathers(8, 8))
  assert effect.acted
  assert effect.evidence.startswith("1 collective became 2")


def _step() -> step_lib.Step:
  return step_lib.Step(
    overlap_lib.analyze(
      hlo.load(f"""HloModule step, is_scheduled=true, num_partitions=8

ENTRY main {{
  p = f32[{_MIB // 2}] parameter(0)
  ROOT gathered = f32[{4 * _MIB}] all-gather(p), dimensions={{0}},
    channel_id=1, replica_groups=[1,8]<=[8], use_global_device_ids=true
}}
""")
    ),
    H100,
  )


def test_a_nccl_setting_is_checked_to_meet_a_collective():
  (entry,) = _plan().nccl_settings
  (effect,) = check.nccl_effects((entry,), _step())
  assert effect.acted
  assert effect.knob == "all-gather of 16777216 bytes over 8 GPUs"
  assert effect.value == "ring/simple, 4 channels, 131072 byte chunks"
  assert effect.evidence == "meets 1 collective, such as gathered"


def test_a_nccl_setting_that_meets_no_collective_has_no_effect():
  other = collective_lib.TuningKey("all-reduce", 8, 1, 16 * _MIB)
  entry = plan_lib.NcclSetting(key=other, setting=_SETTING, default=_SETTING)
  (effect,) = check.nccl_effects((entry,), _step())
  assert not effect.acted
  assert effect.evidence == "no effect: there is no such collective"
