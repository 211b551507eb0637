# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""`lagom-xla doctor`: what works here, as tried on this machine."""

from __future__ import annotations

import json
import subprocess

import jax
import jsonschema
import pytest

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


def test_what_tuning_needs_works_where_the_tests_run(healthy):
  assert healthy.works, healthy
  essential = [f.name for f in healthy.findings if f.is_essential]
  assert essential == ["XLA_FLAGS", "schedules", "full compiles"]


def test_versions_are_those_that_are_imported(healthy):
  versions = {version.package: version.version for version in healthy.versions}
  assert versions["jax"] == jax.__version__


def test_what_does_not_work_comes_with_advice(healthy):
  broken = [f for f in healthy.findings if f.status == "fails"]
  assert all(f.advice or "pip install" in f.found for f in broken)
  assert not any(f.advice for f in healthy.findings if f.status == "works")


def test_trials_that_take_too_long_are_ended_and_said():
  checkup = doctor.examine(limit_s=0.01)
  assert not checkup.works
  findings = _by_name(checkup)
  assert findings["XLA_FLAGS"].status == "fails"
  assert "took longer than 0.01 s" in findings["XLA_FLAGS"].found
  # What needs no process is told all the same.
  assert findings["cache"].status == "works"


@pytest.fixture(scope="module")
def sick(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
  """What the command says where much is broken, line by line."""
  folder = tmp_path_factory.mktemp("sick")
  (folder / "file").write_text("")
  (folder / "nccl.c").write_text(_VERSION)
  library = folder / "libnccl.so.2"
  subprocess.run(
    [*build.compiler(), "-shared", "-o", library, folder / "nccl.c"], check=True
  )
  done = run_process(
    "doctor",
    env={
      "XLA_FLAGS": "--xla_no_such_flag=1",
      "CC": "false",
      "LAGOM_XLA_CACHE": str(folder / "file" / "below"),
      "LD_LIBRARY_PATH": str(folder),
    },
  )
  assert done.status == 1
  return done.out.splitlines()


def _line(lines: list[str], name: str) -> str:
  (line,) = [line for line in lines if line[11:].startswith(f"{name}  ")]
  return line.strip()


def test_the_verdict_comes_first_and_names_what_is_broken(sick):
  assert sick[0].startswith("inspect and tune do not work here: XLA_FLAGS, ")


def test_a_trial_that_ends_its_process_leaves_those_before_it(sick):
  flags = _line(sick, "XLA_FLAGS")
  assert "xla_no_such_flag" in flags and "lagom-xla flags --check" in flags
  assert "its process was ended" in _line(sick, "schedules")
  assert "it was not tried" in _line(sick, "full compiles")


def test_a_compiler_that_fails_is_named(sick):
  line = _line(sick, "NCCL tuner")
  assert line.startswith("fails")
  assert "false could not compile plugin.c" in line


def test_the_nccl_that_would_be_loaded_is_found(sick):
  assert _line(sick, "NCCL").split(maxsplit=2)[:2] == ["works", "NCCL"]
  assert "2.32.3, libnccl.so.2" in _line(sick, "NCCL")


def test_a_cache_that_cannot_be_written_is_said(sick):
  line = _line(sick, "cache")
  assert line.startswith("fails") and "LAGOM_XLA_CACHE" in line


def test_json_follows_the_schema_that_is_published(
  healthy, monkeypatch: pytest.MonkeyPatch
):
  monkeypatch.setattr(doctor, "examine", lambda: healthy)
  done = run("doctor", "--format=json")
  assert done.status == 0
  schema = json.loads(run("schema", "doctor").out)
  jsonschema.validate(json.loads(done.out), schema)
