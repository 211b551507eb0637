# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Nodes that have a plan's folder, and what env.sh makes of processes."""

from __future__ import annotations

from collections.abc import Callable
import dataclasses
import pathlib
import shutil
import subprocess

from lagom_xla.apply import files
from lagom_xla.apply.nccl import build
from sample_plan import PLAN


@dataclasses.dataclass(frozen=True)
class Node:
  """A node with a plan's folder and a `lagom-xla` of its own."""

  folder: pathlib.Path
  commands: pathlib.Path

  @property
  def table(self) -> pathlib.Path:
    return self.folder / "nccl_table.bin"

  def environ(self, **before: str) -> dict[str, str]:
    """What env.sh makes of a process's environment, where a launcher goes on.

    Errors of env.sh are not heeded.
    """
    done = subprocess.run(
      [
        shutil.which("bash") or "bash",
        "-c",
        'source "$0/env.sh"; env -0',
        str(self.folder),
      ],
      env={"PATH": str(self.commands), **before},
      capture_output=True,
      text=True,
      check=True,
    )
    found = dict(line.split("=", 1) for line in done.stdout.split("\0") if line)
    return {k: v for k, v in found.items() if k.startswith(("NCCL", "LAGOM"))}

  def has_plugin(self, status: int, plugin: pathlib.Path | str = "") -> None:
    """Has `lagom-xla plugin --path` end with a status, and print a path."""
    command = self.commands / "lagom-xla"
    command.write_text(f'#!/bin/sh\necho "{plugin}"\nexit {status}\n')
    command.chmod(0o755)


def maker(tmp_path: pathlib.Path) -> Callable[..., Node]:
  """What makes nodes in a folder, each with this plan or another."""
  plugin = build.ensure()

  def make(plan=PLAN) -> Node:
    place = tmp_path / f"node{len(list(tmp_path.iterdir()))}"
    node = Node(place / "plan", place / "bin")
    files.write(plan, node.folder)
    node.commands.mkdir()
    for name in ("dirname", "env"):
      found = shutil.which(name)
      assert found is not None
      (node.commands / name).symlink_to(found)
    node.has_plugin(0, plugin)
    return node

  return make
