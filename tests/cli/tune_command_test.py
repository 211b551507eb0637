# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""`lagom-xla tune`, its report and files, and `verify` of a plan's knobs."""

from __future__ import annotations

import dataclasses
import json
import os
import pathlib
import re
import sys
import tomllib
from typing import Any
from unittest import mock

import pytest

from commands import CLUSTER
from commands import ROOT
from commands import STEPS
from commands import TARGET
from commands import assert_refused
from commands import bash
from commands import check_schema
from commands import printed
from commands import run
from commands import write_hlo
from commands import write_steps
import fake_target
from lagom_xla import errors
from lagom_xla import plan as plan_lib
from lagom_xla.apply import files
from lagom_xla.cli import progress
from lagom_xla.cli.commands import tune
from lagom_xla.compile import config as config_lib
from lagom_xla.compile import load
from lagom_xla.compile import rewriting
from lagom_xla.costs import in_words
from lagom_xla.costs import uncertainty
from lagom_xla.explain import explanation as explanation_lib
from lagom_xla.flags import recipes
from lagom_xla.passes import registry
from lagom_xla.passes.program import form as form_lib
from lagom_xla.search.xla import candidates
from lagom_xla.search.xla import knobs as knobs_lib
from lagom_xla.tuner import tuner
from lagom_xla.verify import verification
from searched_plan import H100
from searched_plan import exchange_settings
from searched_plan import plan_of


@dataclasses.dataclass(frozen=True)
class Tuned:
  report: dict[str, Any]
  folder: pathlib.Path
  progress: list[str]  # Lines of stderr.
  said: list[str]  # Each activity, however quick.


@pytest.fixture(scope="module")
def tuned(h100s, tmp_path_factory) -> Tuned:
  """Assumes that the cost model is right, so that a small step has a plan."""
  folder = tmp_path_factory.mktemp("tuned") / "deep/plan"
  step = write_steps(tmp_path_factory.mktemp("steps"))
  with (
    mock.patch.object(uncertainty, "scenarios", return_value=()),
    mock.patch.object(progress.Bar, "say", autospec=True) as say,
  ):
    outcome = run("tune", step, CLUSTER, "--format=json", f"--out={folder}")
  assert outcome.status == 0
  said = [call.args[1] for call in say.call_args_list]
  lines = outcome.err.splitlines()
  return Tuned(json.loads(outcome.out), folder, lines, said)


def test_json_of_tune_follows_its_schema(tuned):
  check_schema("tune", tuned.report)
  assert tuned.report["arms"] and tuned.report["candidates"]
  assert tuned.report["stopped"] is tuned.report["profile"] is None
  assert all(tuned.report["peak_bytes"].values())
  assert tuned.report["recomputed"] == {"before": 0, "after": 0}


def test_the_parts_of_a_timeline_add_up_to_its_step_time(tuned):
  predicted = tuned.report["predicted"]
  assert predicted["before"]["step_time_us"] >= predicted["lower_bound_us"]
  for timeline in (predicted["before"], predicted["after"]):
    assert timeline["step_time_us"] == pytest.approx(
      timeline["kernel_us"] + timeline["exposed_us"] + timeline["slowdown_us"]
    )
    sources = timeline["source_by_collective"]
    assert sources.keys() >= timeline["exposed_us_by_collective"].keys()
    assert all(re.match(r"steps\.py:\d+", line) for line in sources.values())
    assert timeline["exposed_us"] == pytest.approx(
      sum(timeline["exposed_us_by_collective"].values())
    )
    pairs = timeline["slowdown_us_by_pair"]
    assert timeline["slowdown_us"] == pytest.approx(
      sum(pair["slowdown_us"] for pair in pairs)
    )


def test_a_tuned_step_is_predicted_no_slower_than_the_default(tuned):
  before = tuned.report["predicted"]["before"]["step_time_us"]
  after = tuned.report["predicted"]["after"]["step_time_us"]
  prediction = tuned.report["plan"]["prediction"]
  assert after <= before
  assert prediction["default_us"] == before
  assert prediction["nccl_settings_us"] == after
  for part in ("xla", "nccl_env", "nccl_settings"):
    assert prediction[f"{part}_gain_us"]["low_us"] >= 0
  known = prediction["default_range_us"]
  assert known["low_us"] <= before <= known["high_us"]
  default, *_ = tuned.report["candidates"]
  assert default["xla_options"] == {}
  assert default["step_time_us"] == before
  for candidate in tuned.report["candidates"]:
    tuned_us = candidate["tuned_step_time_us"]
    if tuned_us is None:
      assert candidate["step_time_us"] > before
    else:
      assert tuned_us <= candidate["step_time_us"]
  assert tuned.report["num_trials"] == sum(
    c["num_trials"] for c in tuned.report["candidates"]
  )


def test_every_knob_of_a_plan_has_its_effect_listed(tuned):
  plan, effects = tuned.report["plan"], tuned.report["effects"]
  num_knobs = len(plan["xla"]["options"])
  num_knobs += len(plan["nccl_env"]) + len(plan["nccl_settings"])
  assert len(effects) == num_knobs > 0
  for effect in effects:
    assert effect["acted"]
    assert effect["without_us"] > 0 and effect["with_us"] > 0


def test_tune_writes_all_files_of_a_plan(tuned):
  assert sorted(path.name for path in tuned.folder.iterdir()) == [
    "env.sh",
    "explain.json.gz",
    "nccl_table.bin",
    "plan.json",
    "report.json.gz",
  ]
  written = json.loads((tuned.folder / "plan.json").read_text())
  assert written == tuned.report["plan"]


def test_stderr_names_each_candidate_and_each_compile(tuned):
  first, *candidates, _, last = tuned.progress
  left = r"(, about \d+ (s|min) left)?"
  default = r" *[\d.]+ s  XLA's defaults: [\d.]+ ms"
  default += r"(; with the best NCCL settings [\d.]+ ms \(-[\d.]+%\))?"
  assert re.fullmatch(default + left, first)
  assert all(
    re.search(rf": [\d.]+ ms \([+-].*%\){left}$", c) for c in candidates
  )
  assert "full compile with the plan" in last
  defaults = "compiling XLA's defaults"
  assert {defaults, f"{defaults} to the end"} <= set(tuned.said)


def test_progress_names_recipes_as_published_flags(tuned):
  known = {recipe.name for recipe in recipes.for_nodes(1)}
  tried = known & {arm["name"] for arm in tuned.report["arms"]}
  assert "MaxText" in tried
  for name in tried:
    assert any(f"  published flags of {name}: " in p for p in tuned.progress)
  assert "compiling published flags of MaxText" in tuned.said


def test_possible_gains_of_forms_are_reported_with_the_command(monkeypatch):
  step = explanation_lib.Step(
    step_us=1e5,
    exposed_us=1e4,
    lower_bound_us=9e4,
    unexplained_us=0.0,
    reasons_us={},
    between_products_us=8e3,
    in_process_us=5e3,
    collectives=(),
  )
  typed = ["lagom-xla", "tune", "a b.py:f", CLUSTER, "--flags-only"]
  monkeypatch.setattr(sys, "argv", typed)
  said = tune.beyond(step)
  assert "can hide 8.00 ms of the waits" in said
  assert "could hide up to 5.00 ms of that" in said
  assert f"To try it, run `lagom-xla tune 'a b.py:f' {CLUSTER} --in-p" in said
  whole = dataclasses.replace(step, in_process_us=8e3)
  assert "could hide up to all of that" in tune.beyond(whole)
  little = dataclasses.replace(step, in_process_us=1.0)
  assert "would bring little" in tune.beyond(little)


@pytest.mark.parametrize(
  ("more", "seconds"), [((), 50.0), (("--in-process",), 25.0)]
)
def test_half_of_a_time_budget_is_reserved_to_finish_the_plan(
  tmp_path, more, seconds
):
  # Strands and groups get as much again as options.
  step = write_steps(tmp_path)
  ended = errors.TargetError("It ends here.")
  with mock.patch.object(tuner, "tune", side_effect=ended) as tuning:
    out = f"--out={tmp_path / 'plan'}"
    run("tune", step, CLUSTER, out, "--time-budget=100s", *more)
  assert tuning.call_args.kwargs["seconds"] == seconds


def test_a_config_that_xla_refuses_is_reported_with_the_reason():
  refused = candidates.Refused(
    config=config_lib.DEFAULT, reason="XLA ended.\nIts log: ..."
  )
  assert tune.outcome_in_words(refused, 1.0) == ": refused: XLA ended"


def test_a_refused_form_is_reported_with_one_reason_and_a_count():
  merged = form_lib.Form(strands="merged")
  outcome = form_lib.Outcome.refused("the loop at train.py:8", "it is alone")
  with pytest.raises(errors.ProgramError) as caught:
    rewriting.check("jit_step", merged, outcome + outcome)
  refused = candidates.Refused(
    config=config_lib.XlaConfig(program=merged), reason=str(caught.value)
  )
  assert tune.outcome_in_words(refused, 1.0) == (
    ": refused: the loop at train.py:8: it is alone; and 1 more"
  )


def test_times_in_progress_are_relative_to_the_step_without_a_plan(tuned):
  default, *others = tuned.report["candidates"]
  before_us = default["step_time_us"]
  assert f"XLA's defaults: {before_us / 1e3:,.2f} ms" in tuned.progress[0]
  said = "\n".join(tuned.progress)
  for one in others:
    if (us := one["tuned_step_time_us"]) is not None:
      told = f"{in_words.ms(us)} ms ({us / before_us - 1:+.2%})"
      assert f": {told}" in said


@pytest.mark.parametrize("out", ["/proc/plan", "file/deep/plan", "n" * 300])
def test_an_unwritable_plan_folder_is_refused_before_reading_the_target(
  tmp_path, monkeypatch, out
):
  monkeypatch.chdir(tmp_path)
  (tmp_path / "file").write_text("")
  (tmp_path / "step.py").write_text("raise RuntimeError('it is read')")
  outcome = run("tune", "step.py:step", CLUSTER, f"--out={out}")
  assert_refused(outcome, f"lagom-xla: Cannot write {out}: ")
  assert sorted(os.listdir(tmp_path)) == ["file", "step.py"]


def test_tune_without_a_cuda_plugin_names_the_extras_to_install(
  monkeypatch, tmp_path
):
  monkeypatch.setattr(registry, "plugin_path", lambda: None)
  outcome = run("tune", TARGET, CLUSTER, f"--out={tmp_path / 'plan'}")
  assert outcome.status == 2
  assert outcome.err.startswith("lagom-xla: Cannot compile for 1x8xh100: ")
  # The project is on no index, so extras are installed from a checkout.
  extras = re.findall(r"`pip install '\.\[(\w+)\]'`", outcome.err)
  project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
  assert (
    set(extras) == {"aot", "cuda13"} <= set(project["optional-dependencies"])
  )
  assert outcome.err.count("pip install") == len(extras)
  assert not any(tmp_path.iterdir())


@pytest.mark.parametrize(
  "unread",
  [
    "2>/dev/full | true; echo status ${PIPESTATUS[0]}",
    ">&- 2>&-; echo status $?",
  ],
)
def test_a_plan_is_written_even_if_its_report_cannot_be_printed(
  tmp_path, unread
):
  write_hlo(tmp_path)
  said = bash(tmp_path, f"$LAGOM tune step.hlo {CLUSTER} --out=plan {unread}")
  assert said == "status 0\n"
  assert plan_lib.load(tmp_path / "plan").module_name == "step"


_GATHER = knobs_lib.OPTIONS["all-gather"]


@dataclasses.dataclass(frozen=True)
class _OnDisk:
  """A step in a file, and a plan in which every knob takes effect."""

  target: str
  plan: plan_lib.Plan
  folder: str


@pytest.fixture(scope="module")
def on_disk(h100s, tmp_path_factory) -> _OnDisk:
  folder = tmp_path_factory.mktemp("steps")
  (folder / "steps.py").write_text(STEPS.replace("4096", "2048"))
  name = f"{folder / 'steps.py'}:step"
  plan = plan_of(fake_target.schedule_only(load.load(name, H100)))
  plan = dataclasses.replace(plan, nccl_env={})
  assert plan.xla.options[_GATHER] == 2**27 and plan.nccl_settings
  files.write(plan, folder / "plan")
  return _OnDisk(name, plan, str(folder / "plan"))


def test_verify_counts_and_names_the_configs_that_it_compiles(
  on_disk, said, monkeypatch
):
  expected: list[int] = []
  monkeypatch.setattr(
    progress.Bar, "expect", lambda _, num: expected.append(num)
  )
  run("verify", on_disk.folder, on_disk.target, CLUSTER)
  assert {"compiling XLA's defaults", "compiling the plan"} <= set(said)
  # The number of configs gives the remaining time.
  assert expected == [len(verification.configs(on_disk.plan))]


def test_text_of_verify_shows_each_knob_and_its_gain(on_disk):
  outcome = run("verify", on_disk.folder, on_disk.target, CLUSTER)
  assert (outcome.status, outcome.err) == (0, "")
  text = " ".join(outcome.out.split())
  assert "It was made for this module, cluster and JAX" in text
  assert f"{_GATHER}=134217728 (134 MB) instead of " in text
  assert re.search(r": [\d.]+ -> [\d.]+ ms; \d+ all-gathers? became \d+", text)
  assert re.search(r" gains [\d.]+ ms; 9 times in 10, -?[\d.]+ to [\d.]+", text)
  # A lone plan.json is a plan, too.
  lone = f"{on_disk.folder}/plan.json"
  assert run("verify", lone, on_disk.target, CLUSTER) == outcome


def test_json_of_verify_lists_each_knob_with_its_effect(on_disk):
  report = printed("verify", on_disk.folder, on_disk.target, CLUSTER)
  plan = on_disk.plan
  assert report["module_name"] == plan.module_name
  assert report["cluster"] == "1x8xh100"
  assert report["default_us"] > 0 and report["planned_us"] > 0
  gain_us = report["default_us"] - report["planned_us"]
  assert report["gain_us"]["low_us"] < gain_us < report["gain_us"]["high_us"]
  effects = {effect["knob"]: effect for effect in report["effects"]}
  assert len(effects) == len(plan.xla.options) + len(plan.nccl_settings)
  assert _GATHER in effects
  for effect in effects.values():
    assert effect["acted"] is True and effect["replaces"]
    assert effect["without_us"] > 0 and effect["with_us"] > 0


def test_verify_exits_with_1_if_a_knob_has_no_effect(on_disk, tmp_path):
  options = {**on_disk.plan.xla.options, "xla_gpu_memory_limit_slop_factor": 80}
  plan = dataclasses.replace(
    on_disk.plan, xla=config_lib.XlaConfig(options=options)
  )
  files.write(plan, tmp_path)
  arguments = (str(tmp_path), on_disk.target, CLUSTER)
  outcome = run("verify", *arguments)
  assert (outcome.status, outcome.err) == (1, "")
  row = next(line for line in outcome.out.splitlines() if "slop" in line)
  assert "no effect" in row
  acted = [e["acted"] for e in printed("verify", *arguments)["effects"]]
  assert acted.count(False) == 1


@pytest.mark.parametrize(
  ("line", "instead", "changed"),
  [
    (rf"--{_GATHER}=\w+", f"--{_GATHER}=12", {_GATHER}),
    (rf"--{_GATHER}=\w+", "", {_GATHER}),
    ("^export XLA_FLAGS=.*", "", {"XLA_FLAGS"}),
    ("\\Z", "export NCCL_ALGO=Tree\n", {"NCCL_ALGO"}),
    ("\\Z", "export NCCL_DEBUG=INFO\nHOSTS=8\n# My note.\n", set()),
  ],
)
def test_verify_names_where_env_sh_differs_from_the_plan(
  on_disk, tmp_path, line, instead, changed
):
  files.write(on_disk.plan, tmp_path)
  env = tmp_path / "env.sh"
  written = env.read_text()
  edited, count = re.subn(line, instead, written, count=1, flags=re.MULTILINE)
  assert count
  env.write_text(edited)
  outcome = run("verify", str(tmp_path), on_disk.target, CLUSTER)
  assert (outcome.status, outcome.err) == (int(bool(changed)), "")
  said = " ".join(outcome.out.split())
  assert ("Its env.sh differs" in said) == bool(changed)
  assert all(f"Its env.sh differs in {name}." in said for name in changed)
  plan = str(tmp_path / "plan.json")
  report = printed("verify", plan, on_disk.target, CLUSTER)
  assert {*report["differs_in_env"]} == changed


def test_verify_refuses_another_cluster_or_table_in_one_line(on_disk, tmp_path):
  other = run("verify", on_disk.folder, on_disk.target, "--cluster=2x4xh100")
  assert_refused(other, "num_nodes is 1 there and 2 here")
  files.write(on_disk.plan, tmp_path)
  exchange_settings(tmp_path / "nccl_table.bin")
  outcome = run("verify", str(tmp_path), on_disk.target, CLUSTER)
  assert_refused(outcome, "does not match")
