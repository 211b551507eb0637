# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""The NCCL_MAX_CTAS that a user has set: in no time, and said so."""

from __future__ import annotations

import pathlib

import pytest

import commands
import gather_steps
from lagom_xla.costs import in_words
from lagom_xla.search.nccl import channel_cap

_VARIABLE = "NCCL_MAX_CTAS"
_SAID = f"{_VARIABLE} is 1 here, and no time is under it"
_MODULE = gather_steps.module([64 * gather_steps.MIB], kernels_us=3.0)


@pytest.fixture
def module(tmp_path: pathlib.Path) -> str:
  path = tmp_path / "step.hlo.pb"
  path.write_bytes(_MODULE.proto.SerializeToString())
  return str(path)


def _said(*arguments: str) -> str:
  outcome = commands.run(*arguments, commands.CLUSTER)
  assert outcome.status == 0
  return " ".join(outcome.out.split())


def test_what_a_step_takes_under_it_is_told_and_nothing_else_changes(
  module: str, monkeypatch: pytest.MonkeyPatch
) -> None:
  before = _said("inspect", module)
  monkeypatch.setenv(_VARIABLE, "1")
  step = gather_steps.step(_MODULE)
  under = channel_cap.capped(step.default, 1)
  capped_us = step.timeline(under).step_time_us
  assert capped_us > 2 * step.timeline(step.default).step_time_us
  note = (
    f"Note: {_SAID} but this one: today's step takes"
    f" {in_words.ms(capped_us)} ms with it, predicted. "
  )
  after = _said("inspect", module)
  assert note in after
  assert after.replace(note, "") == before


def test_it_is_taken_in_place_of_xlas_cap(
  module: str, monkeypatch: pytest.MonkeyPatch
) -> None:
  monkeypatch.setenv(_VARIABLE, "64")
  monkeypatch.setenv("XLA_FLAGS", "--xla_gpu_nccl_collective_max_nchannels=1")
  step = gather_steps.step(_MODULE)
  free = in_words.ms(step.timeline(step.default).step_time_us)
  assert f"today's step takes {free} ms with it" in _said("inspect", module)


def test_plans_and_comparisons_say_it_too(
  module: str, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
  monkeypatch.setenv(_VARIABLE, "1")
  plan = str(tmp_path / "plan")
  assert _SAID in _said("tune", module, f"--out={plan}")
  for arguments in (("whatif", module), ("verify", plan, module)):
    assert f"{_SAID}." in _said(*arguments)


@pytest.mark.parametrize("value", ["", "0", "-4", "many"])
def test_what_nccl_takes_for_no_number_is_not_told(
  module: str, monkeypatch: pytest.MonkeyPatch, value: str
) -> None:
  monkeypatch.setenv(_VARIABLE, value)
  assert _VARIABLE not in _said("inspect", module)
