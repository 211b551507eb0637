# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""A plan's folder, and shells that source its scripts."""

from __future__ import annotations

from collections.abc import Mapping
import pathlib
import shutil
import subprocess

import pytest

from lagom_xla.apply import files
from sample_plan import GATHER
from sample_plan import PLAN

FLAG = f"--{GATHER}={128 * 2**20}"
PLUGIN = "/somewhere/it's here/plugin.so"
SHELLS = ("bash", "sh", "dash", "zsh", "busybox")
VARIABLES = (
  "XLA_FLAGS",
  "NCCL_MAX_CTAS",
  "NCCL_MAX_NCHANNELS",
  "NCCL_TUNER_PLUGIN",
  "LAGOM_XLA_NCCL_TABLE",
  "LAGOM_XLA_NCCL_CHECKSUM",
)
# Variables in which env.sh records its changes, for a later env.sh.
_KEPT = ("LAGOM_XLA_CAP", "LAGOM_XLA_ENV", "LAGOM_XLA_FLAGS")


class Shell:
  """Sources files in a process with an almost empty environment."""

  def __init__(self, path: pathlib.Path):
    self._path = path
    self._path.mkdir()
    for name in ("cat", "dirname", "env"):
      found = shutil.which(name)
      assert found is not None
      (path / name).symlink_to(found)

  def has_command(self, script: str, name: str = "lagom-xla") -> None:
    """Installs a command."""
    command = self._path / name
    command.write_text(f"#!/bin/sh\n{script}\n")
    command.chmod(0o755)

  def run(
    self,
    script: str,
    argument: pathlib.Path | str,
    *,
    shell: str = "bash",
    cwd: pathlib.Path | None = None,
    env: Mapping[str, str],
  ) -> subprocess.CompletedProcess[str]:
    """Runs a script with an argument, and prints the resulting environment."""
    executable = shutil.which(shell)
    if executable is None:
      pytest.skip(f"there is no {shell}: apt-get install {shell}")
    command = [executable]
    if shell == "busybox":
      command.append("sh")
    return subprocess.run(
      [*command, "-c", f"{script}\nenv -0", "-", str(argument)],
      env={"PATH": str(self._path), **env},
      cwd=cwd,
      check=True,
      capture_output=True,
      text=True,
    )

  def source(
    self,
    file: pathlib.Path | str,
    *,
    shell: str = "bash",
    cwd: pathlib.Path | None = None,
    times: int = 1,
    **env: str,
  ) -> tuple[dict[str, str], str]:
    """The variables afterward, and the output."""
    strict = "set -eu" + ("o pipefail" if shell in ("bash", "zsh") else "")
    script = f'{strict}\nfile="$1"\nset --\n' + '. "$file"\n' * times
    done = self.run(script, file, shell=shell, cwd=cwd, env=env)
    found = environ_of(done)
    ours = {name: found[name] for name in VARIABLES if name in found}
    leaked = {n for n in found if n.startswith(("LAGOM_", "lagom_"))}
    assert leaked <= {*VARIABLES, *_KEPT, *env}
    return ours, done.stderr


def environ_of(done: subprocess.CompletedProcess[str]) -> dict[str, str]:
  """The environment that a script printed."""
  return dict(line.split("=", 1) for line in done.stdout.split("\0") if line)


def shell_with_plugin(folder: pathlib.Path) -> Shell:
  """A shell in which `lagom-xla plugin --path` finds the plugin."""
  shell = Shell(folder / "bin")
  shell.has_command(
    f'case "$*" in "plugin --path --table="*) echo "{PLUGIN}" ;; esac',
  )
  return shell


def write_plan(folder: pathlib.Path) -> pathlib.Path:
  """Writes a plan to a path with a space."""
  written = folder / "my runs" / "plan"
  files.write(PLAN, written)
  return written
