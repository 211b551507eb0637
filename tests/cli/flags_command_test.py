# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""The output of `lagom-xla flags`: for a plan, a check, a merge."""

from __future__ import annotations

import dataclasses
import os
import pathlib
import subprocess

import pytest

from commands import printed
from commands import run
from commands import run_process
from lagom_xla.apply import files as files_lib
from lagom_xla.compile import config as config_lib
from lagom_xla.flags import probe
from lagom_xla.search.xla import knobs
from sample_plan import PLAN


@pytest.fixture
def plan_with_options(tmp_path) -> pathlib.Path:
  plan = dataclasses.replace(
    PLAN,
    xla=config_lib.XlaConfig(
      options=dict.fromkeys(knobs.OPTIONS.values(), 2**22)
    ),
    nccl_env={"NCCL_MAX_CTAS": "8"},
  )
  folder = tmp_path / "plan"
  files_lib.write(plan, folder)
  return folder


def _sourced(lines: str, xla_flags: str) -> str:
  """XLA_FLAGS and the cap in a shell after it sourced lines."""
  done = subprocess.run(
    ["bash", "-c", 'source <(cat) && echo "$XLA_FLAGS|$NCCL_MAX_CTAS"'],
    input=lines,
    env={"XLA_FLAGS": xla_flags, "PATH": os.environ["PATH"]},
    capture_output=True,
    text=True,
    check=True,
  )
  return done.stdout.strip()


def test_printed_flags_can_be_sourced_and_keep_earlier_xla_flags(
  plan_with_options,
):
  outcome = run("flags", str(plan_with_options))
  assert (outcome.status, outcome.err) == (0, "")
  flags, _, channels = _sourced(outcome.out, "--xla_first=1").partition("|")
  assert channels == "8"
  first, *others = flags.split()
  assert first == "--xla_first=1"
  assert sorted(others) == sorted(
    f"--{option}={2**22}" for option in knobs.OPTIONS.values()
  )
  # XLA ends a process over one that it does not know.
  (answer,) = probe.ask([" ".join(others)])
  assert not answer.is_fatal


def test_flags_of_a_plan_that_changes_nothing_are_only_comments(tmp_path):
  plan = dataclasses.replace(PLAN, xla=config_lib.DEFAULT, nccl_env={})
  files_lib.write(plan, tmp_path / "plan")
  outcome = run("flags", str(tmp_path / "plan/plan.json"))
  assert outcome.status == 0
  assert all(line.startswith("#") for line in outcome.out.splitlines())


def test_status_of_a_flag_check_says_whether_xla_starts():
  good = run("flags", "--check", "--xla_gpu_autotune_level=2")
  assert (good.status, good.err) == (0, "")
  bad = run("flags", "--check", "--xla_gpu_graph_level=0 --xla_dump_to=a")
  assert (bad.status, bad.err) == (1, "")
  assert "unknown: --xla_gpu_graph_level=0" in bad.out
  assert "--xla_gpu_enable_command_buffer= --xla_dump_to=a" in bad.out
  report = printed("flags", "--check=--xla_no=1")
  assert [finding["kind"] for finding in report["findings"]] == ["unknown"]
  assert report["is_fatal"]
  # Words behind --check are never flags of this program.
  for flags in ("", "--help", "--flagfile=absent", "xla_gpu_autotune_level=2"):
    report = printed("flags", "--check", flags)
    assert [f["flag"] for f in report["findings"]] == [flags][: bool(flags)]


_LEVEL, _LEVEL_4 = (f"--xla_gpu_autotune_level={level}" for level in (2, 4))
_TRITON = "--xla_gpu_enable_triton_gemm=false"


@pytest.mark.parametrize(
  ("flags", "status"),
  [
    (f"{_LEVEL} \\ {_TRITON}", 1),
    (f"{_LEVEL} NCCL_DEBUG=INFO {_TRITON}", 1),
    (f"{_LEVEL} {_TRITON} \\", 0),
    (f"{_LEVEL} {_TRITON} NCCL_DEBUG=INFO", 0),
  ],
)
def test_status_of_a_flag_check_says_whether_xla_reads_all_flags(flags, status):
  outcome = run("flags", "--check", flags)
  assert outcome.status == status
  said = "starts with these flags, but reads only 1 of them."
  assert (said in outcome.out) == bool(status)
  assert printed("flags", "--check", flags)["num_unread"] == status


def test_redundant_flags_are_shortened_and_misspelled_ones_corrected():
  outcome = run("flags", "--check", f"{_LEVEL} {_LEVEL}")
  assert "Shorter, with the same effect:" in outcome.out
  outcome = run("flags", "--check", f"{_TRITON} {_LEVEL_4}")
  assert "Shorter, with the same effect:" in outcome.out
  assert "You probably meant" not in outcome.out
  outcome = run("flags", "--check", f"{_TRITON} -{_LEVEL}")
  assert "You probably meant:" in outcome.out


def test_a_flag_check_ignores_xla_flags_of_its_own_process():
  fatal = "--xla_that_ends_a_process=1"
  level = "--xla_gpu_autotune_level"
  outcome = run_process(
    *("flags", "--check", f"{fatal} {level}=4"),
    env={"XLA_FLAGS": f"{level}=1 {fatal}"},
  )
  assert (outcome.status, outcome.err) == (1, "")
  assert f"unknown: {fatal}" in outcome.out
  assert f"default: {level}=4" in outcome.out


def test_merged_flags_can_be_sourced_and_name_the_source_of_each(
  plan_with_options, monkeypatch
):
  first, second, third = sorted(knobs.OPTIONS.values())
  given = f"--{second}=1 --xla_dump_to='a b' --xla_gpu_graph_level=0"
  monkeypatch.setenv("XLA_FLAGS", given)
  outcome = run("flags", str(plan_with_options), "--merge")
  assert (outcome.status, outcome.err) == (0, "")
  assert f"# --{second}={2**22}  from the plan, in place of" in outcome.out
  sourced = _sourced(outcome.out, given)
  planned = " ".join(f"--{name}={2**22}" for name in (first, second, third))
  assert sourced == f'--xla_dump_to="a b" {planned}|8'
  merged = printed("flags", str(plan_with_options), "--merge")
  assert [entry["source"] for entry in merged["entries"]] == [
    "environment",
    *["plan"] * 3,
  ]
  assert f"{merged['xla_flags']}|8" == sourced
