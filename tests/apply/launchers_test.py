# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""The command lines of docs/launchers.md start processes with a plan.

They run unchanged.
"""

from __future__ import annotations

import json
import pathlib
import re
import shutil
import subprocess

import pytest

import sourced

_DOCS = pathlib.Path(__file__).parents[2] / "docs/launchers.md"


@pytest.fixture
def folder(tmp_path) -> pathlib.Path:
  return sourced.write_plan(tmp_path)


@pytest.fixture
def shell(tmp_path) -> sourced.Shell:
  return sourced.shell_with_plugin(tmp_path)


def _documented(start: str) -> str:
  """The command line of the page that starts with these words."""
  (line,) = (
    line.strip()
    for line in _DOCS.read_text().splitlines()
    if line.startswith(f"    {start}")
  )
  return line


def _install(path: pathlib.Path, **commands: str) -> None:
  """Installs bash, and commands made of bash lines."""
  bash = shutil.which("bash")
  assert bash is not None
  (path / "bash").symlink_to(bash)
  for name, lines in commands.items():
    command = path / name
    command.write_text(f"#!{bash}\n{lines}\n")
    command.chmod(0o755)


_SHOW = 'echo "$XLA_FLAGS|$NCCL_TUNER_PLUGIN|$LAGOM_XLA_NCCL_TABLE|$*"'
_SKIP_OPTIONS = 'while [ "$1" != bash ]; do shift; done; exec "$@"'


@pytest.mark.parametrize(
  ("line", "launcher"),
  [
    ("srun", _SKIP_OPTIONS),
    ("mpirun", _SKIP_OPTIONS),
    ('source "$PLAN/env.sh" && exec torchrun', "exec python train.py"),
  ],
)
def test_a_documented_launcher_starts_processes_with_the_plan(
  tmp_path, folder, shell, line, launcher
):
  command = _documented(line)
  name = line.split()[-1]
  _install(tmp_path / "bin", python=_SHOW, **{name: launcher})
  done = subprocess.run(
    ["bash", "-c", command],
    env={"PATH": str(tmp_path / "bin"), "PLAN": str(folder)},
    check=True,
    capture_output=True,
    text=True,
  )
  table_path = folder / "nccl_table.bin"
  assert (
    done.stdout.strip()
    == f"{sourced.FLAG}|{sourced.PLUGIN}|{table_path}|train.py"
  )


def test_a_documented_pod_starts_with_the_plan_of_a_config_map(
  tmp_path, folder, shell
):
  _install(tmp_path / "bin", python=_SHOW)
  text = _DOCS.read_text()
  mounted = tmp_path / "mounted"
  mounted.mkdir()
  for word in _documented("kubectl create configmap lagom-xla-plan").split():
    if word.startswith("--from-file="):
      name = pathlib.Path(word.removeprefix("--from-file=")).name
      shutil.copy(folder / name, mounted / name)
  (mount,) = re.findall(r"^ *mountPath: (.*)$", text, re.MULTILINE)
  words = [
    word.replace(mount, str(mounted))
    for field in ("command", "args")
    for found in re.findall(rf"^ *{field}: (\[.*\])$", text, re.MULTILINE)
    for word in json.loads(found)
  ]
  done = subprocess.run(
    words,
    env={"PATH": str(tmp_path / "bin"), "XLA_FLAGS": "--xla_a=1"},
    check=True,
    capture_output=True,
    text=True,
  )
  set_to = f"{sourced.FLAG}|{sourced.PLUGIN}|{mounted / 'nccl_table.bin'}"
  assert done.stdout.strip() == f"--xla_a=1 {set_to}|train.py"
