# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""The library of the NCCL tuner plugin: built when needed, with its path."""

from __future__ import annotations

import argparse
import dataclasses
import os
import pathlib
import shutil
import subprocess

import pytest

from lagom_xla.apply import files
from lagom_xla.apply.nccl import build
from lagom_xla.apply.nccl import table
from lagom_xla.cli.commands import plan as plan_commands
from lagom_xla.compile import config as config_lib
from sample_plan import GATHERED_BYTES
from sample_plan import PLAN

# Building it.


@pytest.fixture
def package(tmp_path, monkeypatch) -> pathlib.Path:
  """A copy of the source, in a package with no library in it."""
  try:
    build.compiler()
  except build.BuildError as error:
    pytest.skip(str(error))
  source = tmp_path / "package" / build.SOURCE.name
  source.parent.mkdir()
  shutil.copy(build.SOURCE, source)
  monkeypatch.setattr(build, "SOURCE", source)
  monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
  return source.parent


def test_a_missing_library_is_built_once(package):
  assert build.find() is None
  path = build.ensure()
  assert path == build.packaged() == build.find()
  built = path.stat().st_mtime_ns
  assert build.ensure() == path
  assert path.stat().st_mtime_ns == built
  assert sorted(package.iterdir()) == sorted([build.SOURCE, path])


def test_a_library_of_another_source_is_rebuilt(package):
  first = build.ensure().read_bytes()
  with build.SOURCE.open("a") as source:
    source.write("// Changed.\n")
  assert build.find() is None
  assert build.ensure().read_bytes() != first


def test_a_library_is_built_in_the_cache_if_the_package_is_read_only(
  package, monkeypatch
):
  compile_to = build.compile_to

  def refuses(path: pathlib.Path) -> pathlib.Path:
    if path == build.packaged():
      raise PermissionError(13, "Permission denied")
    return compile_to(path)

  monkeypatch.setattr(build, "compile_to", refuses)
  assert build.ensure() == build.cached() == build.find()


def test_a_missing_or_failing_compiler_is_an_error(package, monkeypatch):
  monkeypatch.setenv("CC", "false")
  with pytest.raises(build.BuildError, match=r"false could not compile"):
    build.ensure()
  monkeypatch.delenv("CC")
  monkeypatch.setenv("PATH", "")
  with pytest.raises(build.BuildError, match="No C compiler"):
    build.ensure()


# The command.


def _run_command(*arguments: object) -> None:
  parser = argparse.ArgumentParser()
  plan_commands.add_plugin(parser.add_subparsers())
  parsed = parser.parse_args(["plugin", *map(str, arguments)])
  parsed.function(parsed)


def _plan(folder: pathlib.Path) -> pathlib.Path:
  plan = dataclasses.replace(PLAN, xla=config_lib.DEFAULT)
  files.write(plan, folder)
  return folder


def test_a_plan_without_settings_needs_no_plugin(package, capsys, tmp_path):
  files.write(dataclasses.replace(PLAN, nccl_settings=()), tmp_path / "plan")
  _run_command(tmp_path / "plan")
  (line,) = capsys.readouterr().out.splitlines()
  assert line == "# The plan keeps NCCL's own choices: no plugin is needed."


def test_the_plugin_command_prints_the_path_and_the_interfaces(package, capsys):
  _run_command()
  path, *interfaces = capsys.readouterr().out.splitlines()
  assert pathlib.Path(path) == build.packaged()
  assert [line.split()[0] for line in interfaces] == [
    f"ncclTunerPlugin_{version}" for version in build.INTERFACES
  ]
  _run_command("--path")
  assert capsys.readouterr().out == f"{path}\n"


def test_the_plugin_command_prints_variables_that_apply_a_plan(
  package, tmp_path, capsys
):
  folder = _plan(tmp_path / "my plan")
  _run_command(folder)
  lines = capsys.readouterr().out
  done = subprocess.run(
    ["bash", "-c", f"set -eu\n{lines}\nenv -0"],
    env={"PATH": os.environ["PATH"], "NCCL_MAX_CTAS": "2"},
    capture_output=True,
    text=True,
    check=True,
  )
  assert "NCCL_MAX_CTAS and NCCL_MAX_NCHANNELS were unset" in done.stderr
  pairs = (line.partition("=") for line in done.stdout.split("\0"))
  variables = {
    name: value
    for name, _, value in pairs
    if name.startswith(("NCCL_", "LAGOM_"))
  }
  assert variables.keys() == {
    "NCCL_TUNER_PLUGIN",
    "LAGOM_XLA_NCCL_TABLE",
    "LAGOM_XLA_NCCL_CHECKSUM",
  }
  assert build.interfaces(pathlib.Path(variables["NCCL_TUNER_PLUGIN"]))
  path = pathlib.Path(variables["LAGOM_XLA_NCCL_TABLE"])
  rules = table.read(path).rules
  assert [rule.max_bytes for rule in rules] == [GATHERED_BYTES]
  assert variables["LAGOM_XLA_NCCL_CHECKSUM"] == table.checksum(rules)


def test_the_plugin_command_without_a_compiler_names_nccl_variables(
  package, tmp_path, monkeypatch, capsys
):
  folder = _plan(tmp_path / "plan")
  monkeypatch.setenv("PATH", "")
  monkeypatch.delenv("CC", raising=False)
  for arguments in ([], ["--path"], ["--path", folder]):
    with pytest.raises(SystemExit) as exit_info:
      _run_command(*arguments)
    assert exit_info.value.code == 1
    said = capsys.readouterr()
    assert said.out == ""
    assert "No C compiler" in said.err
    assert "NCCL_ALGO" in said.err
  _run_command(folder)
  said = capsys.readouterr()
  assert said.out.splitlines() == [
    "export NCCL_MAX_CTAS=8",
    "export NCCL_ALGO=allgather:ring",
    "export NCCL_PROTO=allgather:simple",
  ]
  assert "No C compiler" in said.err
