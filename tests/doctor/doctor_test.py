# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""`lagom-xla doctor` tries what works on this machine."""

from __future__ import annotations

import dataclasses
import json
import os
import pathlib
import subprocess
from typing import Any

import jax
import pytest

from commands import ROOT
from commands import check_schema
from commands import run
from commands import run_process
from lagom_xla import doctor
from lagom_xla.apply.nccl import build

_VERSION = "int ncclGetVersion(int* v) { *v = 23203; return 0; }\n"


@pytest.fixture(scope="module")
def healthy() -> doctor.Checkup:
  return doctor.examine()


def _by_name(checkup: doctor.Checkup) -> dict[str, doctor.Finding]:
  return {finding.name: finding for finding in checkup.findings}


def test_everything_that_tuning_needs_works_on_this_machine(healthy):
  assert healthy.works, healthy
  essential = [f.name for f in healthy.findings if f.is_essential]
  assert essential == ["XLA_FLAGS", "schedules", "full compiles"]


def test_versions_are_of_the_imported_packages(healthy):
  versions = {version.package: version.version for version in healthy.versions}
  assert versions["jax"] == jax.__version__


def test_checks_that_take_too_long_are_stopped_and_reported():
  checkup = doctor.examine(limit_s=0.01)
  assert not checkup.works
  findings = _by_name(checkup)
  assert findings["XLA_FLAGS"].status == "fails"
  assert "stopped after 0.01 s" in findings["XLA_FLAGS"].found
  assert "less busy" in findings["XLA_FLAGS"].found
  # Nothing is known to be missing.
  assert not findings["full compiles"].advice
  # Checks that need no process are still reported.
  assert findings["cache"].status == "works"


@pytest.fixture(scope="module")
def sick(tmp_path_factory) -> dict[str, dict[str, Any]]:
  """The command's findings if much is broken, by name."""
  folder = tmp_path_factory.mktemp("sick")
  (folder / "file").write_text("")
  (folder / "nccl.c").write_text(_VERSION)
  library = folder / "libnccl.so.2"
  subprocess.run(
    [*build.compiler(), "-shared", "-o", library, folder / "nccl.c"], check=True
  )
  done = run_process(
    *("doctor", "--format=json"),
    env={
      "XLA_FLAGS": "--xla_no_such_flag=1",
      "CC": "false",
      "LAGOM_XLA_CACHE": str(folder / "file" / "below"),
      "LD_LIBRARY_PATH": str(folder),
    },
  )
  checkup = json.loads(done.out)
  check_schema("doctor", checkup)
  assert done.status == 1 and not checkup["works"]
  return {finding["name"]: finding for finding in checkup["findings"]}


@pytest.mark.parametrize(
  ("name", "status", "words"),
  [
    ("XLA_FLAGS", "fails", "xla_no_such_flag"),
    # A crash loses no earlier findings.
    ("schedules", "fails", "its process ended"),
    ("full compiles", "fails", "not tried: an earlier"),
    ("NCCL tuner", "fails", "false could not compile plugin.c"),
    ("NCCL", "works", "2.32.3, libnccl.so.2"),
    ("cache", "fails", "cannot write "),
  ],
)
def test_each_finding_has_its_status_and_details(sick, name, status, words):
  assert sick[name]["status"] == status
  assert words in sick[name]["found"]


def test_only_findings_that_fail_come_with_advice(sick):
  for finding in sick.values():
    if finding["status"] != "missing":
      says_how = bool(finding["advice"]) or "pip install" in finding["found"]
      assert says_how == (finding["status"] == "fails"), finding
  assert "lagom-xla flags --check" in sick["XLA_FLAGS"]["advice"]
  assert "LAGOM_XLA_CACHE" in sick["cache"]["advice"]


@pytest.mark.parametrize(
  ("flags", "found"),
  [
    ("", "none are set"),
    (
      "--xla_gpu_autotune_level=2 NCCL_DEBUG=INFO --xla_dump_to=a",
      "XLA reads 1 flag and sets xla_gpu_autotune_level=2; it stops reading"
      " at NCCL_DEBUG=INFO, which is not a flag",
    ),
    (
      "--xla_gpu_autotune_level=4 --xla_dump_to='a b'",
      "XLA reads 2 flags and sets xla_dump_to=a b",
    ),
  ],
)
def test_flags_that_xla_reads_are_reported(monkeypatch, capsys, flags, found):
  monkeypatch.setenv("XLA_FLAGS", flags)
  doctor.main(["flags"])
  answer = json.loads(capsys.readouterr().out)["flags"]
  assert (answer["status"], answer["found"]) == ("works", found)


def test_a_system_with_unknown_free_memory_is_still_examined(
  monkeypatch,
):
  monkeypatch.delattr(os, "sched_getaffinity")
  monkeypatch.setattr(doctor, "MEMORY", pathlib.Path("/proc/no/meminfo"))
  finding = doctor.workers(10**9)
  assert (finding.status, finding.found) == (
    "works",
    f"{os.cpu_count()} cores, free memory unknown; a small compile took 1.0 GB",
  )


def test_advised_workers_fit_in_free_memory():
  assert doctor.workers(10**6).status == "works"
  finding = doctor.workers(10**18)
  assert finding.status == "fails"
  assert finding.advice == "Pass --workers=0: more do not fit."


def test_the_doctor_begins_with_a_verdict_that_names_broken_parts(
  healthy, monkeypatch
):
  monkeypatch.setattr(doctor, "examine", lambda: healthy)
  first, *_ = run("doctor").out.splitlines()
  assert first == "inspect and tune work here."
  assert f"`{first}`" in (ROOT / "docs/tutorial.md").read_text()
  broken = [
    dataclasses.replace(
      f, status="fails", found="no " * 40, advice="pip install"
    )
    for f in healthy.findings
  ]
  monkeypatch.setattr(
    doctor,
    "examine",
    lambda: dataclasses.replace(healthy, works=False, findings=broken),
  )
  done = run("doctor")
  assert done.status == 1
  lines = done.out.splitlines()
  assert lines[0] == (
    "inspect and tune do not work here: XLA_FLAGS, schedules, full compiles."
  )
  assert all(len(line) <= 80 for line in lines)
