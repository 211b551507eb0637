# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Nodes that have a plan's folder, and what env.sh makes of processes."""

from __future__ import annotations

from collections.abc import Callable
import dataclasses
import pathlib

from lagom_xla.apply import files
from lagom_xla.apply.nccl import build
from sample_plan import PLAN
import sourced


@dataclasses.dataclass(frozen=True)
class Node:
  """A node with a plan's folder and a `lagom-xla` of its own."""

  folder: pathlib.Path
  shell: sourced.Shell

  @property
  def table(self) -> pathlib.Path:
    return self.folder / "nccl_table.bin"

  def environ(self, **before: str) -> dict[str, str]:
    """What env.sh makes of a process's environment, where a launcher goes on.

    Errors of env.sh are not heeded.
    """
    done = self.shell.run('source "$1/env.sh"', self.folder, env=before)
    found = sourced.environ_of(done)
    return {k: v for k, v in found.items() if k.startswith(("NCCL", "LAGOM"))}

  def has_plugin(self, status: int, plugin: pathlib.Path | str = "") -> None:
    """Has `lagom-xla plugin --path` end with a status, and print a path."""
    self.shell.has_command(f'echo "{plugin}"\nexit {status}')


def maker(tmp_path: pathlib.Path) -> Callable[..., Node]:
  """What makes nodes in a folder, each with this plan or another."""
  plugin = build.ensure()

  def make(plan=PLAN) -> Node:
    place = tmp_path / f"node{len(list(tmp_path.iterdir()))}"
    files.write(plan, place / "plan")
    node = Node(place / "plan", sourced.Shell(place / "bin"))
    node.has_plugin(0, plugin)
    return node

  return make
