# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Forms of the program are reported as all else is."""

from __future__ import annotations

import io

import pytest
import rich.console

from commands import check_schema
import fake_target
import formed_target
import hlo_text
from lagom_xla import cluster as cluster_lib
from lagom_xla import validation
from lagom_xla.passes.program import form as form_lib
from lagom_xla.report import results
from lagom_xla.report import tables
from lagom_xla.report import terminal
from lagom_xla.tuner import tuner
from lagom_xla.tuner import tuning as tuning_lib
from lagom_xla.verify import verification

_GIB = 2**30


@pytest.fixture(scope="module")
def tuning() -> tuning_lib.Tuning:
  return tuner.tune(formed_target.target(lambda form: _GIB), in_process=True)


def _text(table: object) -> str:
  console = rich.console.Console(file=io.StringIO(), width=200)
  console.print(table)
  assert isinstance(console.file, io.StringIO)
  return console.file.getvalue()


def test_the_effect_of_a_form_is_what_it_did_and_what_it_exposes(tuning):
  (effect,) = [e for e in tuning.effects if e.knob == "program"]
  assert effect.value == "strands rotated"
  assert effect.acted
  assert effect.evidence.startswith("Two loops became one; ")
  assert "exposed became" in effect.evidence


def test_verification_takes_a_plan_with_a_form(tuning):
  verified = verification.verify(tuning.plan, formed_target.target())
  (effect,) = [e for e in verified.effects if e.knob == "program"]
  assert effect.acted
  assert verified.planned_us < verified.default_us


def test_each_form_is_in_the_report_with_its_time_or_why_not(tuning):
  table = _text(tables.forms_table(tuning))
  strands = ("rotated", "merged", "staggered")
  lines = {
    name: next(line for line in table.splitlines() if line.startswith(name))
    for name in ("the program as written", *(f"strands {s}" for s in strands))
  }
  best_ms = tuning.kept.tuned.step_time_us / 1e3
  assert f"{best_ms:,.2f}" in lines["strands rotated"]
  assert "Two loops became one." in lines["strands merged"]
  assert "it has no loop" in lines["strands staggered"]
  assert f"{best_ms:,.2f}" not in lines["the program as written"]
  assert "strands rotated, " in _text(tables.candidates_table(tuning))


def test_json_has_the_form_of_each_candidate_and_what_became_of_it(tuning):
  printed = validation.write(results.tuning(tuning))
  check_schema("tune", printed)
  entries = printed["candidates"]
  rotated = [e for e in entries if e["program"]["strands"] == "rotated"]
  assert rotated[0]["rewrites"] == ["Two loops became one."]
  (refused,) = [e for e in entries if e["program"]["strands"] == "staggered"]
  assert "it has no loop" in refused["failure"]
  assert refused["rewrites"] == []


def test_where_no_form_can_be_had_the_report_says_why_once():
  start, done = hlo_text.all_gather("all-gather", 2**20)
  end = "ROOT result = f32[32768] negate(all-gather-in0)"
  module = hlo_text.load("\n".join([start, done, end]))
  refusal = form_lib.Refusal(where="dump", reason="it has no forms")
  target = fake_target.FakeTarget(
    name="dump",
    cluster=cluster_lib.parse("1x8xh100"),
    scheduled=lambda _: module,
    rewritten=lambda _: form_lib.Outcome(refusals=(refusal,)),
  )
  tuning = tuner.tune(target, in_process=True)
  assert any(tables.is_formed(c) for c in tuning.candidates)
  console = rich.console.Console(file=io.StringIO(), width=200)
  terminal.show_tuning(console, tuning, [], is_verbose=True)
  assert isinstance(console.file, io.StringIO)
  text = console.file.getvalue()
  assert text.count("it has no forms") == 1
  assert "There are no other forms of the program. dump: it has no forms." in (
    text
  )
