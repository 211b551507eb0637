# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Temporary folders of ended processes are removed, and others stay."""

from __future__ import annotations

from collections.abc import Callable
import contextlib
import fcntl
import os
import pathlib
import subprocess
import sys
import tempfile
from typing import Any

import pytest

import commands
from lagom_xla import processes

_HOLD = """
from lagom_xla import processes
made = processes.TemporaryFolder()
(made.path / "trace").mkdir()
(made.path / "trace" / "file").write_text("x")
print(made.path, flush=True)
input()
"""


@pytest.fixture(autouse=True)
def place(tmp_path, monkeypatch) -> Any:
  """The folder for temporary files, in this process and in those it starts."""
  monkeypatch.setenv("TMPDIR", str(tmp_path))
  monkeypatch.setattr(tempfile, "tempdir", None)
  return tmp_path


@pytest.fixture
def holder() -> Any:
  """Starts processes that make a folder and keep it until they are killed."""
  with contextlib.ExitStack() as stack:

    def start() -> tuple[Callable[[], None], pathlib.Path]:
      process = stack.enter_context(
        subprocess.Popen(
          (sys.executable, "-c", _HOLD),
          env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
          stdin=subprocess.PIPE,
          stdout=subprocess.PIPE,
          text=True,
        )
      )
      stack.callback(process.kill)
      assert process.stdout is not None

      def kill() -> None:
        process.kill()
        process.wait()

      return kill, pathlib.Path(process.stdout.readline().strip())

    yield start


def test_folders_of_killed_processes_are_deleted_and_folders_in_use_kept(
  holder, place
):
  kill, left = holder()
  _, held = holder()
  with processes.temporary_folder() as own:
    kill()
    assert {left, held, own} == set(place.iterdir())
    processes.sweep()
    assert {held, own} == set(place.iterdir())
    assert (held / "trace" / "file").exists()
  assert [held] == list(place.iterdir())


def test_the_next_command_deletes_folders_of_killed_processes(holder, place):
  kill, _ = holder()
  kill()
  assert commands.run("clusters").status == 0
  assert not list(place.iterdir())


@pytest.mark.parametrize(
  "name",
  ["lagom_xla-{host}-2-abcdefgh", "lagom_xla-another-abcdefgh", "tmpabcdefgh"],
)
def test_folders_of_other_hosts_and_programs_are_kept(name, place):
  other = place / name.format(host=os.uname().nodename)
  other.mkdir()
  processes.sweep()
  assert other.exists()


def test_folders_of_other_users_are_kept(holder, monkeypatch):
  kill, left = holder()
  kill()
  user = os.getuid()
  monkeypatch.setattr(os, "getuid", lambda: user + 1)
  processes.sweep()
  assert left.exists()


def test_folders_that_cannot_be_locked_are_not_swept(place, monkeypatch):
  def refuse(*unused: Any) -> None:
    raise OSError("No locks available")

  with monkeypatch.context() as patched:
    patched.setattr(fcntl, "flock", refuse)
    unlocked = processes.TemporaryFolder()
  processes.sweep()
  assert [unlocked.path] == list(place.iterdir())
  unlocked.delete()
  assert not list(place.iterdir())
