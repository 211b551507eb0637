# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""A report begins with its verdict and fits a screen; -v and -q are heard."""

from __future__ import annotations

import pathlib
import re

import hypothesis
from hypothesis import strategies as st
import jax
import pytest

from commands import CLUSTER
from commands import HLO
from commands import PLAN_FILES
from commands import Outcome
from commands import run
from commands import write_steps
from lagom_xla.report import layout


@st.composite
def _section(draw: st.DrawFn) -> layout.Section:
  items = draw(st.lists(st.lists(st.just("  item"), min_size=1, max_size=4)))
  return layout.Section(
    head=tuple(draw(st.lists(st.just("Head"), max_size=3))),
    items=tuple(map(tuple, items)),
  )


@hypothesis.given(st.lists(_section(), min_size=1, max_size=6))
def test_all_heads_are_shown_and_what_is_left_out_is_counted(
  sections: list[layout.Section],
) -> None:
  shown = layout.fitted(sections)
  heads = sum(len(section.head) for section in sections)
  assert shown.count("Head") == heads
  least = heads + sum(bool(section.items) for section in sections)
  assert len(shown) <= max(least, layout.NUM_LINES)
  whole = layout.fitted(sections, 10**6)
  assert len(whole) == heads + sum(
    len(item) for section in sections for item in section.items
  )
  if len(whole) <= layout.NUM_LINES:
    assert shown == whole
  else:
    assert any(
      re.fullmatch(r"  and \d+ more, which -v shows", x) for x in shown
    )


@hypothesis.given(st.text(alphabet="ab- ", max_size=400), st.integers(0, 21))
def test_wrapping_loses_no_word_and_keeps_to_80_columns(
  text: str, indent: int
) -> None:
  found = layout.wrapped(text, indent=indent)
  assert all(len(line) <= layout.NUM_COLUMNS for line in found)
  assert "".join("".join(found).split()) == "".join(text.split())


@pytest.fixture(scope="module")
def step(
  h100s: list[jax.Device], tmp_path_factory: pytest.TempPathFactory
) -> str:
  del h100s
  return write_steps(tmp_path_factory.mktemp("steps"))


def _fits(outcome: Outcome) -> bool:
  lines = outcome.out.splitlines()
  assert outcome.status == 0
  assert "\x1b" not in outcome.out and "…" not in outcome.out
  assert max(map(len, lines)) <= layout.NUM_COLUMNS
  return len(lines) <= layout.NUM_LINES


def test_an_inspection_says_first_what_collectives_cost_and_from_which_line(
  step: str,
) -> None:
  outcome = run("inspect", step, CLUSTER)
  assert _fits(outcome)
  first, *_ = outcome.out.splitlines()
  assert re.match(
    r"jit_step on 1x8xh100: collectives( and copies)? cost [\d.]+ ms", first
  )
  assert re.search(r"from steps\.py:\d+", " ".join(outcome.out.split()))
  assert "What runs beside each collective" not in outcome.out
  whole = run("inspect", step, CLUSTER, "-v")
  assert max(map(len, whole.out.splitlines())) <= layout.NUM_COLUMNS
  assert whole.out.startswith(first)
  assert "What runs beside each collective" in whole.out
  assert re.search(r"(?m)^  steps\.py:\d+ *$", whole.out)


def test_where_nothing_can_be_gained_the_first_line_says_so(
  tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
  monkeypatch.chdir(tmp_path)
  pathlib.Path("step.hlo").write_text(HLO)
  outcome = run("tune", "step.hlo", CLUSTER)
  assert _fits(outcome)
  first, *_ = outcome.out.splitlines()
  assert first.startswith(
    "step on 1x8xh100: nothing to set: of 1 configuration"
  )
  assert "env.sh  on every" not in outcome.out


def test_a_quiet_command_names_the_files_that_it_wrote_and_nothing_else(
  tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
  monkeypatch.chdir(tmp_path)
  pathlib.Path("step.hlo").write_text(HLO)
  outcome = run("tune", "step.hlo", CLUSTER, "--quiet")
  wrote = "".join(f"Wrote plan/{name}\n" for name in PLAN_FILES)
  assert outcome == Outcome(0, wrote, "")
  assert run("inspect", "step.hlo", CLUSTER, "-q") == Outcome(0, "", "")
  assert run("verify", "plan", "step.hlo", CLUSTER, "-q") == Outcome(0, "", "")
  wrong = run("inspect", "absent.hlo", CLUSTER, "-q")
  assert (wrong.status, wrong.out) == (2, "")
  assert wrong.err.startswith("lagom-xla: Cannot read absent.hlo: ")


def test_json_is_the_result_however_quiet_a_command_is(
  tmp_path: pathlib.Path,
) -> None:
  path = tmp_path / "step.hlo"
  path.write_text(HLO)
  loud = run("inspect", str(path), CLUSTER, "--format=json")
  quiet = run("inspect", str(path), CLUSTER, "--format=json", "--quiet")
  assert quiet == loud
