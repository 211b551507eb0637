# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""A report shows what each arm is worth, and what is kept of it."""

from __future__ import annotations

import dataclasses
import io
import json

import pytest
import rich.console

import arm_steps
from lagom_xla import cluster as cluster_lib
from lagom_xla import errors
from lagom_xla import validation
from lagom_xla.compile import config as config_lib
from lagom_xla.flags import recipes
from lagom_xla.report import results
from lagom_xla.report import tables
from lagom_xla.report import terminal
from lagom_xla.report.page import contents
from lagom_xla.search.xla import arms as arms_lib
from lagom_xla.search.xla import candidates
from lagom_xla.search.xla import joint
from lagom_xla.tuner import tuner


def test_a_report_says_why_no_published_flags_were_tried(monkeypatch):
  def fail(*_: object) -> None:
    raise errors.OptionsError("jaxlib does not say what options it has")

  monkeypatch.setattr(recipes, "for_nodes", fail)
  tuning = tuner.tune(
    dataclasses.replace(
      arm_steps.target(arm_steps.DOUBLED), cluster=cluster_lib.parse("5x8xh100")
    )
  )
  stream = io.StringIO()
  console = rich.console.Console(file=stream, width=200)
  terminal.show_tuning(console, tuning, [], is_verbose=True)
  assert "No published XLA_FLAGS were tried: jaxlib does not say" in (
    " ".join(stream.getvalue().split())
  )


@pytest.mark.parametrize(
  ("xla_flags", "shown"),
  [
    ("", "today: XLA's defaults"),
    (f"--{arm_steps.DOUBLED}=true", "without XLA_FLAGS"),
  ],
)
def test_all_arms_are_legible_in_a_terminal_of_80_columns(
  monkeypatch, xla_flags, shown
):
  monkeypatch.setenv("XLA_FLAGS", xla_flags)
  arms = arms_lib.known(arm_steps.H100).arms
  search = joint.search(arm_steps.target(arm_steps.DOUBLED), arms=arms)
  stream = io.StringIO()
  console = rich.console.Console(file=stream, width=80)
  console.print(tables.arms_table(search))
  lines = [line.rstrip() for line in stream.getvalue().splitlines()]
  # A title, a head, and no row that takes two lines.
  assert len(lines) == 2 + 1 + len(arms) + 1
  assert any(shown in line for line in lines)
  for arm in arms:
    found = search.found(arm.config)
    assert isinstance(found, candidates.Candidate)
    (line,) = [x for x in lines if x.startswith(arm.name + " ")]
    assert f" {arm_steps.us(found) / 1e3:,.2f} " in line


def test_a_report_shows_what_each_arm_is_worth():
  arms = (arm_steps.arm("first", xla_a=1), arm_steps.arm("second", xla_b=1))
  tuning = tuner.tune(arm_steps.target("xla_a"))
  search = joint.search(arm_steps.target("xla_a"), arms=arms)
  stream = io.StringIO()
  console = rich.console.Console(file=stream, width=200)
  console.print(tables.arms_table(search))
  text = stream.getvalue()
  assert "today" in text and "the plan" in text
  for arm in arms:
    found = search.found(arm.config)
    assert isinstance(found, candidates.Candidate)
    (line,) = [x for x in text.splitlines() if x.startswith(arm.name)]
    assert f"{arm_steps.us(found) / 1e3:,.2f}" in line
    assert ("fastest" in line) == (arm.name == "first")
    share = arm_steps.us(found) / arm_steps.us(search.default) - 1
    assert f"{share:+.1%}" in line
  terminal.show_tuning(console, tuning, [], is_verbose=True)
  assert "rests on the cost model" in " ".join(stream.getvalue().split())
  printed = json.loads(json.dumps(validation.write(results.tuning(tuning))))[
    "arms"
  ]
  names = [arm.name for arm in tuning.search.arms]
  assert [arm["name"] for arm in printed[1:]] == names
  assert all(arm["step_time_us"] > 0 for arm in printed)


@pytest.mark.parametrize(
  ("option", "is_told"),
  [("xla_gpu_enable_triton_gemm", True), (arm_steps.DOUBLED, False)],
)
def test_a_plan_with_other_products_says_what_its_gain_rests_on(
  option: str, is_told: bool
) -> None:
  tuning = tuner.tune(arm_steps.target(option))
  assert [*tuning.plan.xla.options] == [option]
  stream = io.StringIO()
  console = rich.console.Console(file=stream, width=80)
  terminal.show_tuning(console, tuning, [])
  said = "xla_gpu_enable_triton_gemm: Ahead of time no product is autotuned"
  assert (said in " ".join(stream.getvalue().split())) == is_told
  notes = contents.of_tuning(tuning, folder="plan").notes
  assert any(said in note for note in notes) == is_told


def test_candidates_are_told_by_what_differs_from_an_arm():
  arms = (arm_steps.arm("recipe", xla_a=1, xla_b=1, xla_c=1),)
  search = joint.search(arm_steps.target("xla_a"), arms=arms)
  default = search.default
  for options in ({**arms[0].config.options, "xla_c": 2}, {"xla_b": 1}):
    config = config_lib.XlaConfig(options=options)
    search = search.with_candidate(dataclasses.replace(default, config=config))
  tuning = dataclasses.replace(
    tuner.tune(arm_steps.target("xla_a")), search=search
  )
  stream = io.StringIO()
  console = rich.console.Console(file=stream, width=200, markup=False)
  console.print(tables.candidates_table(tuning))
  rows = [line.partition("  ")[0] for line in stream.getvalue().splitlines()]
  assert {"recipe", "recipe, xla_c=2", "xla_b=1"} <= set(rows)
