# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""`lagom-xla verify`: each knob in a table or JSON, and what it refuses."""

from __future__ import annotations

import dataclasses
import json
import re

import pytest

from commands import STEPS
from commands import Outcome
from commands import assert_refused
from commands import check_schema
from commands import run
import fake_target
from lagom_xla import plan as plan_lib
from lagom_xla.apply import files
from lagom_xla.cli import progress
from lagom_xla.compile import config as config_lib
from lagom_xla.compile import load
from lagom_xla.costs import in_words
from lagom_xla.search.xla import knobs as knobs_lib
from lagom_xla.verify import verification
from searched_plan import H100
from searched_plan import exchange_settings
from searched_plan import plan_of

_GATHER = knobs_lib.OPTIONS["all-gather"]


@dataclasses.dataclass(frozen=True)
class _OnDisk:
  """A step in a file, and a plan for it whose every knob acts."""

  target: str
  plan: plan_lib.Plan
  folder: str

  def verify(self, *arguments: str, folder: str | None = None) -> Outcome:
    arguments = arguments or ("--cluster=1x8xh100",)
    return run("verify", folder or self.folder, self.target, *arguments)


@pytest.fixture(scope="module")
def on_disk(h100s, tmp_path_factory) -> _OnDisk:
  del h100s
  folder = tmp_path_factory.mktemp("steps")
  (folder / "steps.py").write_text(STEPS.replace("4096", "2048"))
  name = f"{folder / 'steps.py'}:step"
  plan = plan_of(fake_target.schedule_only(load.load(name, H100)))
  plan = dataclasses.replace(plan, nccl_env={})
  assert plan.xla.options[_GATHER] == 2**27 and plan.nccl_settings
  files.write(plan, folder / "plan")
  return _OnDisk(name, plan, str(folder / "plan"))


def test_the_command_says_which_part_it_compiles_without(
  on_disk, said, monkeypatch
):
  expected: list[int] = []
  monkeypatch.setattr(
    progress.Bar, "expect", lambda _, num: expected.append(num)
  )
  on_disk.verify()
  assert {"compiling XLA's defaults", "compiling the plan"} <= set(said)
  # It knows how many configs there are, and so how long is left.
  assert expected == [len(verification.configs(on_disk.plan))]


def test_the_command_shows_each_knob(on_disk):
  outcome = on_disk.verify()
  assert (outcome.status, outcome.err) == (0, "")
  text = " ".join(outcome.out.split())
  assert "are those that it was made for" in text
  assert f"{_GATHER}=134217728 (134 MB) instead of " in text
  assert re.search(r": [\d.]+ -> [\d.]+ ms; \d+ all-gathers? became \d+", text)
  known = on_disk.plan.prediction
  assert f"between {in_words.ms(known.default_range_us.low_us)} and" in text
  ends = dataclasses.astuple(known.nccl_settings_gain_us)
  assert f"; 9 times in 10, {in_words.ms_range(*ends)}" in text
  # A lone plan.json is a plan, too.
  assert on_disk.verify(folder=f"{on_disk.folder}/plan.json") == outcome


def test_the_command_prints_json(on_disk):
  outcome = on_disk.verify("--cluster=1x8xh100", "--format=json")
  assert (outcome.status, outcome.err) == (0, "")
  report = json.loads(outcome.out)
  check_schema("verify", report)
  assert report["module_name"] == on_disk.plan.module_name
  assert report["cluster"] == "1x8xh100"
  assert report["default_us"] > 0 and report["planned_us"] > 0
  known = on_disk.plan.prediction
  for name, known_us in (
    ("default_range_us", known.default_range_us),
    ("gain_us", known.nccl_settings_gain_us),
  ):
    assert report[name] == dataclasses.asdict(known_us)
  knobs = [effect["knob"] for effect in report["effects"]]
  plan = on_disk.plan
  assert len(knobs) == len(plan.xla.options) + len(plan.nccl_settings)
  assert _GATHER in knobs
  for effect in report["effects"]:
    assert effect["acted"] is True
    assert effect["replaces"]
    assert effect["without_us"] > 0 and effect["with_us"] > 0


def test_the_status_says_that_a_knob_does_nothing(on_disk, tmp_path):
  options = {**on_disk.plan.xla.options, "xla_gpu_memory_limit_slop_factor": 80}
  plan = dataclasses.replace(
    on_disk.plan, xla=config_lib.XlaConfig(options=options)
  )
  files.write(plan, tmp_path)
  outcome = on_disk.verify(folder=str(tmp_path))
  assert (outcome.status, outcome.err) == (1, "")
  row = next(line for line in outcome.out.splitlines() if "slop" in line)
  assert "no effect" in row
  as_json = ("--cluster=1x8xh100", "--format=json")
  report = on_disk.verify(*as_json, folder=str(tmp_path))
  assert report.status == 1
  acted = [e["acted"] for e in json.loads(report.out)["effects"]]
  assert acted.count(False) == 1


def test_the_command_refuses_in_one_line(on_disk, tmp_path):
  other = on_disk.verify("--cluster=2x4xh100")
  assert_refused(other, "num_nodes is 1 there and 2 here")
  files.write(on_disk.plan, tmp_path)
  exchange_settings(tmp_path / "nccl_table.bin")
  outcome = on_disk.verify(folder=str(tmp_path))
  assert_refused(outcome, "was switched or exchanged")
