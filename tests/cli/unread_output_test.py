# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Commands whose output nobody reads do their work, and say nothing of it."""

from __future__ import annotations

import pathlib
import shlex
import subprocess
import sys

import pytest

from commands import CLUSTER
from commands import HLO
from lagom_xla import plan as plan_lib

_TIMEOUT_S = 120


def _bash(folder: pathlib.Path, command: str) -> str:
  """What is left of stdout and stderr of `lagom-xla COMMAND`, and its status.

  Args:
    folder: where it runs.
    command: with $LAGOM in place of lagom-xla, and what becomes of its output.
  """
  lagom = f"{shlex.quote(sys.executable)} -m lagom_xla"
  done = subprocess.run(
    ["bash", "-c", f"{command.replace('$LAGOM', lagom)}"],
    cwd=folder,
    stdout=subprocess.PIPE,
    stderr=subprocess.STDOUT,
    text=True,
    check=False,
    timeout=_TIMEOUT_S,
  )
  return done.stdout


@pytest.mark.parametrize(
  "unread",
  [
    "2>&1 | true; echo status ${PIPESTATUS[0]}",
    "2>/dev/full | true; echo status ${PIPESTATUS[0]}",
    ">&- 2>&-; echo status $?",
  ],
)
def test_a_plan_is_written_whoever_reads_of_it(
  tmp_path: pathlib.Path, unread: str
) -> None:
  (tmp_path / "step.hlo").write_text(HLO)
  said = _bash(tmp_path, f"$LAGOM tune step.hlo {CLUSTER} --out=plan {unread}")
  assert said == "status 0\n"
  assert plan_lib.load(tmp_path / "plan").module_name == "step"


def test_an_error_that_nobody_reads_has_its_exit_status(
  tmp_path: pathlib.Path,
) -> None:
  command = f"$LAGOM inspect absent.py:step {CLUSTER} 2>&1 | true"
  said = _bash(tmp_path, f"{command}; echo status ${{PIPESTATUS[0]}}")
  assert said == "status 2\n"
