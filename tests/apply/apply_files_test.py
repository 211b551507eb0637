# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""A plan's folder appears whole or not at all, and replaces only a plan."""

from __future__ import annotations

import dataclasses
import pathlib

import pytest

from lagom_xla import errors
from lagom_xla import plan as plan_lib
from lagom_xla.apply import files
from sample_plan import PLAN

_OLD = dataclasses.replace(PLAN, module_name="old")
_NEW = dataclasses.replace(PLAN, module_name="new")


def test_a_plans_folder_holds_the_plan_env_sh_and_the_table(tmp_path):
  folder = tmp_path / "runs" / "plan"
  written = files.write(PLAN, folder)
  assert sorted(written) == sorted(folder.iterdir())
  assert sorted(path.name for path in written) == [
    "env.sh",
    "nccl_table.bin",
    "plan.json",
  ]
  assert plan_lib.load(folder) == PLAN
  assert list(folder.parent.iterdir()) == [folder]


@pytest.mark.parametrize("names", [["train.py"], ["plan.json", "train.py"]])
def test_a_folder_with_other_files_is_refused_and_unchanged(tmp_path, names):
  for name in names:
    (tmp_path / name).write_text("precious")
  with pytest.raises(errors.PlanError, match="is not a plan"):
    files.check(tmp_path)
  with pytest.raises(errors.PlanError, match=str(tmp_path)):
    files.write(PLAN, tmp_path)
  assert sorted(path.name for path in tmp_path.iterdir()) == names
  assert (tmp_path / names[0]).read_text() == "precious"


def test_a_folder_that_cannot_be_created_is_an_error(tmp_path):
  (tmp_path / "file").write_text("")
  folder = tmp_path / "file" / "plan"
  with pytest.raises(errors.PlanError, match=f"Cannot write {folder}: .+"):
    files.write(PLAN, folder)


def test_a_failed_write_keeps_the_older_plan(tmp_path, monkeypatch):
  folder = tmp_path / "plan"
  files.write(_OLD, folder)
  rename = pathlib.Path.rename

  def fails(self: pathlib.Path, target: pathlib.Path) -> pathlib.Path:
    if self.name == "fresh":
      raise OSError(28, "No space left on device")
    return rename(self, target)

  monkeypatch.setattr(pathlib.Path, "rename", fails)
  with pytest.raises(errors.PlanError, match="No space left on device"):
    files.write(_NEW, folder)
  assert plan_lib.load(folder).module_name == "old"
  assert list(tmp_path.iterdir()) == [folder]


def test_a_symbolic_link_to_a_plan_is_followed_and_kept(tmp_path):
  files.write(_OLD, tmp_path / "plan")
  (tmp_path / "latest").symlink_to(tmp_path / "plan")
  files.write(_NEW, tmp_path / "latest")
  assert (tmp_path / "latest").is_symlink()
  assert plan_lib.load(tmp_path / "plan").module_name == "new"


def test_a_plans_folder_has_the_usual_permissions(tmp_path):
  files.write(PLAN, tmp_path / "plan")
  (tmp_path / "usual").mkdir()
  assert (tmp_path / "plan").stat().st_mode == (
    (tmp_path / "usual").stat().st_mode
  )
