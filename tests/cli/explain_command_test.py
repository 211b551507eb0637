# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""The output of `lagom-xla explain`, for a target and for a plan's folder."""

from __future__ import annotations

import dataclasses
import gzip
import pathlib
import re
import shlex
from typing import Any

import pytest

from commands import CLUSTER
from commands import ROOT
from commands import assert_refused
from commands import printed
from commands import run
from commands import write_hlo
from commands import write_steps
from lagom_xla import cluster as cluster_lib
from lagom_xla.costs import in_words
from lagom_xla.costs import step as step_lib
from lagom_xla.explain import explaining
from lagom_xla.explain import explanation as explanation_lib
from lagom_xla.explain import sentences
from lagom_xla.plan import beside


@pytest.fixture(scope="module")
def explained(scheduled, fsdp_step) -> explanation_lib.Explanation:
  """Arguments for a plan in which XLA combines nothing."""
  lowered, cluster = fsdp_step(), cluster_lib.parse("1x8xh100")
  apart = {
    f"xla_gpu_{kind}_combine_threshold_bytes": 0
    for kind in ("all_gather", "reduce_scatter")
  }
  before, after = (
    step_lib.of_module(scheduled(lowered, **options), cluster)
    for options in ({}, apart)
  )
  return explaining.of_plan(before, after, after.default)


@pytest.fixture(scope="module")
def plan(explained, tmp_path_factory) -> pathlib.Path:
  folder = tmp_path_factory.mktemp("plan")
  explanation_lib.write(explained, folder)
  return folder


def test_the_lower_bound_is_the_smaller_of_todays_and_the_plans(
  tmp_path, explained
):
  after = explained.after
  assert after is not None
  shorter = dataclasses.replace(
    after, lower_bound_us=explained.before.lower_bound_us / 2
  )
  explanation_lib.write(dataclasses.replace(explained, after=shorter), tmp_path)
  bound = in_words.ms(shorter.lower_bound_us)
  told = " ".join(run("explain", str(tmp_path)).out.split())
  assert f"Lower bound: {bound} ms for today's module and the plan's" in told


def test_a_plan_that_changes_nothing_is_not_mentioned(tmp_path):
  plan = tmp_path / "plan"
  tuned = run("tune", write_hlo(tmp_path), CLUSTER, f"--out={plan}")
  assert tuned.status == 0
  told = run("explain", str(plan))
  assert told.status == 0
  assert "the plan" not in told.out


def test_suggested_commands_repeat_the_arguments_of_this_command(tmp_path):
  folder = tmp_path / "a b"
  folder.mkdir()
  asked = (write_steps(folder), CLUSTER, "--arg=size=8192")
  tune = f"`lagom-xla tune {shlex.join(asked)}"
  advised = _advised(printed("explain", *asked))
  assert advised and all(tune in text for text in advised)
  assert any(f"{tune}`" in text for text in advised)
  again = f"`lagom-xla explain {shlex.join(asked)} "
  name = _named(run("explain", *asked).out, again)
  assert f"for {name}, which" in run("explain", *asked, name).out
  # Options that the plan tried are not advised again.
  plan = folder / "plan"
  assert run("tune", *asked, f"--out={plan}").status == 0
  advised = _advised(printed("explain", str(plan)))
  assert advised and all(f"{tune} --in-process`" in text for text in advised)
  name = _named(run("explain", str(plan)).out, f"explain '{plan}' ")
  assert f"for {name}, which" in run("explain", str(plan), name).out


def _advised(explained: dict[str, Any]) -> list[str]:
  """Advice of an explanation in JSON that has commands of `tune`."""
  return [
    text
    for step in ("before", "after")
    for one in (explained[step] or {"collectives": ()})["collectives"]
    for text in one["advice"]
    if "lagom-xla tune" in text
  ]


def _named(told: str, command: str) -> str:
  """The collective that the command for details names."""
  _, _, details = told.partition("For details:")
  (name,) = re.findall(f"{re.escape(command)}([^`]*)`", details)
  return name


def test_begin_with_names_and_explains_a_collective_of_the_plan(
  explained, plan
):
  assert explained.after is not None
  told = " ".join(_output(str(plan)).split())
  (name,) = re.findall(r"Begin with ([^ :,]+)", told)
  (first,) = (c for c in explained.after.collectives if c.name == name)
  assert " ".join(first.why.split()) in told


def _output(*arguments: str) -> str:
  """The plain-text output, which fits a terminal."""
  outcome = run("explain", *arguments)
  assert (outcome.status, outcome.err) == (0, "")
  lines = outcome.out.splitlines()
  # A command stays on its line, however long the path of the plan is.
  texts = [line for line in lines if "`lagom-xla " not in line]
  assert len(lines) <= 40 and max(map(len, texts)) <= 80
  assert outcome.out.isascii()
  return outcome.out


def test_explain_begins_with_the_verdict(explained, plan):
  told = _output(str(plan))
  exposed = in_words.milliseconds(explained.before.exposed_us)
  assert f"kernels wait {exposed}" in " ".join(told.splitlines()[:2])
  assert explained.after is not None
  exposed = in_words.milliseconds(explained.after.exposed_us)
  assert f"With the plan they wait {exposed}" in told


def test_explain_accepts_every_collective_of_either_step(explained, plan):
  assert explained.after is not None
  for step in (explained.before, explained.after):
    for collective in step.collectives:
      told = _output(str(plan), collective.name)
      first = " ".join(told.split()).partition(", which takes")[0]
      assert first.endswith(f" for {collective.name}")


def test_details_of_a_collective_have_its_plan_parts_and_source(
  explained, plan
):
  first = explained.before.collectives[0]
  text = " ".join(_output(str(plan), first.name).split())
  assert first.with_plan is not None
  assert " ".join(first.with_plan.sentence.split()) in text
  assert f"= wait {in_words.ms(first.exposed_us)}" in text
  assert all(in_words.ms(part.us) in text for part in first.parts)
  assert f"from {pathlib.PurePath(first.file).name}:{first.line}" in text


def test_json_holds_all_collectives_or_only_the_named_one(explained, plan):
  whole = printed("explain", str(plan))
  assert whole["before"]["exposed_us"] == explained.before.exposed_us
  name = explained.before.collectives[0].name
  one = printed("explain", str(plan), name)
  assert [c["name"] for c in one["before"]["collectives"]] == [name]


def test_the_docs_define_every_reason():
  text = (ROOT / "docs" / "explain.md").read_text(encoding="utf-8")
  for reason, said in sentences.REASONS.items():
    assert f"| {said} |" in text
    assert f"| `{reason}` |" in text


def test_an_unknown_collective_is_refused_with_the_nearest_names(
  explained, plan
):
  name = explained.before.collectives[0].name
  outcome = run("explain", str(plan), f"{name}x")
  assert_refused(outcome, "the nearest names are", name)


@pytest.mark.parametrize(
  ("damage", "said"),
  [
    (None, "No such file"),
    (b"no gzip", "is damaged"),
    # A test's name has these bytes, so there is no time in them.
    (gzip.compress(b"{}", mtime=0), "of format version"),
    (gzip.compress(b'{"format_version": 1}', mtime=0), "is not a usable"),
  ],
)
@pytest.mark.parametrize(
  ("command", "name"),
  [("explain", beside.EXPLANATION), ("report", beside.REPORT)],
)
def test_a_missing_or_damaged_file_of_a_plan_is_refused(
  tmp_path, command, name, damage, said
):
  if damage is not None:
    (tmp_path / name).write_bytes(damage)
  outcome = run(command, str(tmp_path))
  assert_refused(outcome, name, said, "Make the plan again")


def test_the_collective_may_be_named_before_or_after_options(tmp_path):
  step = write_hlo(tmp_path)
  assert "has no collective to" in run("explain", step, CLUSTER).out
  for arguments in (("all-gather", CLUSTER), (CLUSTER, "all-gather")):
    outcome = run("explain", step, *arguments)
    assert "no collective 'all-gather'; it has no collectives" in outcome.err
  outcome = run("explain", step, CLUSTER, "all-gather", "another")
  assert "unrecognized arguments: another" in outcome.err


def test_explain_of_a_plan_refuses_options_of_a_target(plan):
  outcome = run("explain", str(plan), "--arg=model=tiny")
  assert outcome.status == 2
  assert "--arg needs a TARGET" in outcome.err
