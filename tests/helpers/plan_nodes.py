# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Nodes with a plan's folder, and the environment after its env.sh."""

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
  """A node with a plan's folder and its own `lagom-xla`."""

  folder: pathlib.Path
  shell: sourced.Shell

  @property
  def table(self) -> pathlib.Path:
    return self.folder / "nccl_table.bin"

  def environ(self, **before: str) -> dict[str, str]:
    """A process's environment after env.sh, whose errors are ignored."""
    done = self.shell.run('source "$1/env.sh"', self.folder, env=before)
    found = sourced.environ_of(done)
    return {k: v for k, v in found.items() if k.startswith(("NCCL", "LAGOM"))}

  def has_plugin(self, status: int, plugin: pathlib.Path | str = "") -> None:
    """Makes `lagom-xla plugin --path` print a path and exit with a status."""
    self.shell.has_command(f'echo "{plugin}"\nexit {status}')


def maker(tmp_path: pathlib.Path) -> Callable[..., Node]:
  """A function that makes nodes in a folder, each with this or another plan."""
  plugin = build.ensure()

  def make(plan=PLAN) -> Node:
    place = tmp_path / f"node{len(list(tmp_path.iterdir()))}"
    files.write(plan, place / "plan")
    node = Node(place / "plan", sourced.Shell(place / "bin"))
    node.has_plugin(0, plugin)
    return node

  return make
