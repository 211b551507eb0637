# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""The benchmark of fused modules prints what it found of each schedule."""

from __future__ import annotations

import pathlib
import re
import sys

import pytest

from benchmarks import fused
import commands


def test_schedules_from_a_fused_module_are_predicted_as_xlas_own(
  monkeypatch: pytest.MonkeyPatch,
  capsys: pytest.CaptureFixture[str],
  tmp_path: pathlib.Path,
  h100s: object,
) -> None:
  monkeypatch.setattr(sys, "argv", ["fused", commands.write_steps(tmp_path)])
  fused.main()
  *rows, total = capsys.readouterr().out.splitlines()[1:]
  found = re.fullmatch(
    r"(\d+) schedules, (\d+) of them the same; others are predicted ([\d.]+)%"
    r" off at most; CPU s [\d.]+ and [\d.]+ by median",
    total,
  )
  assert found is not None
  assert int(found[1]) == len(rows)
  assert int(found[2]) == sum("the same" in row for row in rows)
  assert float(found[3]) < 1
