# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""What env.sh says to who reads it, and what it leaves to a comment."""

from __future__ import annotations

import dataclasses
import pathlib

import pytest

from lagom_xla.apply import env
from lagom_xla.apply import files
from lagom_xla.compile import config as config_lib
from lagom_xla.passes.program import form as form_lib
from sample_plan import GATHER
from sample_plan import PLAN
import sourced

_WITHOUT_TABLE = dataclasses.replace(PLAN, nccl_settings=())


@pytest.fixture
def folder(tmp_path: pathlib.Path) -> pathlib.Path:
  return sourced.write_plan(tmp_path)


def test_combine_groups_are_said_to_take_the_decorator(tmp_path):
  xla = config_lib.XlaConfig(combine_groups=(("a", "b"),))
  files.write(dataclasses.replace(PLAN, xla=xla), tmp_path / "groups")
  files.write(PLAN, tmp_path / "none")
  words = "lagom_xla.tune(plan=...)"
  assert words in (tmp_path / "groups/env.sh").read_text()
  assert words not in (tmp_path / "none/env.sh").read_text()


def test_flags_of_a_rewritten_program_are_said_to_be_for_it(tmp_path):
  form = form_lib.Form(strands="rotated", slices={"mlp\nrm -rf": 4})
  xla = config_lib.XlaConfig(program=form, options={GATHER: 1})
  text = env.script(
    dataclasses.replace(PLAN, xla=xla), table_checksum="0123456789abcdef"
  )
  assert "lagom_xla.tune(plan=...)" in text
  (line,) = [line for line in text.splitlines() if "strands rotated" in line]
  assert line.startswith("# ")
  assert "mlp rm -rf in 4 pieces" in line


def test_clouds_whose_tuner_is_replaced_are_named(tmp_path, folder):
  text = (folder / "env.sh").read_text()
  assert "Google" in text and "AWS" in text
  assert "LAGOM_XLA_REPLACE_TUNER=1" in text
  # A plan without a tuner replaces none.
  files.write(_WITHOUT_TABLE, tmp_path / "plan")
  assert "AWS" not in (tmp_path / "plan/env.sh").read_text()


def test_the_file_says_that_every_process_needs_it_before_it_starts(folder):
  text = (folder / "env.sh").read_text()
  assert "every process of the job, before it starts" in text
